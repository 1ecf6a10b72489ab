//! What one step of the doctor found.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::output::{Output, Paint, clean};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Ok,
    /// It could not be checked.
    Unknown,
    Warn,
    Fail,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) step: &'static str,
    pub(super) server: String,
    pub(super) state: State,
    pub(super) text: String,
    pub(super) fix: String,
    pub(super) took: Option<Duration>,
    /// The server answered.
    pub(super) is_answer: bool,
}

impl Found {
    pub(super) fn new(step: &'static str, server: &str, state: State, text: impl ToString) -> Self {
        Self {
            step,
            server: clean(server),
            state,
            text: clean(&text.to_string()),
            fix: String::new(),
            took: None,
            is_answer: state == State::Ok,
        }
    }

    /// The server does not answer this step.
    pub(super) fn silent(step: &'static str, server: &str) -> Self {
        let text = "the server does not answer in time";
        let fix = "see whether the server hangs, or raise --command-timeout";
        Self::new(step, server, State::Fail, text).fix(fix)
    }

    pub(super) fn fix(mut self, fix: impl ToString) -> Self {
        self.fix = clean(&fix.to_string());
        self
    }

    pub(super) fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    /// The time since this moment.
    pub(super) fn since(self, began: Instant) -> Self {
        self.took(began.elapsed())
    }

    /// The server answered, whatever else is wrong.
    pub(super) fn answered(mut self) -> Self {
        self.is_answer = true;
        self
    }

    /// Shows it immediately: the next step may take its time.
    pub(super) fn show(&self, output: Output) {
        if output.json {
            output.object(self.object());
            return;
        }
        let (word, paint) = match self.state {
            State::Ok => ("ok     ", Paint::Green),
            State::Unknown => ("unknown", Paint::Yellow),
            State::Warn => ("warn   ", Paint::Yellow),
            State::Fail => ("fail   ", Paint::Red),
        };
        let word = output.paint(paint, word);
        let took = self.took.map(millis).unwrap_or_default();
        output.line(format_args!(
            "{word}  {:<11} {took:>9}  {}",
            self.step, self.text
        ));
        if !self.fix.is_empty() {
            output.line(format_args!("{:21}          fix: {}", "", self.fix));
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        matches!(self.state, State::Warn | State::Fail)
    }

    pub(super) fn object(&self) -> Value {
        let state = match self.state {
            State::Ok => "ok",
            State::Unknown => "unknown",
            State::Warn => "warn",
            State::Fail => "fail",
        };
        let took = self
            .took
            .map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        json!({
            "step": self.step, "server": self.server, "state": state, "text": self.text,
            "fix": self.fix, "took_us": took,
        })
    }
}

/// A short time for people.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
