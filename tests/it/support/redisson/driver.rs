//! The pipes to the driver: calls of several sessions down, answers up.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use serde_json::Value;
use tokio::sync::oneshot;

/// The driver in one JVM. Its threads are blocking and belong to no runtime, because several tests,
/// each with a runtime of its own, may use it.
pub(super) struct Driver {
    calls: Mutex<Calls>,
    output: Mutex<VecDeque<String>>,
}

struct Calls {
    /// False once the JVM is gone.
    open: bool,
    /// For the thread that writes them to the JVM; `None` once the driver got the command to end.
    lines: Option<mpsc::Sender<String>>,
    last_id: u64,
    last_session: u64,
    /// By their ids.
    waiting: HashMap<u64, Waiting>,
}

struct Waiting {
    session: u64,
    answer: oneshot::Sender<Value>,
}

impl Driver {
    /// The driver in this process, whose pipes it takes.
    pub(super) fn of(process: &mut Child) -> Arc<Self> {
        let stdout = process.stdout.take().expect("stdout is a pipe");
        let stderr = process.stderr.take().expect("stderr is a pipe");
        let mut stdin = process.stdin.take().expect("stdin is a pipe");
        let (lines, written) = mpsc::channel::<String>();
        // A full pipe blocks this thread, and no runtime.
        thread::spawn(move || {
            for line in written {
                // A pipe that breaks means that the JVM dies, which ends the waits for answers as well.
                if stdin.write_all(line.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let driver = Arc::new(Self {
            calls: Mutex::new(Calls {
                open: true,
                lines: Some(lines),
                last_id: 0,
                last_session: 0,
                waiting: HashMap::new(),
            }),
            output: Mutex::default(),
        });
        let logging = thread::spawn({
            let driver = Arc::clone(&driver);
            move || each_line(stderr, |line| driver.note(line))
        });
        thread::spawn({
            let driver = Arc::clone(&driver);
            move || {
                // A crashing JVM writes to stdout text that is no answer.
                each_line(stdout, |line| match serde_json::from_str(&line) {
                    Ok(answer) => driver.receive(answer),
                    Err(_) => driver.note(line),
                });
                // The whole log first, so that a caller that finds the driver gone can read why.
                let _ = logging.join();
                let mut calls = locked(&driver.calls);
                calls.open = false;
                // The dropped senders notify all waiting calls of every session.
                calls.waiting.clear();
            }
        });
        driver
    }

    pub(super) fn is_open(&self) -> bool {
        locked(&self.calls).open
    }

    pub(super) fn new_session(&self) -> u64 {
        let mut calls = locked(&self.calls);
        calls.last_session += 1;
        calls.last_session
    }

    /// Starts a call; without an answer, [`Driver::why_unanswered`] says why.
    pub(super) fn send(&self, session: u64, mut call: Value) -> oneshot::Receiver<Value> {
        let (sender, answer) = oneshot::channel();
        let mut calls = locked(&self.calls);
        if !calls.open {
            return answer;
        }
        calls.last_id += 1;
        let id = calls.last_id;
        let waiting = Waiting {
            session,
            answer: sender,
        };
        calls.waiting.insert(id, waiting);
        call["id"] = id.into();
        call["session"] = session.into();
        if let Some(lines) = &calls.lines {
            // Fails only after the pipe broke.
            let _ = lines.send(format!("{call}\n"));
        }
        answer
    }

    /// Ends the waits for all answers of this session: no caller must wait for a client that is shut down.
    pub(super) fn forget(&self, session: u64) {
        let waiting = &mut locked(&self.calls).waiting;
        waiting.retain(|_, waiting| waiting.session != session);
    }

    pub(super) fn end_input(&self) {
        locked(&self.calls).lines = None;
    }

    /// Why a call has no answer.
    pub(super) fn why_unanswered(&self) -> String {
        if self.is_open() {
            return "the Redisson clients of this test are shut down".to_owned();
        }
        format!("the driver is gone; its last output:\n{}", self.output())
    }

    /// The last that the JVM wrote, answers apart.
    pub(super) fn output(&self) -> String {
        let lines = locked(&self.output);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn receive(&self, answer: Value) {
        let id = answer["id"].as_u64().expect("every answer has an id");
        if let Some(waiting) = locked(&self.calls).waiting.remove(&id) {
            // The caller may have been dropped.
            let _ = waiting.answer.send(answer);
        }
    }

    fn note(&self, line: String) {
        let mut output = locked(&self.output);
        output.push_back(line);
        if output.len() > LINES {
            output.pop_front();
        }
    }
}

fn each_line(from: impl Read, mut take: impl FnMut(String)) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        take(String::from_utf8_lossy(&line).into_owned());
    }
}

/// A test that panicked while it held a pipe must not fail the others.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of the log is kept. Each lost connection writes a stack trace.
const LINES: usize = 1_000;
