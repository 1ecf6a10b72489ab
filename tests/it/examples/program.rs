//! An example as a process, and its output.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Dropping the value kills the process.
pub(super) struct Program {
    name: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    output: Vec<String>,
}

impl Program {
    pub(super) fn start(name: &str, args: &[&str]) -> Self {
        Self::start_with(name, args, &[])
    }

    /// With further environment variables.
    pub(super) fn start_with(name: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(path(name))
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let stdout = child.stdout.take().expect("it was asked for");
        Self {
            name: name.to_owned(),
            child,
            lines: BufReader::new(stdout).lines(),
            output: Vec::new(),
        }
    }

    /// Runs it to its successful end, and returns its lines.
    pub(super) async fn run(name: &str, args: &[&str]) -> Vec<String> {
        let program = Self::start(name, args);
        let (status, output) = program.end().await;
        assert!(status.success(), "{name} ended with {status}:\n{output:#?}");
        output
    }

    /// Reads up to the line that begins with this, and returns the rest of that line.
    pub(super) async fn says(&mut self, wanted: &str) -> String {
        while let Some(line) = self.line().await {
            if let Some(rest) = line.strip_prefix(wanted) {
                return rest.to_owned();
            }
        }
        panic!(
            "{} did not print {wanted:?}, but: {:#?}",
            self.name, self.output
        );
    }

    pub(super) fn terminate(&self) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32));
        let pid = pid.expect("it was not waited for yet");
        kill_process(pid, Signal::TERM).expect("our own child can be signalled");
    }

    pub(super) async fn kill(mut self) {
        self.child
            .kill()
            .await
            .expect("our own child can be killed");
    }

    /// Waits for its end, and returns all lines.
    pub(super) async fn end(mut self) -> (ExitStatus, Vec<String>) {
        while self.line().await.is_some() {}
        let status = self.child.wait().await.expect("it is our child");
        (status, self.output)
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .unwrap_or_else(|_| panic!("{} is silent after {:#?}", self.name, self.output))
            .expect("its output is text");
        self.output.extend(line.clone());
        assert!(
            self.output.len() <= MOST_LINES,
            "{} does not stop: {:?}",
            self.name,
            self.output.last()
        );
        line
    }
}

/// `cargo test` builds examples next to the folder of the test binary.
pub(super) fn path(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test has a program");
    let built = own
        .ancestors()
        .nth(2)
        .expect("it is in target/<profile>/deps");
    let program = built.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is missing; `cargo build --examples` makes it",
        program.display()
    );
    program
}

/// An example in a folder of its own, which is removed with this value.
pub(super) struct Alone {
    folder: TempDir,
    name: String,
}

impl Alone {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

pub(super) fn alone(name: &str) -> Alone {
    let example = path(name);
    let examples = example.parent().expect("it is in a folder");
    let alone = Alone {
        folder: TempDir::new_in(examples).expect("a temporary folder can be made"),
        name: name.to_owned(),
    };
    // A link, because a process that another test starts may still use a file that was just written.
    std::fs::hard_link(example, alone.path()).expect("it can be linked to");
    alone
}

/// Checks that no server runs whose data were in this folder. It works in its folder, also if that was removed.
/// Another process may listen at its port by now.
pub(super) fn assert_ended_in(folder: &Path) {
    let folder = folder.canonicalize().expect("it is still there");
    for process in std::fs::read_dir("/proc").expect("this is Linux") {
        let place = process.expect("it can be listed").path().join("cwd");
        let is_there = std::fs::read_link(&place).is_ok_and(|it| it.starts_with(&folder));
        assert!(!is_there, "{} is still there", place.display());
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that prints without an end would use up the memory.
const MOST_LINES: usize = 10_000;
