//! One client of the model: a driver of the real core.

use std::sync::Arc;
use std::time::Duration;

use super::digest::Core;
use super::instance::{Body, Id, Look};
use crate::Moment;
use crate::{Answer, Phase, Quorum, Register};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Client {
    /// `None` before the first acquisition, and after one for which nothing is left to do or to receive.
    pub(super) core: Option<Arc<Core>>,
    /// How many acquisitions of each instance it has requested so far.
    pub(super) numbers: [u8; 4],
    /// It has held the lock once.
    pub(super) won: bool,
    /// The largest token shown to any client before this acquisition began.
    pub(super) floor: u8,
    /// The token shown to this acquisition.
    pub(super) token: u8,
}

impl Client {
    pub(super) fn quorum(&self) -> Option<&Quorum> {
        self.core.as_ref().map(|core| &core.quorum)
    }

    /// Its last acquisition of an instance.
    pub(super) fn id(&self, client: usize, instance: usize) -> Id {
        Id {
            client: client as u8,
            number: self.numbers[instance],
        }
    }

    pub(super) fn is_valid(&self, now: Moment) -> bool {
        self.quorum().is_some_and(|quorum| quorum.is_valid(now))
    }
}

pub(super) fn is_over(quorum: &Quorum) -> bool {
    matches!(
        quorum.phase(),
        Phase::Failed | Phase::Lost(_) | Phase::Ended
    )
}

/// An answer as the core receives it; `None` for a request.
pub(super) fn answer(body: Body, fenced: bool) -> Option<Answer> {
    // No wall clock: tokens must grow without the lower bound that it gives them.
    let register = |look: Look| {
        fenced.then_some(Register {
            value: (look.value > 0).then_some(look.value.into()),
            time: 0,
            reborn: look.fresh,
        })
    };
    Some(match body {
        Body::Taken(look) => Answer::Taken(register(look)),
        // The TTL matters only to reports and to the next attempt.
        Body::Busy(look) => Answer::Busy(None, register(look)),
        Body::Quarantined => Answer::Quarantined(Duration::MAX),
        Body::Extended => Answer::Extended,
        Body::Marked => Answer::Marked,
        Body::Conflict(value) => Answer::Conflict(value.into()),
        Body::NotOurs => Answer::NotOurs,
        Body::Take | Body::Extend | Body::Mark(_) | Body::Release => return None,
    })
}
