//! Whether a client sends and receives its messages on sharded channels of the cluster.

use parking_lot::Mutex;

use crate::server::failure::Failure;

/// Decided once, because a waiter and the client that wakes it must use the same channels.
#[derive(Default)]
pub(super) struct Sharding {
    state: Mutex<ShardingState>,
}

#[derive(Default)]
struct ShardingState {
    is_sharded: Option<bool>,
    /// How often a node did not say whether it supports sharded channels.
    unanswered: u32,
    /// The last query failed for that.
    asks_again: bool,
}

impl Sharding {
    /// Decides by the answer of each of the nodes, `None` for no answer. Fails while the client has to ask again.
    pub(super) fn decide(&self, answers: &[Option<bool>]) -> Result<(), Failure> {
        let mut state = self.state.lock();
        state.asks_again = false;
        if state.is_sharded.is_some() {
            return Ok(());
        }
        let is_refused = answers.contains(&Some(false));
        // A proxy may never answer the question, so the client does not ask forever.
        if !is_refused && answers.contains(&None) && state.unanswered < MOST_UNANSWERED {
            state.unanswered += 1;
            state.asks_again = true;
            let why = "a node of the cluster did not say whether it supports sharded channels";
            return Err(Failure::Unsent(why.into()));
        }
        state.is_sharded = Some(answers.iter().all(|it| *it == Some(true)));
        Ok(())
    }

    /// Whether the last query failed because a node did not say it.
    pub(super) fn asks_again(&self) -> bool {
        self.state.lock().asks_again
    }

    /// False until it is decided.
    pub(super) fn is_sharded(&self) -> bool {
        self.state.lock().is_sharded.unwrap_or_default()
    }
}

const MOST_UNANSWERED: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_answer_decides_nothing_unless_it_is_lost_each_time() {
        let sharding = Sharding::default();
        assert!(sharding.decide(&[Some(true), None]).is_err());
        assert!(sharding.decide(&[Some(true), Some(true)]).is_ok());
        assert!(sharding.is_sharded());
        // A later answer changes nothing.
        assert!(sharding.decide(&[None, Some(false)]).is_ok());
        assert!(sharding.is_sharded());

        let sharding = Sharding::default();
        let failed = (0..9).take_while(|_| {
            let failed = sharding.decide(&[None]).is_err();
            assert_eq!(sharding.asks_again(), failed);
            failed
        });
        assert_eq!(failed.count(), 3);
        assert!(!sharding.is_sharded());

        let sharding = Sharding::default();
        assert!(sharding.decide(&[None, Some(false)]).is_ok());
        assert!(!sharding.is_sharded());
    }
}
