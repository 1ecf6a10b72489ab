//! The processes of servers: where they write, and signals to them with the proof that they arrived.

use std::fs;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A folder for what a server writes. It is in memory where the system has that: a sentinel, and a node of a
/// cluster, waits until each change of its configuration is on the disk. A busy disk stops it for seconds, and a
/// sentinel that was frozen for two seconds does nothing in the next thirty (`+tilt` in its log).
pub(crate) fn folder() -> TempDir {
    let in_memory = TempDir::with_prefix_in("lockdog-", "/dev/shm");
    let made = in_memory.or_else(|_| TempDir::with_prefix("lockdog-"));
    made.expect("a temporary folder can be made")
}

/// The process of a server, if it runs. It is killed when the value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Process(Mutex<Option<Child>>);

impl Process {
    pub(crate) fn set(&self, child: Child) {
        *self.0.lock().unwrap() = Some(child);
    }

    pub(crate) fn is_running(&self) -> bool {
        let mut child = self.0.lock().unwrap();
        child
            .as_mut()
            .is_some_and(|child| child.try_wait().expect("it is our child").is_none())
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&Child) -> T) -> T {
        let child = self.0.lock().unwrap();
        act(child.as_ref().expect("the server was killed"))
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&self) {
        let child = self.0.lock().unwrap().take();
        if let Some(child) = child {
            end(child);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that failed while it held the mutex must still not leave a process behind.
        let child = self.0.get_mut().unwrap_or_else(|lost| lost.into_inner());
        if let Some(child) = child.take() {
            end(child);
        }
    }
}

/// Stops the process (SIGSTOP), and returns when the kernel reports that it is stopped.
pub(crate) fn pause(child: &Child) {
    signal(child, Signal::STOP);
    await_state(child.id(), "stop", |state| state == 'T');
}

pub(crate) fn resume(child: &Child) {
    signal(child, Signal::CONT);
    await_state(child.id(), "continue", |state| state != 'T');
}

/// Ends the process as a crash does, and leaves no zombie.
pub(crate) fn end(mut child: Child) {
    // KILL ends a stopped process too. CONT is not sent first, because a resumed server would run the
    // commands in its sockets before it dies.
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
    let deadline = Instant::now() + Duration::from_secs(30);
    while !wanted(process_state(pid)) {
        assert!(
            Instant::now() < deadline,
            "process {pid} does not {what}: it is in state {}",
            process_state(pid)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
