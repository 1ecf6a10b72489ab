//! A driver's process, and the talk with it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::Result;
use crate::protocol::{Answer, Go, Request};

/// Ended when dropped.
pub(crate) struct Driver {
    process: Child,
    input: ChildStdin,
    answers: Receiver<Answer>,
}

impl Driver {
    /// Starts it; what it says on standard error goes to a file.
    pub(crate) fn start(command: &[String], log: &Path) -> Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let (program, args) = command.split_first().ok_or("the command is empty")?;
        let mut process = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|failure| format!("{program}: {failure}"))?;
        let input = process.stdin.take().ok_or("it has no input")?;
        let output = process.stdout.take().ok_or("it has no output")?;
        Ok(Self {
            process,
            input,
            answers: listen(output),
        })
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        self.send(request)
    }

    pub(crate) fn go(&mut self, cell: u64) -> Result<()> {
        self.send(&Go { cell, go: true })
    }

    /// Its next word on this cell. What it still has to say on an earlier one is passed over.
    pub(crate) fn answer(&self, cell: u64, patience: Duration) -> Result<Answer> {
        loop {
            match self.answers.recv_timeout(patience) {
                Ok(answer) if answer.cell == cell => return Ok(answer),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("the driver was silent for {patience:?}").into());
                }
                Err(RecvTimeoutError::Disconnected) => return Err("the driver has ended".into()),
            }
        }
    }

    fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.input.write_all(&line)?;
        Ok(self.input.flush()?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself; it has nothing to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends with the driver's output.
fn listen(output: ChildStdout) -> Receiver<Answer> {
    let (sender, answers) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
            match serde_json::from_str(&line) {
                Ok(answer) => {
                    if sender.send(answer).is_err() {
                        return;
                    }
                }
                Err(failure) => eprintln!("a driver said {line:?}: {failure}"),
            }
        }
    });
    answers
}
