//! What the library warns of, recorded by a subscriber of our own; and a subscriber that panics.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
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
        let warnings = Self::default();
        let guard = subscribe_thread(warnings.clone());
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

/// A broken subscriber: its first event with this target panics.
struct Breaks {
    target: &'static str,
    is_whole: Arc<AtomicBool>,
}

/// Lets the first event of this thread with this target panic, until the guard is dropped. The flag is true until
/// then.
pub(crate) fn break_at(target: &'static str) -> (Arc<AtomicBool>, DefaultGuard) {
    let is_whole = Arc::new(AtomicBool::new(true));
    let guard = subscribe_thread(Breaks {
        target,
        is_whole: is_whole.clone(),
    });
    (is_whole, guard)
}

impl Subscriber for Breaks {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let is_meant = event.metadata().target() == self.target;
        if is_meant && self.is_whole.swap(false, Ordering::Relaxed) {
            panic!("the subscriber is broken");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn subscribe_thread(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    // With one subscriber alone, `tracing` asks only the first thread that reaches an event whether it
    // is wanted, and a thread without a subscriber says no.
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    tracing::subscriber::set_default(subscriber)
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
