//! The recordings of real Redisson in `tests/golden`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::facts::{Change, Expiries, Expiry, Facts, hash_text, key_text, renewals};
use crate::kinds::Kind;

pub(super) struct Scenario {
    /// As recorded; of another kind of lock than the plain one, behind the kind's name.
    pub(super) name: String,
    /// What `lock` is in its calls.
    pub(super) kind: &'static Kind,
    pub(super) shows: String,
    pub(super) steps: Vec<Step>,
}

pub(super) struct Step {
    pub(super) number: usize,
    /// Client and thread: `A <t1>`. Empty when time passes, `redis-cli` for plain commands.
    pub(super) who: String,
    /// What was called, or what was waited for; a plain command with its arguments in quotes.
    pub(super) call: String,
    /// A plain command.
    pub(super) command: Vec<String>,
    /// The call was still running when the step ended.
    pub(super) waits: bool,
    /// Its own attempt found the lock free.
    pub(super) found_it_free: bool,
    pub(super) came_back: Vec<(usize, String)>,
    facts: Facts,
}

pub(super) fn scenario(name: &str) -> Scenario {
    scenarios()
        .into_iter()
        .find(|scenario| scenario.name == name)
        .unwrap_or_else(|| panic!("{name} is recorded"))
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let files = [
        include_str!("../../../golden/rlock.json"),
        include_str!("../../../golden/rlock_edges.json"),
        include_str!("../../../golden/spin_lock.json"),
        include_str!("../../../golden/non_reentrant_lock.json"),
    ];
    let parse = |file| serde_json::from_str::<Value>(file).expect("a recording is JSON");
    let read = |file: Value| {
        let object = text(&file["object"]);
        let kind = Kind::find(object.trim_end_matches("_edges")).expect("it is one of ours");
        let read = |scenario| Scenario::read(kind, scenario);
        list(&file["scenarios"]).iter().map(read).collect()
    };
    files
        .into_iter()
        .map(parse)
        .flat_map::<Vec<_>, _>(read)
        .collect()
}

impl Scenario {
    fn read(kind: &'static Kind, scenario: &Value) -> Self {
        let name = kind.scenario(&text(&scenario["scenario"]));
        let mut expiries = Expiries::slowed(slower(&name));
        Self {
            name,
            kind,
            shows: text(&scenario["shows"]),
            // A step without a number is a note.
            steps: list(&scenario["steps"])
                .iter()
                .filter(|step| step["step"].is_u64())
                .map(|step| Step::read(step, &mut expiries))
                .collect(),
        }
    }

    /// How many times slower it is replayed, the recorded times too.
    pub(super) fn slower(&self) -> u32 {
        slower(&self.name)
    }

    /// `lockWatchdogTimeout=3000` and the like.
    pub(super) fn watchdog_lease(&self) -> Duration {
        let millis = self
            .shows
            .split("lockWatchdogTimeout=")
            .nth(1)
            .and_then(|rest| {
                rest.split(|c: char| !c.is_ascii_digit())
                    .next()?
                    .parse()
                    .ok()
            });
        Duration::from_millis(millis.unwrap_or(30_000)) * self.slower()
    }
}

impl Step {
    /// What Redisson did.
    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// How long nobody did anything.
    pub(super) fn pause(&self) -> Option<Duration> {
        let seconds = self.call.strip_prefix('(')?.split(" s pass").next()?;
        Some(Duration::from_secs_f64(seconds.parse().ok()?))
    }

    fn read(step: &Value, expiries: &mut Expiries) -> Self {
        let number = step["step"].as_u64().expect("a number") as usize;
        let commands = list(&step["commands"]);
        let command: Vec<String> = list(&step["call"]).iter().map(text).collect();
        let mut changes: Vec<Expiry> = commands.iter().flat_map(expiry_changes).collect();
        if let [name, key] = &command[..]
            && matches!(name.as_str(), "PERSIST" | "DEL")
        {
            changes.push(Expiry {
                key: key.clone(),
                change: Change::Removed,
            });
        }
        for change in &changes {
            expiries.apply(number, change);
        }
        let keys = list(&step["keys"]);
        expiries.keep(&keys.iter().map(|key| text(&key["key"])).collect::<Vec<_>>());
        let came_back = list(&step["came_back"])
            .iter()
            .map(|call| {
                (
                    call["call_of_step"].as_u64().expect("a number") as usize,
                    answer(call),
                )
            })
            .collect::<Vec<_>>();
        let published: Vec<String> = list(&step["published"])
            .iter()
            .map(|message| format!("{} <- {}", text(&message[0]), text(&message[1])))
            .collect();
        let mut facts = Facts::default();
        facts.set("answer", answer(step));
        facts.set("came back", came_back_text(&came_back));
        facts.set("published", published.join(", "));
        let texts: Vec<String> = keys.iter().map(|key| key_facts(key, expiries)).collect();
        facts.set("keys", texts.join(", "));
        let is_pause = step["who"].is_null();
        facts.set(
            "renewals",
            if is_pause {
                renewals(changes.iter())
            } else {
                String::new()
            },
        );
        Self {
            number,
            who: text(&step["who"]),
            call: step["call"]
                .as_str()
                .map_or_else(|| command.join(" "), str::to_owned),
            waits: step["waits"] == true,
            found_it_free: commands.first().is_some_and(|first| {
                let inside = list(&first["in_script"]);
                first["by"].is_null()
                    && inside.len() == 3
                    && text(&inside[0]).starts_with("exists ")
                    && text(&inside[1]).starts_with("hincrby ")
            }),
            command,
            came_back,
            facts,
        }
    }
}

pub(super) fn came_back_text(calls: &[(usize, String)]) -> String {
    let texts: Vec<String> = calls
        .iter()
        .map(|(step, answer)| format!("{step}: {answer}"))
        .collect();
    texts.join(", ")
}

/// Only the kind of an error can be compared, and of a living TTL that it is one.
fn answer(step: &Value) -> String {
    if step["waits"] == true {
        return "waits".to_owned();
    }
    if let Some(class) = step["throws"].as_str() {
        let message = text(&step["message"]);
        return match class {
            "java.lang.IllegalMonitorStateException" if message.contains("already held") => {
                "already held".to_owned()
            }
            "java.lang.IllegalMonitorStateException" => "not held".to_owned(),
            "java.lang.InterruptedException" => "cancelled".to_owned(),
            _ => format!("refused {}", message.split(' ').next().unwrap_or_default()),
        };
    }
    let call = text(&step["call"]);
    match &step["returns"] {
        Value::Null if step["reply"].is_null() => String::new(),
        Value::Null => text(&step["reply"]),
        Value::Number(ttl) if call.contains("remainTimeToLive") && ttl.as_i64() >= Some(0) => {
            "a ttl".to_owned()
        }
        returned => text(returned),
    }
}

fn key_facts(key: &Value, expiries: &Expiries) -> String {
    let name = text(&key["key"]);
    let recorded = text(&key["ttl"]);
    let base = recorded
        .trim_start_matches('≈')
        .split('-')
        .next()
        .expect("a part");
    match (base, expiries.of(&name)) {
        ("none", None) => {}
        // An expiry at a moment is a few milliseconds off.
        (base, Some(ours)) if (base.parse().unwrap_or(0) - ours).abs() < 10 => {}
        (_, ours) => panic!("{name} has {recorded} in the recording, its commands give {ours:?}"),
    }
    let content = match &key["content"] {
        Value::Object(fields) => {
            let fields: BTreeMap<String, String> = fields
                .iter()
                .map(|(field, value)| (field.clone(), text(value)))
                .collect();
            hash_text(&fields)
        }
        other => text(other),
    };
    key_text(&name, &text(&key["type"]), &content, &expiries.text(&name))
}

/// What a recorded command did to the expiry of keys.
fn expiry_changes(command: &Value) -> Vec<Expiry> {
    let name = text(&command["cmd"][0]);
    if name == "PERSIST" {
        let key = text(&command["cmd"][1]);
        return vec![Expiry {
            key,
            change: Change::Removed,
        }];
    }
    let is_renewal = text(&command["cmd"][1]) == RENEWAL;
    let of_call = |call: &Value| {
        let call = text(call);
        let (call, last) = call.rsplit_once(' ')?;
        let unquoted = |key: &str| key.trim_matches('\'').to_owned();
        if let Some(key) = call.strip_prefix("pexpire ") {
            let ms: i64 = last.parse().expect("milliseconds");
            // Zero deletes the key.
            let change = match ms {
                0 => Change::Removed,
                _ if is_renewal => Change::Renewed(ms),
                _ => Change::Set(ms),
            };
            return Some(Expiry {
                key: unquoted(key),
                change,
            });
        }
        if call.starts_with("pexpireat ") {
            let key = call.split(' ').nth(1)?.to_owned();
            return Some(Expiry {
                key,
                change: Change::Set(20_000),
            });
        }
        if let Some(key) = call
            .strip_prefix("set ")
            .and_then(|set| set.split(' ').next())
        {
            let change = Change::Set(last.parse().expect("milliseconds"));
            return Some(Expiry {
                key: unquoted(key),
                change,
            });
        }
        if is_renewal && let Some(key) = call.strip_prefix("hexists ") {
            return Some(Expiry {
                key: unquoted(key),
                change: Change::Asked,
            });
        }
        None
    };
    let mut changes: Vec<Expiry> = list(&command["in_script"])
        .iter()
        .filter_map(of_call)
        .collect();
    // A renewal asks and sets: that is one.
    if is_renewal {
        let renewed: Vec<String> = changes
            .iter()
            .filter(|change| matches!(change.change, Change::Renewed(_)))
            .map(|change| change.key.clone())
            .collect();
        changes.retain(|change| {
            !matches!(change.change, Change::Asked) || !renewed.contains(&change.key)
        });
    }
    // `same_again` stands for repetitions of what came before it: renewals in one scenario.
    let again = command["same_again"].as_u64().unwrap_or(0);
    for _ in 0..again {
        changes.push(Expiry {
            key: "orders".to_owned(),
            change: Change::Renewed(3_000),
        });
    }
    changes
}

/// Leases that a busy machine could not look at in time are longer here than in the recording, and so
/// is everything beside them.
fn slower(scenario: &str) -> u32 {
    match scenario {
        "expired_hold" => 5,
        "spin_lock_constant_back_off" | "spin_lock_force_unlock" => 5,
        "holder_expires" | "non_reentrant_lock_waiter_woken" => 3,
        "no_ttl" => 2,
        _ => 1,
    }
}

/// A list, or what is not there.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Redisson's renewal script.
const RENEWAL: &str = "6a3d3157";
