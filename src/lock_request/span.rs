//! The spans of calls that acquire, and of the work of `with`. `docs/logs.md` lists their fields.

use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use crate::error::{Error, Result};
use crate::guard::Held;
use crate::server::{Peer, Server};

/// The span of one call that acquires, with these fields before the others. If no subscriber uses it, the
/// values of the fields are not computed.
macro_rules! acquire_span {
    ($target:literal, $($fields:tt)*) => {
        tracing::debug_span!(
            target: $target,
            "acquire",
            $($fields)*,
            lockdog.outcome = tracing::field::Empty,
            lockdog.waited_ms = tracing::field::Empty,
            otel.name = "lock acquire",
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            db.system.name = "redis",
            server.address = tracing::field::Empty,
            server.port = tracing::field::Empty,
            "error.type" = tracing::field::Empty,
        )
    };
}

pub(crate) use acquire_span;

/// Records the server of these keys in the span of a call, if it is one server and a subscriber uses the span.
pub(crate) fn record_server<'a>(
    span: &Span,
    mut keys: impl Iterator<Item = (&'a Server, &'a str)>,
) {
    if span.is_disabled() {
        return;
    }
    let mut next = || keys.next().map(|(server, key)| server.peer(key));
    let Some(Some(first)) = next() else {
        return;
    };
    while let Some(other) = next() {
        if other.as_ref() != Some(&first) {
            return;
        }
    }
    let Peer { address, port } = first;
    span.record("server.address", address);
    if let Some(port) = port {
        span.record("server.port", port);
    }
}

/// Records the end of an acquire in its span.
pub(crate) fn record<T>(span: &Span, outcome: &Result<Option<T>>, waited: Duration) {
    span.record("lockdog.waited_ms", waited.as_millis() as u64);
    let word = match outcome {
        Ok(Some(_)) => "acquired",
        Ok(None) => "busy",
        Err(error) => {
            record_failure(span, error.word());
            "failed"
        }
    };
    span.record("lockdog.outcome", word);
}

/// The span of the work of `with`.
pub(super) fn hold_span(held: &Held) -> Span {
    tracing::debug_span!(
        target: "lockdog::lock",
        "hold",
        lock = held.name(),
        owner = %held.owner(),
        lockdog.lost = Empty,
        otel.name = "lock hold",
        otel.status_code = Empty,
        "error.type" = Empty,
    )
}

/// Records in the span of a hold that it was lost, if it was.
pub(super) fn record_loss(span: &Span, error: &Error) {
    if let Error::Lost(lost) = error {
        span.record("lockdog.lost", lost.reason().as_str());
        record_failure(span, error.word());
    }
}

fn record_failure(span: &Span, word: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", word);
}
