//! The process behind the Redisson clients: how it is built, started and ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use tempfile::TempDir;

use super::driver::{Driver, locked};
use crate::support::binary::root;
use crate::support::clock;

/// A JVM that runs the driver; killed and reaped when dropped, it and no other.
///
/// It also ends when this process does, in whatever way: the kernel closes the pipe to the JVM, and
/// the driver ends with its input.
pub(super) struct Jvm {
    process: Mutex<Child>,
    pid: u32,
    pub(super) driver: Arc<Driver>,
    /// The folder of a JVM with its own clock.
    _folder: Option<TempDir>,
}

impl Jvm {
    /// Builds the driver if need be. The JVM may still be on its way when this returns.
    pub(super) fn start() -> Self {
        Self::of(Command::new(java()), None)
    }

    /// One with a wall clock this number of seconds ahead of the machine's; behind it if the number is negative.
    pub(super) fn start_with_clock(seconds: i64) -> Self {
        let folder = TempDir::new().expect("a folder can be made");
        let mut java = Command::new(java());
        java.envs(clock::install(folder.path()));
        clock::set(folder.path(), seconds);
        Self::of(java, Some(folder))
    }

    fn of(mut java: Command, folder: Option<TempDir>) -> Self {
        let mut process = java
            .current_dir(built())
            // Else the JVM counts in a file of /tmp, and all its threads wait while that page is written to the disk.
            .arg("-XX:+PerfDisableSharedMem")
            .arg("@java.args")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("java is installed");
        Self {
            driver: Driver::of(&mut process),
            pid: process.id(),
            process: Mutex::new(process),
            _folder: folder,
        }
    }

    /// The JVM for all tests of this process that need none of their own. Started by the first of
    /// them, and again by the next one after it crashed: the tests that it crashed with have failed.
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Option<Arc<Jvm>>> = Mutex::new(None);
        let mut shared = locked(&SHARED);
        match &*shared {
            Some(jvm) if jvm.is_running() => Arc::clone(jvm),
            _ => Arc::clone(shared.insert(Arc::new(Self::start()))),
        }
    }

    fn is_running(&self) -> bool {
        // The end of a process is known before its output has been read to the end.
        self.driver.is_open() && matches!(locked(&self.process).try_wait(), Ok(None))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGKILL. Returns when the process is gone.
    pub(super) fn kill(&self) {
        let mut process = locked(&self.process);
        // Either fails only for a child that is already reaped.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Ends the driver's input and waits for its end.
    pub(super) fn end(&self) -> ExitStatus {
        self.driver.end_input();
        locked(&self.process).wait().expect("the JVM is our child")
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Builds the driver with the Redisson that `LOCKDOG_TEST_REDISSON` names, once in this process, and
/// names its folder.
fn built() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let root = root();
    let version = std::env::var("LOCKDOG_TEST_REDISSON");
    let version = version.unwrap_or_else(|_| "4.7.0".to_owned());
    BUILT.get_or_init(|| {
        let build = Command::new(root.join("tests/redisson/build"))
            .arg(&version)
            .output()
            .expect("tests/redisson/build can be run");
        assert!(
            build.status.success(),
            "tests/redisson/build failed:\n{}",
            String::from_utf8_lossy(&build.stderr)
        );
    });
    root.join("target/redisson").join(version)
}

/// The java that Maven uses, too.
fn java() -> PathBuf {
    std::env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| Path::new(&home).join("bin/java"),
    )
}
