//! How Redisson itself reads a configuration.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// A JVM that answers questions. It ends with its input, so with this process.
struct Jvm {
    _process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The answer of Redisson, which may be an `error`.
pub(super) fn ask(question: &Value) -> Value {
    static JVM: Mutex<Option<Jvm>> = Mutex::new(None);
    let mut jvm = JVM.lock().unwrap_or_else(PoisonError::into_inner);
    let jvm = jvm.get_or_insert_with(Jvm::start);
    writeln!(jvm.questions, "{question}").expect("the JVM is there");
    let mut answer = String::new();
    jvm.answers.read_line(&mut answer).expect("the JVM answers");
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// The values that a file has after Redisson has read it.
pub(super) fn load(yaml: &str, properties: &Value) -> Value {
    ask(&json!({ "load": yaml, "properties": properties }))
}

impl Jvm {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let build = Command::new(root.join("tests/redisson/build"))
            .arg("4.7.0")
            .output()
            .expect("tests/redisson/build can be run");
        let errors = String::from_utf8_lossy(&build.stderr);
        assert!(
            build.status.success(),
            "tests/redisson/build failed:\n{errors}"
        );
        let built = root.join("target/redisson/4.7.0");
        // The driver's arguments without its class, which is the last one.
        let args = std::fs::read_to_string(built.join("java.args")).expect("the build wrote it");
        let mut args: Vec<&str> = args.lines().collect();
        args.pop();
        let java = std::env::var_os("JAVA_HOME")
            .map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"));
        let mut process = Command::new(java)
            .current_dir(built)
            .args(args)
            .arg("lockdog.redisson.Configurations")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("java is installed");
        Self {
            questions: process.stdin.take().expect("it is piped"),
            answers: BufReader::new(process.stdout.take().expect("it is piped")),
            _process: process,
        }
    }
}
