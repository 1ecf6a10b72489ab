//! What a quorum wants of its instances, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use super::instance_answer::InstanceAnswer;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::session::{Claim, Unlocked};

/// Something to be done at one instance.
pub(super) enum Request {
    Ask {
        asked: InstanceQuery,
        /// The answer is not waited for beyond this.
        until: Moment,
    },
    /// Dropped, it is given back in the background.
    GiveBack(usize, Claim),
}

/// What an instance is asked, and in which round.
#[derive(Clone)]
pub(super) struct InstanceQuery {
    pub(super) member: usize,
    pub(super) round: u32,
    pub(super) question: Query,
    pub(super) lease: Duration,
}

/// What an instance is asked.
#[derive(Clone)]
pub(super) enum Query {
    Take,
    Extend(Arc<Hold>),
    Mark(Arc<Hold>, u64),
}

/// What came of an order.
pub(super) enum Completion {
    Answered {
        member: usize,
        round: u32,
        told: InstanceAnswer,
    },
    GivenBack(usize, Result<Unlocked, Error>),
}
