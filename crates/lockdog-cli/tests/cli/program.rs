//! `lockdog` as a process.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::prelude::SOON;
use crate::support::{Redis, RedisServer, eventually};

/// The program under test.
pub(crate) const LOCKDOG: &str = env!("CARGO_BIN_EXE_lockdog");

/// A hold of Redisson.
pub(crate) const FIELD: &str = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d:57";

/// Redisson holds the plain lock `orders` from now on.
pub(crate) async fn hold_orders(server: &RedisServer) -> Redis {
    let redis = server.redis().await;
    redis.cmd(&["HSET", "orders", FIELD, "1"]).await;
    redis
}

/// A start of `lockdog` with these arguments, on this server.
pub(crate) fn lockdog(server: &RedisServer, args: &[&str]) -> Invocation {
    lockdog_at(&server.url(), args)
}

/// The servers of a quorum.
pub(crate) async fn three_servers() -> [RedisServer; 3] {
    [
        RedisServer::start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ]
}

/// The URLs of a quorum, as `LOCKDOG_URL` has them.
pub(crate) fn urls(servers: &[RedisServer]) -> String {
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    urls.join(" ")
}

/// As `lockdog`, with this LOCKDOG_URL.
pub(crate) fn lockdog_at(url: &str, args: &[&str]) -> Invocation {
    // The process that started the tests may ignore signals that the program under test must receive.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(LOCKDOG).args(args);
    for name in [
        "LOCKDOG_CONFIG",
        "LOCKDOG_PASSWORD",
        "LOCKDOG_USER",
        "LOCKDOG_HOLDS",
        "NO_COLOR",
        "CLICOLOR_FORCE",
    ] {
        command.env_remove(name);
    }
    command
        .env("LOCKDOG_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Invocation { command }
}

/// Runs it to its end. On a busy machine the last attempt of a wait may have no answer; then it runs again.
pub(crate) async fn end_of_wait(run: impl Fn() -> Invocation) -> Ended {
    for _ in 0..5 {
        let ended = run().end().await;
        if ended.status.code() != Some(125) {
            return ended;
        }
    }
    run().end().await
}

#[must_use = "it does nothing itself, use `.start()` or `.end()`"]
pub(crate) struct Invocation {
    command: Command,
}

impl Invocation {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What it reads on its standard input.
    pub(crate) fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.command.stdin(from);
        self
    }

    /// Where it writes its data, in place of the test.
    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let child = self.command.spawn().expect("env is installed");
        Running { child }
    }

    /// Runs it to its end.
    pub(crate) async fn end(self) -> Ended {
        self.start().end().await
    }
}

/// A started `lockdog`; killed when dropped, and its command with it.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for yet")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    pub(crate) async fn end(self) -> Ended {
        let output = tokio::time::timeout(PATIENCE, self.child.wait_with_output());
        let output = output
            .await
            .expect("it does not end")
            .expect("it is our child");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes text");
        Ended {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Fails unless it ended with this exit code.
    #[track_caller]
    pub(crate) fn code(self, expected: i32) -> Self {
        assert_eq!(self.status.code(), Some(expected), "{self:#?}");
        self
    }

    /// Fails unless stderr has this text and is one line.
    #[track_caller]
    pub(crate) fn complains(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "{what:?} is not in {self:#?}");
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{self:#?}");
        self
    }

    /// The only line of its output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout);
        value.unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Its output, an object a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

/// Signals a process that a test started.
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("it is a pid")).expect("it is not zero");
    kill_process(pid, signal).expect("it runs");
}

/// Whether the process runs: one that waits to be reaped does not.
pub(crate) fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The letter of the kernel for what a process does. `None` if there is no such process.
pub(crate) fn state(pid: u32) -> Option<char> {
    stat_word(pid, 0)?.chars().next()
}

/// The process that started it, or that took it over. `None` if there is no such process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat_word(pid, 1)?.parse().ok()
}

/// The group of a process. `None` if there is no such process.
pub(crate) fn group(pid: u32) -> Option<u32> {
    stat_word(pid, 2)?.parse().ok()
}

/// What the kernel says of a process, from the first word after its name.
fn stat_word(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number).map(str::to_owned)
}

/// A folder in which commands write files for a test. It is removed when the value is dropped.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("lockdog-cli-").expect("a temporary folder can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a command has written a whole line, and returns all of them.
    pub(crate) async fn lines(&self, name: &str) -> Vec<String> {
        let what = format!("a line is in {name}");
        eventually(SOON, &what, async || self.text(name).ends_with('\n')).await;
        self.text(name).lines().map(str::to_owned).collect()
    }

    /// The loss in the only line of the file `report`, for a run with this outcome.
    #[track_caller]
    pub(crate) fn reported(&self, outcome: &str) -> Value {
        let line: Value = serde_json::from_str(&self.text("report")).expect("it is one line");
        assert_eq!(line["outcome"], outcome, "{line}");
        line["lost"].clone()
    }

    /// The number that a command wrote.
    pub(crate) async fn number(&self, name: &str) -> u32 {
        let lines = self.lines(name).await;
        lines[0].trim().parse().expect("it is a number")
    }
}

/// A hang is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
