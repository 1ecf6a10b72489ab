//! Signals to our own children, and proof that they arrived.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Stops the process where it is, and returns once the kernel says that it stands.
pub(crate) fn pause(child: &Child) {
    signal(child, Signal::STOP);
    await_state(child.id(), "stand still", |state| state == 'T');
}

pub(crate) fn resume(child: &Child) {
    signal(child, Signal::CONT);
    await_state(child.id(), "go on", |state| state != 'T');
}

/// Ends the process as a crash does, and leaves no zombie.
pub(crate) fn end(mut child: Child) {
    // KILL ends a stopped process too. Without CONT before it, since that would let a paused server
    // run the commands that wait in its sockets before it dies.
    let _ = child.kill();
    let _ = child.wait();
}

/// The state letter of `/proc/<pid>/stat`, which follows the program's name in parentheses.
fn process_state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    let after_name = stat.rsplit(") ").next().expect("the name has an end");
    after_name.chars().next().expect("a state follows the name")
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("our own child can be signalled");
}

fn await_state(pid: u32, what: &str, wanted: impl Fn(char) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !wanted(process_state(pid)) {
        assert!(
            Instant::now() < deadline,
            "process {pid} does not {what}: it is in state {}",
            process_state(pid)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
