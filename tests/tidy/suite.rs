//! What the runner of the tests says of them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::root;

/// A file that starts servers of its own would run on one of those, whatever the run asked for.
#[test]
fn tests_of_every_deployment_start_no_server_of_their_own() {
    let script = fs::read_to_string(root().join("tests/run")).expect("it is there");
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("one_server=("));
    let words = line
        .expect("it has the list")
        .trim_end_matches(')')
        .split(' ');
    let left_out: BTreeSet<String> = words
        .filter_map(|word| word.strip_prefix("lock::"))
        .map(str::to_owned)
        .collect();
    let mut own = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/it/lock")).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let text = fs::read_to_string(&path).expect("it is text");
        if text.contains("RedisServer") || text.contains("Proxy::start") {
            let name = path.file_stem().expect("it has a name");
            own.insert(name.to_string_lossy().into_owned());
        }
    }
    assert_eq!(own, left_out);
}

/// A recording that no test reads shows nothing. Each replay has to account for every step of its files.
#[test]
fn each_recording_of_redisson_is_replayed() {
    let mut replayed = BTreeSet::new();
    for file in crate::files("tests/it", "rs") {
        let text = fs::read_to_string(&file).expect("it is text");
        let mentions = text.split("/golden/").skip(1);
        replayed.extend(mentions.filter_map(|rest| Some(rest.split_once(".json\"")?.0.to_owned())));
    }
    let name = |file: &PathBuf| {
        file.file_stem()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned()
    };
    let recorded: BTreeSet<String> = crate::files("tests/golden", "json")
        .iter()
        .map(name)
        .collect();
    assert_eq!(recorded, replayed);
}

#[test]
fn a_program_that_does_not_end_leaves_no_server() {
    // One that is stopped does not end by TERM alone.
    let hangs = "sleep 1200 & kill -STOP $! && echo left && sleep 1200";
    // On a busy machine it may take longer to begin.
    let tries = ["1s", "20s", "300s"].into_iter();
    let ended = tries
        .map(|time| limited(time, hangs))
        .find(|ended| !ended.stdout.is_empty());
    let ended = ended.expect("it begins");
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
}

#[test]
fn a_program_that_crashes_leaves_no_server() {
    let ended = limited("1200s", "sleep 1200 & echo left; kill -ABRT $$");
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    assert_eq!(ended.stdout, b"left\n");
}

/// What cargo sees of a program whose tests failed.
#[test]
fn a_program_that_ends_in_time_keeps_its_status() {
    for status in [0, 3, 101] {
        let ended = limited("600s", &format!("exit {status}"));
        assert_eq!(ended.status.code(), Some(status), "{ended:?}");
    }
}

/// A shell in place of a test program, as `tests/run` lets cargo run one. A process that it left would keep the output
/// open.
fn limited(time: &str, script: &str) -> Output {
    let began = Instant::now();
    let ended = Command::new(root().join("tests/limited"))
        .args([time, "sh", "-c", script])
        .output()
        .expect("bash is installed");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1000), "{script} took {took:?}");
    ended
}
