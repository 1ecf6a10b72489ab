//! What the library warns of, recorded by a subscriber of our own.

use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The warnings and errors of this thread; on a runtime of one thread, those of the clients too.
#[derive(Clone, Default)]
pub(crate) struct Warnings {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Warnings {
    /// Records until the guard is dropped.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        // With one subscriber alone, `tracing` asks only the first thread that reaches an event whether it
        // is wanted, and a thread without a subscriber says no.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        let warnings = Self::default();
        let guard = tracing::subscriber::set_default(warnings.clone());
        (warnings, guard)
    }

    /// Those with this text, each with its target and its fields.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let mut lines = self.lines.lock().clone();
        lines.retain(|line| line.contains(text));
        lines
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        self.lines.lock().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
