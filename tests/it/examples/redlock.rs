//! The example with five servers succeeds, and fails if a step does not behave as expected.

use std::process::Command;

use super::program::{self, Program};

#[tokio::test]
async fn a_lock_on_five_servers_survives_two_failures_and_is_lost_with_the_third() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().to_str().expect("it has a plain name");
    let program = Program::start_with("redlock", &[], &[("TMPDIR", path)]);
    let (status, output) = program.end().await;
    assert!(status.success(), "{status}:\n{output:#?}");
    let mut lines = output.iter();
    for wanted in [
        "acquired on all five; margin 2",
        "4 and 5 are killed",
        "worked on for more than a lease",
        "report  | 4: unreachable",
        "acquired on 1, 2 and 3; margin 0",
        "second  | had waited; acquired",
        "the dead are not waited for",
        "3 is frozen",
        "notified that the lock is lost: its deadline passed",
        "first   | tried it: no quorum",
        "second  | tried it: no quorum",
        "3 goes on",
        "first   | acquired on 1, 2 and 3",
        "report  | 5: quarantined",
        "acquired on all five again",
        "no key and no channel is left",
        "All steps behaved as expected.",
    ] {
        let is_printed = lines.any(|line| line.contains(wanted));
        assert!(
            is_printed,
            "{wanted:?} was not printed, or out of order:\n{output:#?}"
        );
    }
    let left = std::fs::read_dir(path).expect("it is still there");
    assert_eq!(left.count(), 0, "the servers' data is still there");
    program::assert_ended_in(folder.path());
}

#[test]
fn the_example_fails_without_a_server_to_start() {
    let alone = program::alone("redlock");
    let program = Command::new(alone.path())
        .env("PATH", "/nowhere")
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&program.stdout);
    assert_eq!(program.status.code(), Some(1), "{output}");
    assert!(output.contains("redis-server does not start"), "{output}");
}
