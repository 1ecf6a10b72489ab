//! Compares the scripts of the simulated Redisson with recordings of a real one: each recorded call of
//! a script calls the same commands, and has the same reply.

use std::collections::BTreeMap;

use redis::Value;
use serde_json::Value as Json;

use super::{fair, group, latch, permits, plain, read_write, semaphore};
use crate::simulation::redis::Redis;

/// The beginning of the digest of each script, and its counterpart here.
const SCRIPTS: &[(&str, &str)] = &[
    ("149c5a8b", plain::ACQUIRE),
    ("68664592", plain::UNLOCK),
    ("3daa7be6", plain::ACQUIRE_NON_REENTRANT),
    ("46b5551b", plain::ACQUIRE_FENCED),
    ("dad0f8d6", plain::ACQUIRE),
    ("73ac2729", plain::UNLOCK_SPIN),
    ("8f6ed299", fair::ACQUIRE),
    ("d20501c2", fair::TRY),
    ("d1ddef65", fair::GIVE_UP),
    ("367f80bd", fair::UNLOCK),
    ("6a3d3157", fair::RENEW),
    ("95553a6f", read_write::ACQUIRE_READ),
    ("6306ba3b", read_write::ACQUIRE_WRITE),
    ("6e1b10e1", read_write::UNLOCK_READ),
    ("21f5fb0f", read_write::UNLOCK_WRITE),
    ("38d2b478", read_write::RENEW_READS),
    ("992c96b0", permits::ACQUIRE),
    ("4ce07945", permits::RELEASE),
    ("cf3ab77b", permits::RELEASE_ALL),
    ("c7dc9d18", semaphore::ACQUIRE),
    ("ae275824", semaphore::RELEASE),
    ("c87766d5", semaphore::DRAIN),
    ("2a52d54a", latch::SET),
    ("38060fab", latch::COUNT_DOWN),
    ("47aed1b8", latch::DELETE),
    ("eba4f75b", group::ACQUIRE),
    ("5088a04f", group::UNLOCK),
    ("935362a3", group::RENEW),
];

const RECORDINGS: [&str; 13] = [
    include_str!("../../golden/rlock.json"),
    include_str!("../../golden/rlock_edges.json"),
    include_str!("../../golden/spin_lock.json"),
    include_str!("../../golden/fair_lock.json"),
    include_str!("../../golden/fair_lock_edges.json"),
    include_str!("../../golden/read_write_lock.json"),
    include_str!("../../golden/read_write_lock_edges.json"),
    include_str!("../../golden/permit_expirable_semaphore.json"),
    include_str!("../../golden/semaphore.json"),
    include_str!("../../golden/count_down_latch.json"),
    include_str!("../../golden/faster_multi_lock.json"),
    include_str!("../../golden/non_reentrant_lock.json"),
    include_str!("../../golden/fenced_lock.json"),
];

#[test]
fn each_script_makes_the_recorded_commands() {
    let mut redis = Redis::new();
    let mut compared: BTreeMap<&str, u32> = BTreeMap::new();
    for recording in RECORDINGS {
        let recording: Json = serde_json::from_str(recording).expect("a recording is JSON");
        for scenario in list(&recording, "scenarios") {
            if LEFT_OUT.iter().any(|it| scenario["scenario"] == *it) {
                continue;
            }
            redis.reset();
            redis.begin_at(EPOCH_MS);
            let mut now = 0;
            for step in list(scenario, "steps") {
                let Some(lasts) = lasts_ms(step) else {
                    // How long it lasted was not recorded, and what follows depends on it.
                    break;
                };
                if step["who"] == "redis-cli" && step["call"].is_array() {
                    redis.execute(&texts(&step["call"], now), now);
                }
                for command in list(step, "commands") {
                    let at = now + command["ms"].as_u64().unwrap_or(0);
                    if let Some(digest) = compare(&mut redis, command, at) {
                        *compared.entry(digest).or_default() += 1;
                    }
                }
                now += lasts;
            }
        }
    }
    let missing = SCRIPTS.iter().find(|it| !compared.contains_key(it.0));
    assert_eq!(missing, None, "{compared:?}");
    println!("{compared:?}");
}

/// Executes a recorded command as the simulated Redisson does, and compares. Returns the digest of the script,
/// if it has it.
fn compare(redis: &mut Redis, command: &Json, at: u64) -> Option<&'static str> {
    let words = texts(&command["cmd"], at);
    let run = |redis: &mut Redis, args: &[String]| redis.execute(args, at);
    if words.first().is_none_or(|name| name != "EVALSHA") {
        // Commands that are not about data are not simulated, and not needed.
        if !words.is_empty() {
            run(redis, &words);
        }
        return None;
    }
    let recorded = list(command, "in_script").iter().filter_map(Json::as_str);
    let recorded: Vec<Vec<String>> = recorded.map(split).collect();
    if is_unknown_script(&command["reply"]) {
        return None;
    }
    let script = SCRIPTS.iter().find(|(digest, _)| *digest == words[1]);
    let Some((digest, script)) = script else {
        // Its effect is reproduced.
        for call in recorded {
            let call: Vec<String> = call.iter().map(|it| filled(it, at)).collect();
            run(redis, &call);
        }
        return None;
    };
    let keys = texts(&command["KEYS"], at);
    let parts = [
        "EVAL".to_owned(),
        (*script).to_owned(),
        keys.len().to_string(),
    ];
    let args: Vec<String> = parts
        .into_iter()
        .chain(keys)
        .chain(texts(&command["ARGV"], at))
        .collect();
    redis.take_calls();
    let reply = run(redis, &args);
    let mut made = redis.take_calls();
    if keys_end_with_hidden_latch(command) {
        made.retain(|call| !call[1].starts_with(HIDDEN_LATCH));
    }
    let made = masked_all(made);
    assert_eq!(
        made,
        masked_all(recorded),
        "{args:?} -> {reply:?}\n{command:#}"
    );
    // A command that the test sent itself has no recorded reply.
    if let Some(theirs) = command.get("reply") {
        assert_eq!(shown(&reply), shown_json(theirs), "{args:?}\n{command:#}");
    }
    Some(digest)
}

/// The server did not have the script yet, and the client sent it again.
fn is_unknown_script(reply: &Json) -> bool {
    let error = reply["error"].as_str();
    error.is_some_and(|error| error.starts_with("NOSCRIPT"))
}

/// Whether the recording leaves out what an unlock does with its latch.
fn keys_end_with_hidden_latch(command: &Json) -> bool {
    let last = list(command, "KEYS").last().and_then(Json::as_str);
    last.is_some_and(|key| key.starts_with(HIDDEN_LATCH))
}

fn list<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    json[name].as_array().map_or(&[], Vec::as_slice)
}

fn texts(json: &Json, at: u64) -> Vec<String> {
    let items = json.as_array().map_or(&[][..], Vec::as_slice);
    let text = |item: &Json| match item {
        Json::String(text) => filled(text, at),
        other => other.to_string(),
    };
    items.iter().map(text).collect()
}

/// `<now+1.5 s>` becomes that moment.
fn filled(text: &str, at: u64) -> String {
    match seconds_of(text) {
        Some(seconds) => {
            let now = (EPOCH_MS + at) as f64;
            format!("{:.0}", now + seconds * 1_000.0)
        }
        None => text.to_owned(),
    }
}

fn seconds_of(text: &str) -> Option<f64> {
    let inside = text.strip_prefix("<now")?.strip_suffix(" s>")?;
    inside.parse().ok()
}

/// At a space that is not in `<now+1 s>` or the like.
fn split(call: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut inside = false;
    for letter in call.chars() {
        match letter {
            '<' => inside = true,
            '>' => inside = false,
            _ => {}
        }
        match (letter, words.last_mut()) {
            (' ', _) if !inside => words.push(String::new()),
            (_, Some(word)) => word.push(letter),
            _ => {}
        }
    }
    words
}

/// Times differ from run to run.
fn masked(word: &str) -> String {
    let number = word.trim_start_matches(['-', ':']);
    let is_long = number.len() > 2 && number.parse::<f64>().is_ok();
    if is_long || number.starts_with("<now") {
        return "a time".to_owned();
    }
    word.to_lowercase()
}

fn masked_all(calls: Vec<Vec<String>>) -> Vec<String> {
    let shown = |call: Vec<String>| {
        let words: Vec<String> = call.iter().map(|word| masked(word)).collect();
        words.join(" ")
    };
    let mut calls: Vec<String> = calls.into_iter().map(shown).collect();
    // A server returns the fields of a hash in any order.
    if calls.iter().any(|call| call.starts_with("hkeys")) {
        calls.sort();
    }
    calls
}

fn shown(reply: &Value) -> String {
    match reply {
        Value::Nil => "null".to_owned(),
        Value::Int(number) => masked(&number.to_string()),
        Value::BulkString(text) => masked(&String::from_utf8_lossy(text)),
        Value::Okay => "ok".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
        Value::ServerError(_) => "an error".to_owned(),
        other => format!("{other:?}"),
    }
}

fn shown_json(reply: &Json) -> String {
    match reply {
        Json::Null => "null".to_owned(),
        Json::String(text) => masked(text),
        Json::Array(items) => items.iter().map(shown_json).collect::<Vec<_>>().join(" "),
        Json::Object(_) => "an error".to_owned(),
        other => masked(&other.to_string()),
    }
}

/// How long a step lasted. `None`: until something happened.
fn lasts_ms(step: &Json) -> Option<u64> {
    let commands = list(step, "commands").iter();
    let last = commands.filter_map(|it| it["ms"].as_u64()).max();
    let took = step["took_ms"].as_u64();
    let call = step["call"].as_str().unwrap_or_default();
    let passes = call
        .strip_suffix(" s pass)")
        .and_then(|it| it.split(['(', ' ']).next_back());
    let passes = passes.and_then(|it| it.parse::<f64>().ok());
    let passes = passes.map(|seconds| (seconds * 1_000.0) as u64);
    let is_known = step["who"].is_string() || passes.is_some();
    is_known.then(|| last.max(took).max(passes).unwrap_or(0) + QUIET_MS)
}

/// In the first one a lease ends, and the recording has no time for that. The second one has names with
/// spaces, which are quoted. In the third one the key was deleted between the calls, and the recording
/// does not have that.
const LEFT_OUT: [&str; 3] = ["wait_without_lease", "names", "lease"];
const HIDDEN_LATCH: &str = "<latch";
const EPOCH_MS: u64 = 1_800_000_000_000;
/// After each call.
const QUIET_MS: u64 = 60;
