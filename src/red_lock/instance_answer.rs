//! What an instance answered.

use lockdog_quorum::Answer;

use crate::error::Error;
use crate::session::Claim;

/// What an instance answered, and what comes with it.
pub(super) struct InstanceAnswer {
    pub(super) answer: Answer,
    pub(super) claim: Option<Claim>,
    /// Why it could not be had.
    pub(super) cause: Option<Error>,
}

impl InstanceAnswer {
    pub(super) fn failed(cause: Error) -> Self {
        Self {
            cause: Some(cause),
            ..Self::from(Answer::Failed)
        }
    }
}

impl From<Answer> for InstanceAnswer {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            claim: None,
            cause: None,
        }
    }
}
