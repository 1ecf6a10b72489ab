//! The JVM behind a client: how it is built, started, spoken to and ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

/// The child process; killed and reaped when dropped, it and no other.
pub(crate) struct Jvm(Child);

impl Jvm {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for an end of its own accord.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.0.wait().expect("the JVM is our child")
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // Either fails only for a child that is already reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The pipes to the driver.
pub(crate) struct Driver {
    stdin: Mutex<ChildStdin>,
    calls: Mutex<Calls>,
}

enum Calls {
    /// The JVM lives. Ends when its stdout does, with `Over`.
    Open {
        last_id: u64,
        waiting: HashMap<u64, oneshot::Sender<Value>>,
    },
    /// The JVM is gone; its stderr, and whatever else it said, tells why.
    Over { last_words: String },
}

impl Driver {
    /// Starts a call; without an answer, [`Driver::epitaph`] says why.
    pub(crate) fn send(&self, mut call: Value) -> oneshot::Receiver<Value> {
        let (sender, answer) = oneshot::channel();
        // Held over both steps, so that ids go down the pipe in order.
        let mut stdin = locked(&self.stdin);
        match &mut *locked(&self.calls) {
            Calls::Open { last_id, waiting } => {
                *last_id += 1;
                waiting.insert(*last_id, sender);
                call["id"] = (*last_id).into();
            }
            // The dropped sender says it to whoever waits for the answer.
            Calls::Over { .. } => return answer,
        }
        // A pipe that breaks means that the JVM dies, which ends the wait for the answer as well.
        let _ = stdin.write_all(format!("{call}\n").as_bytes());
        answer
    }

    /// Hands answers out until the JVM is gone, the first line to `ready`. Returns what was no answer:
    /// a JVM that crashes says so on stdout.
    fn receive(&self, stdout: ChildStdout, ready: &mpsc::Sender<Value>) -> String {
        let mut strays = String::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(answer) = serde_json::from_str::<Value>(&line) else {
                strays += &line;
                strays.push('\n');
                continue;
            };
            let Some(id) = answer["id"].as_u64() else {
                let _ = ready.send(answer);
                continue;
            };
            if let Calls::Open { waiting, .. } = &mut *locked(&self.calls)
                && let Some(caller) = waiting.remove(&id)
            {
                // A caller that no longer cares is no error.
                let _ = caller.send(answer);
            }
        }
        strays
    }

    pub(crate) fn epitaph(&self) -> String {
        match &*locked(&self.calls) {
            Calls::Open { .. } => "the driver answers no more".to_owned(),
            Calls::Over { last_words } => format!("the driver is gone; it said:\n{last_words}"),
        }
    }
}

/// Starts a JVM and waits until its clients are connected, whose uuids come last.
///
/// # Panics
/// With everything the JVM said, if it is not ready within 60 s.
pub(crate) fn launch(settings: &Value) -> (Jvm, Arc<Driver>, Vec<String>) {
    let mut child = Command::new(java())
        // Starting fast matters more here than running fast.
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"])
        .arg("-cp")
        .arg(class_path())
        .arg("lockdog.redisson.Driver")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("java is installed");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let mut stderr = child.stderr.take().expect("stderr is a pipe");
    let jvm = Jvm(child);

    // A broken pipe shows as a missing ready line, with the reason.
    let _ = writeln!(stdin, "{settings}");
    let driver = Arc::new(Driver {
        stdin: Mutex::new(stdin),
        calls: Mutex::new(Calls::Open {
            last_id: 0,
            waiting: HashMap::new(),
        }),
    });
    let logging = thread::spawn(move || {
        let mut log = Vec::new();
        let _ = stderr.read_to_end(&mut log);
        String::from_utf8_lossy(&log).into_owned()
    });
    let (ready, is_ready) = mpsc::channel();
    let receiving = thread::spawn({
        let driver = Arc::clone(&driver);
        move || {
            let strays = driver.receive(stdout, &ready);
            // The whole log first, so that whoever finds the driver gone can read why.
            let log = logging.join().unwrap_or_default();
            *locked(&driver.calls) = Calls::Over {
                last_words: strays + &log,
            };
        }
    });

    match is_ready.recv_timeout(READY_WITHIN) {
        Ok(ready) => {
            let uuids = ready["uuids"].as_array().expect("the clients' uuids");
            let text = |uuid: &Value| uuid.as_str().expect("a uuid").to_owned();
            (jvm, driver, uuids.iter().map(text).collect())
        }
        Err(_) => {
            drop(jvm);
            let _ = receiving.join();
            panic!("the driver did not become ready: {}", driver.epitaph());
        }
    }
}

/// Builds the driver, once in this process, and names its classes.
fn class_path() -> OsString {
    static BUILT: OnceLock<()> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    BUILT.get_or_init(|| {
        let build = Command::new(root.join("tests/redisson/build"))
            .output()
            .expect("tests/redisson/build can be run");
        assert!(
            build.status.success(),
            "tests/redisson/build failed:\n{}",
            String::from_utf8_lossy(&build.stderr)
        );
    });
    let out = root.join("target/redisson");
    let mut path = out.join("classes").into_os_string();
    path.push(":");
    path.push(out.join("lib/*"));
    path
}

/// The java that Maven uses, too.
fn java() -> PathBuf {
    std::env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| Path::new(&home).join("bin/java"),
    )
}

/// A test that panicked while it held a pipe must not hide its message behind a poisoned mutex.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const READY_WITHIN: Duration = Duration::from_secs(60);
