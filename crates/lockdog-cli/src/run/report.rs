//! The report of a run: one JSON line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

use lockdog::error::LostReason;
use serde_json::{Value, json};

use super::arguments::Args;
use super::verdict::RunVerdict;
use crate::failed::Failed;
use crate::output::Output;

/// What is written at the end, if the user wants it.
pub(super) struct Report {
    file: Option<File>,
    line: Value,
}

/// How a run ended without a failure and without a loss.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Busy,
    Exited,
    Interrupted,
}

impl Report {
    /// Opens the file before anything is done, because it may not be writable.
    pub(super) fn open(args: &Args) -> Result<Self, Failed> {
        let file = match &args.report {
            Some(path) => {
                let opened = OpenOptions::new().append(true).create(true).open(path);
                Some(opened.map_err(|error| {
                    Failed::new(format_args!("cannot write {}: {error}", path.display()))
                })?)
            }
            None => None,
        };
        let line = json!({
            "schema": 1, "lock": args.name, "also": args.also, "waited_ms": null, "held_ms": null,
            "outcome": null, "exit": null, "lost": null, "token": null,
        });
        Ok(Self { file, line })
    }

    pub(super) fn waited(&mut self, time: Duration) {
        self.line["waited_ms"] = millis(time);
    }

    pub(super) fn held(&mut self, time: Duration) {
        self.line["held_ms"] = millis(time);
    }

    pub(super) fn token(&mut self, token: Option<u64>) {
        self.line["token"] = json!(token);
    }

    pub(super) fn ended(&mut self, ending: Ending, code: u8) {
        let outcome = match ending {
            Ending::Busy => "busy",
            Ending::Exited => "exited",
            Ending::Interrupted => "interrupted",
        };
        self.end(outcome, code);
    }

    pub(super) fn stopped(&mut self, verdict: RunVerdict, code: u8) {
        let outcome = match verdict {
            RunVerdict::Jeopardy | RunVerdict::Lost(_) => "lost",
            RunVerdict::MaxHold => "max_hold",
        };
        self.line["lost"] = json!(verdict.reason());
        self.end(outcome, code);
    }

    /// For a command that was not stopped for it.
    pub(super) fn lost(&mut self, reason: Option<LostReason>) {
        if let Some(reason) = reason {
            self.line["lost"] = json!(reason.as_str());
        }
    }

    pub(super) fn failed(&mut self, failed: &Failed) {
        self.line["error"] = json!(failed.text);
        self.end("failed", failed.code);
    }

    fn end(&mut self, outcome: &str, code: u8) {
        self.line["outcome"] = json!(outcome);
        self.line["exit"] = json!(code);
    }

    /// Writes the line in one piece, so that lines of several runs do not mix.
    pub(super) fn write(mut self, output: Output) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(format!("{}\n", self.line).as_bytes()) {
            output.note(format_args!("the report cannot be written: {error}"));
        }
    }
}

fn millis(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
