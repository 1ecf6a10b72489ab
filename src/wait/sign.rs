//! Whether a waiter whose command has no answer is still polled.

use std::sync::Arc;

use crate::clock::Moment;
use crate::hold::{Hold, POLL_TIMEOUT, TurnSnapshot};

/// Whether the future of a waiter is polled.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    /// It was polled since another waiter asked for a sign.
    Given,
    /// It was woken, and has to be polled by this moment.
    Asked(Moment),
    /// It was not polled in time, or has no command whose answer it waits for.
    Missing,
}

/// The last request to a waiter to show that it is polled.
#[derive(Default)]
pub(super) struct AskedForSign {
    last: Option<Request>,
}

struct Request {
    /// The number of the hold of its command.
    hold: u64,
    turn: TurnSnapshot,
    until: Moment,
}

impl AskedForSign {
    /// Whether the future that waits for the answer to the command of `hold` is polled. If it is, the server
    /// is silent, and not the waiter. Calls `wake` if that future has to be woken.
    pub(super) fn sign(
        &mut self,
        hold: &Arc<Hold>,
        now: Moment,
        wake: impl FnOnce(Arc<Hold>),
    ) -> Sign {
        let known = self.last.as_ref().filter(|it| it.hold == hold.number());
        let is_first = known.is_none();
        if let Some(known) = known.filter(|it| !hold.was_polled_since(it.turn)) {
            return if now < known.until {
                Sign::Asked(known.until)
            } else {
                Sign::Missing
            };
        }
        let Some(turn) = hold.turn_of_caller() else {
            // The background has taken the command over.
            return Sign::Missing;
        };
        let until = now + POLL_TIMEOUT;
        self.last = Some(Request {
            hold: hold.number(),
            turn,
            until,
        });
        wake(hold.clone());
        // A waiter that was polled since the last request counts as alive. The next check decides on
        // the new request.
        if is_first {
            Sign::Asked(until)
        } else {
            Sign::Given
        }
    }
}
