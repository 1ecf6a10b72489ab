//! Redisson's recorded calls of its lock of several values, made through our API. The answers, the
//! messages, the values in the hash with their owners and counts, and the clock that counts are those of
//! the recording, or those of a listed difference.

use std::collections::BTreeMap;
use std::time::Duration;

use lockdog::{Guard, Result};
use serde_json::Value as Json;
use tokio::task::JoinHandle;

use super::*;

#[tokio::test]
async fn lock_unlock() {
    replay("lock_unlock").await;
}

#[tokio::test]
async fn leases_and_waiters() {
    replay("leases_and_waiters").await;
}

#[tokio::test]
async fn expired_value() {
    replay("expired_value").await;
}

#[tokio::test]
async fn string_codec_and_watchdog() {
    replay("string_codec_and_watchdog").await;
}

/// Scenario, step, aspect, and our value instead of the recorded one. `docs/protocol.md` has the reasons.
const DIFFERENCES: &[Difference] = &[
    ("no-partial-message", "lock_unlock", 5, "published", ""),
    ("missing-is-lost", "lock_unlock", 8, "published", ""),
    ("server-clock", "lock_unlock", 1, "clock", SERVERS),
    ("server-clock", "leases_and_waiters", 1, "clock", SERVERS),
    ("server-clock", "expired_value", 1, "clock", SERVERS),
    (
        "server-clock",
        "string_codec_and_watchdog",
        1,
        "clock",
        SERVERS,
    ),
    ("count-of-the-hold", "leases_and_waiters", 7, "answer", "0"),
    ("force-cleans", "leases_and_waiters", 9, "answer", "true"),
    (
        "force-cleans",
        "leases_and_waiters",
        9,
        "published",
        "redisson_lock__channel:{class_100} <- 0",
    ),
    (
        "force-cleans",
        "leases_and_waiters",
        9,
        "keys",
        "1eDMpk3vLr44H30DkVKRJA=B:1",
    ),
    ("force-cleans", "leases_and_waiters", 10, "answer", "true"),
    (
        "expired-values-cleaned",
        "expired_value",
        4,
        "keys",
        "230jWNvarrOid4cfBqB4JQ=B:1 xOfNUjB5nFaIIn+SD7r/3Q=B:1",
    ),
    (
        "expired-values-cleaned",
        "expired_value",
        5,
        "keys",
        "230jWNvarrOid4cfBqB4JQ=B:1 xOfNUjB5nFaIIn+SD7r/3Q=B:1",
    ),
    (
        "expired-values-cleaned",
        "expired_value",
        6,
        "keys",
        "230jWNvarrOid4cfBqB4JQ=B:1",
    ),
    ("expired-values-cleaned", "expired_value", 7, "keys", ""),
];

#[test]
fn every_recorded_scenario_is_replayed() {
    let all: Json =
        serde_json::from_str(include_str!("../../golden/faster_multi_lock.json")).unwrap();
    let scenarios = all["scenarios"].as_array().unwrap().iter();
    let recorded: Vec<&str> = scenarios.filter_map(|it| it["scenario"].as_str()).collect();
    let replayed = [
        "lock_unlock",
        "leases_and_waiters",
        "expired_value",
        "string_codec_and_watchdog",
    ];
    assert_eq!(recorded, replayed);
}

#[test]
fn each_difference_is_documented() {
    let known = DIFFERENCES.iter().map(|it| it.0);
    crate::recorded::assert_documented("differences of the group lock", known);
}

struct Side {
    client: Client,
    owner: Owner,
    guards: Vec<(String, Guard)>,
}

async fn replay(name: &str) {
    let all: Json =
        serde_json::from_str(include_str!("../../golden/faster_multi_lock.json")).unwrap();
    let scenarios = all["scenarios"].as_array().unwrap();
    let scenario = scenarios
        .iter()
        .find(|it| it["scenario"] == name)
        .expect("recorded");
    let is_text = name.starts_with("string_codec");
    let test = Fixture::start().await;
    let mut sides = BTreeMap::new();
    for side in ["A", "B"] {
        let mut builder = Client::builder().url(test.server.url());
        if is_text {
            builder = builder.watchdog_lease(Duration::from_secs(6));
        }
        let client = builder.build().await.unwrap();
        let owner = Owner::new();
        let guards = Vec::new();
        sides.insert(
            side,
            Side {
                client,
                owner,
                guards,
            },
        );
    }
    let mut waiting: Option<(String, JoinHandle<Result<Option<Guard>>>)> = None;
    let messages = test.redis.messages("redisson_*").await;
    let commands = test.redis.monitor().await;
    let mut wrong = Vec::new();
    let mut used = 0;
    for step in scenario["steps"].as_array().unwrap() {
        let number = step["step"].as_u64().unwrap();
        let call = step["call"].as_str().unwrap();
        let messages_before = messages.seen().len();
        if let Some(pause) = call.strip_prefix('(') {
            let seconds: f64 = pause.split(' ').next().unwrap().parse().unwrap();
            // The leases are as many times longer here, because a machine may be busy.
            let slower = if is_text { 6.0 } else { 12.0 };
            tokio::time::sleep(Duration::from_secs_f64(seconds * slower)).await;
        } else {
            let who = step["who"].as_str().unwrap().split(' ').next().unwrap();
            let (values, method) = call
                .strip_prefix("multi[")
                .unwrap()
                .split_once("].")
                .unwrap();
            let side = sides.get_mut(who).unwrap();
            let names = values.split(", ").map(|it| match is_text {
                true => Value::utf8(it),
                false => Value::kryo5(it).unwrap(),
            });
            let lock = side.client.group_lock(GROUP, names);
            if step["waits"] == true {
                let request = lock
                    .try_lock()
                    .owner(&side.owner)
                    .wait(LONG)
                    .lease(secs(54));
                waiting = Some((values.to_owned(), tokio::spawn(request.into_future())));
                tokio::time::sleep(ms(300)).await;
                assert!(!waiting.as_ref().unwrap().1.is_finished());
            } else {
                let answer = perform(side, &lock, values, method).await;
                compare(
                    name,
                    number,
                    "answer",
                    &recorded(step),
                    &answer,
                    &mut wrong,
                    &mut used,
                );
            }
            if !step["came_back"].is_null() {
                let (values, task) = waiting.take().expect("it waits");
                let guard = task
                    .await
                    .unwrap()
                    .unwrap()
                    .expect("it comes back with the lock");
                sides.get_mut("B").unwrap().guards.push((values, guard));
            }
        }
        let published = || {
            let seen = messages.seen().split_off(messages_before);
            let seen = seen
                .iter()
                .map(|(channel, text)| format!("{channel} <- {text}"));
            seen.collect::<Vec<_>>().join(", ")
        };
        let expected = listed(name, number, "published")
            .map_or_else(|| published_by_java(step), |it| it.4.to_owned());
        // An unexpected message comes in this time.
        tokio::time::sleep(ms(60)).await;
        let began = std::time::Instant::now();
        while published() != expected && began.elapsed() < SOON {
            tokio::time::sleep(ms(20)).await;
        }
        let seen = published();
        compare(
            name,
            number,
            "published",
            &published_by_java(step),
            &seen,
            &mut wrong,
            &mut used,
        );
        if number == 1 {
            let clock = |is_clients: bool| if is_clients { "the client's" } else { SERVERS };
            // Redisson's arguments contain a time.
            let commands_of_java = step["commands"].to_string();
            let seen = commands.seen();
            let asks = |line: &String| line.ends_with("lua] \"time\"");
            let recorded = clock(commands_of_java.contains("<now+"));
            let seen = clock(!seen.iter().any(asks));
            compare(name, number, "clock", recorded, seen, &mut wrong, &mut used);
        }
        let expected = owners(&step["keys"][0]["content"]);
        let hash = test.redis.hash(GROUP).await;
        let ids: Vec<String> = sides
            .values()
            .map(|side| side.client.id().to_string())
            .collect();
        let hash = hash.into_iter().map(|(field, value)| {
            let renamed = |text: String| {
                let text =
                    text.replace(&format!("{}:{}", ids[0], sides["A"].owner), "<uuid1>:<t1>");
                text.replace(&format!("{}:{}", ids[1], sides["B"].owner), "<uuid2>:<t2>")
            };
            (
                without_number(&renamed(field)),
                without_number(&renamed(value)),
            )
        });
        let seen = owners(&Json::Object(
            hash.map(|(field, value)| (field, value.into())).collect(),
        ));
        compare(
            name, number, "keys", &expected, &seen, &mut wrong, &mut used,
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed = DIFFERENCES.iter().filter(|it| it.1 == name).count();
    assert_eq!(used, listed, "each difference occurs");
}

async fn perform(side: &mut Side, lock: &Lock, values: &str, method: &str) -> String {
    let owner = &side.owner;
    let guard = match method {
        "lock()" => lock.lock().owner(owner).await.map(Some),
        "lock(9, SECONDS)" => lock.lock().owner(owner).lease(secs(54)).await.map(Some),
        "lock(300, MILLISECONDS)" => lock.lock().owner(owner).lease(ms(3_600)).await.map(Some),
        "tryLock()" => lock.try_lock().owner(owner).await,
        "tryLock(0, 5, SECONDS)" => lock.try_lock().owner(owner).lease(secs(30)).await,
        "unlock()" => {
            let place = side.guards.iter().rposition(|(of, _)| of == values);
            let Some(place) = place else {
                return "throws".to_owned();
            };
            return match side.guards.remove(place).1.unlock().await {
                Ok(_) => "void".to_owned(),
                Err(_) => "throws".to_owned(),
            };
        }
        "isLocked()" => return lock.is_locked().await.unwrap().to_string(),
        "isHeldByCurrentThread()" => return lock.is_held_by(owner).await.unwrap().to_string(),
        "getHoldCount()" => return lock.hold_count().await.unwrap().to_string(),
        "forceUnlock()" => return lock.force_unlock().await.unwrap().to_string(),
        other => panic!("{other} is not known"),
    };
    match guard.unwrap() {
        Some(guard) => {
            side.guards.push((values.to_owned(), guard));
            if method.starts_with("lock") {
                "void"
            } else {
                "true"
            }
            .to_owned()
        }
        None => "false".to_owned(),
    }
}

fn recorded(step: &Json) -> String {
    match (&step["returns"], &step["throws"]) {
        (Json::Null, _) => "throws".to_owned(),
        (Json::String(text), _) => text.clone(),
        (other, _) => other.to_string(),
    }
}

/// The values of a hash, each with its owner and count, and the fields of expired holds.
fn owners(content: &Json) -> String {
    let Some(content) = content.as_object() else {
        return String::new();
    };
    let mut all: Vec<String> = Vec::new();
    for (field, value) in content {
        let value = value.as_str().unwrap();
        match field.split_once(':') {
            None => {
                let count = &content[&format!("{field}:{value}:lock_count")];
                assert!(content.contains_key(&format!("{field}:{value}:expire_time")));
                let who = if value.contains("uuid1") { "A" } else { "B" };
                all.push(format!("{field}={who}:{}", count.as_str().unwrap()));
            }
            Some((of, rest)) => {
                let owner = rest.rsplit_once(':').unwrap().0;
                if content.get(of).and_then(Json::as_str) != Some(owner) {
                    all.push(format!("left {of}"));
                }
            }
        }
    }
    all.sort();
    all.dedup();
    all.join(" ")
}

/// The messages of a recorded step.
fn published_by_java(step: &Json) -> String {
    let messages = step["published"].as_array().into_iter().flatten();
    let text = |it: &Json| it.as_str().unwrap().to_owned();
    let messages = messages.map(|it| format!("{} <- {}", text(&it[0]), text(&it[1])));
    messages.collect::<Vec<_>>().join(", ")
}

type Difference = (&'static str, &'static str, u64, &'static str, &'static str);

fn listed(scenario: &str, step: u64, aspect: &str) -> Option<&'static Difference> {
    let mut all = DIFFERENCES.iter();
    all.find(|it| (it.1, it.2, it.3) == (scenario, step, aspect))
}

/// Our fields have a number after the owner.
fn without_number(text: &str) -> String {
    let Some((before, rest)) = text.split_once(">.") else {
        return text.to_owned();
    };
    let rest = rest.trim_start_matches(|it: char| it.is_ascii_digit());
    format!("{before}>{rest}")
}

fn compare(
    scenario: &str,
    step: u64,
    aspect: &str,
    recorded: &str,
    seen: &str,
    wrong: &mut Vec<String>,
    used: &mut usize,
) {
    let listed = listed(scenario, step, aspect);
    let expected = listed.map_or(recorded, |it| it.4);
    *used += usize::from(listed.is_some());
    if listed.is_some_and(|it| it.4 == recorded) {
        wrong.push(format!("step {step} {aspect}: no difference"));
    }
    if expected != seen {
        wrong.push(format!(
            "step {step} {aspect}: recorded {recorded:?}, seen {seen:?}"
        ));
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const SERVERS: &str = "the server's";
