//! Requests of a quorum hold to its instances, and their completions.

use std::sync::Arc;
use std::time::Duration;

use super::instance_answer::InstanceAnswer;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::session::{Claim, Unlocked};

/// A request to one instance.
pub(super) enum Request {
    Ask {
        asked: InstanceQuery,
        /// The client waits for the answer until this moment.
        until: Moment,
    },
    /// Dropping it releases the claim in the background.
    GiveBack(usize, Claim),
}

/// A query to an instance, with its round.
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

/// The completion of a request.
pub(super) enum Completion {
    Answered {
        member: usize,
        round: u32,
        answer: InstanceAnswer,
    },
    GivenBack(usize, Result<Unlocked, Error>),
}
