//! The demo succeeds, and fails if a step does not behave as expected.

use std::process::Command;

use super::program::{self, Program};
use crate::support::Binary;

#[tokio::test]
async fn the_demo_prints_each_act_and_ends() {
    let output = Program::run("demo", &[]).await;
    let is_printed = |wanted: &str| output.iter().any(|line| line.contains(wanted));
    for wanted in [
        "acquired it again, in a nested call of the same task",
        "redis   | redis-server, version ",
        ":th1.1: 2 }",
        "ms again: renewed",
        "second  | waits",
        "1 subscriber of redisson_lock__channel:{demo:report}",
        "ms after the unlock began",
        "a client deleted the key demo:report",
        "second  | lost it: ",
        "second  | ended with exit status: 0",
        "no key, no channel, no connection but this one",
        "All steps behaved as expected.",
    ] {
        assert!(
            is_printed(wanted),
            "{wanted:?} was not printed:\n{output:#?}"
        );
    }
    let colours = output.iter().any(|line| line.contains('\x1b'));
    assert!(!colours, "a pipe is no terminal:\n{output:#?}");
}

#[test]
fn the_demo_leaves_no_server_and_no_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let demo = Command::new(program::path("demo"))
        .env("TMPDIR", folder.path())
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{output}");
    program::assert_ended_in(folder.path());
    let left = std::fs::read_dir(folder.path()).expect("it is still there");
    assert_eq!(left.count(), 0, "its data is still there");
}

#[test]
fn without_redis_server_the_demo_uses_the_test_server() {
    let server = Binary::Embedded.path();
    let demo = program::path("demo");
    assert_eq!(server.parent(), demo.parent());
    let demo = Command::new(demo)
        .env("PATH", "/nowhere")
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{output}");
    let named = "redis   | lockdog-test (no redis-server here), version 7.0.15, at redis://";
    assert!(output.contains(named), "{output}");
    assert!(
        output.contains("All steps behaved as expected."),
        "{output}"
    );
}

#[test]
fn the_demo_fails_without_a_server_to_start() {
    let alone = program::alone("demo");
    let demo = Command::new(alone.path())
        .env("PATH", "/nowhere")
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&demo.stdout);
    assert_eq!(demo.status.code(), Some(1), "{output}");
    assert!(output.contains("redis-server does not start"), "{output}");
}
