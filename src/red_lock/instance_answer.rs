//! The answer of an instance.

use lockdog_quorum::Answer;

use crate::error::Error;
use crate::session::Claim;

/// The answer of an instance, with the claim that it granted.
pub(super) struct InstanceAnswer {
    pub(super) answer: Answer,
    pub(super) claim: Option<Claim>,
    /// Why the instance could not be acquired.
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
