//! Tests that need a process of their own run themselves again in one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::process;

/// The arguments that the test was given by its parent process; `None` in the test runner.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// Sends a word from a child to its parent.
pub(crate) fn send(word: &str) {
    println!("\n{MARK}{word}");
}

/// Waits for the parent's go-ahead, with the whole runtime frozen.
pub(crate) fn await_go_ahead() {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("the parent keeps the pipe open");
}

/// True in a process that runs nothing but this test; false, after that one has succeeded, in the
/// test runner.
pub(crate) fn is_alone(test: &str) -> bool {
    if argument().is_some() {
        return true;
    }
    let output = command(test, "alone")
        .output()
        .expect("the test can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "no such test: {test}\n{text}");
    println!("{text}");
    false
}

/// A copy of this process that runs one test only; killed when dropped.
pub(crate) struct Copy {
    child: Option<Child>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Copy {
    pub(crate) fn run(test: &str, argument: &str) -> Self {
        let mut child = command(test, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be started again");
        Self {
            input: child.stdin.take().expect("it is piped"),
            output: BufReader::new(child.stdout.take().expect("it is piped")),
            child: Some(child),
        }
    }

    /// The next word of the child. Blocks the thread.
    pub(crate) fn receive(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("it writes text");
            assert!(read > 0, "it ended without output: {all}");
            if let Some(word) = line.strip_prefix(MARK) {
                return word.trim_end().to_owned();
            }
            all += &line;
        }
    }

    pub(crate) fn go_ahead(&mut self) {
        self.input.write_all(b"go\n").expect("it is there");
    }

    pub(crate) fn pause(&self) {
        process::pause(self.child());
    }

    pub(crate) fn resume(&self) {
        process::resume(self.child());
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(mut self) {
        process::end(self.child.take().expect("it is not dropped"));
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("it is not dropped")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            process::end(child);
        }
    }
}

fn command(test: &str, argument: &str) -> Command {
    let program = std::env::current_exe().expect("the test runner has a path");
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture"])
        .env(ARGUMENT, argument);
    command
}

const ARGUMENT: &str = "LOCKDOG_TEST_CHILD";
const MARK: &str = "child says: ";
