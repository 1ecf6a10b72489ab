//! Random choices that can be made again: they follow from a seed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A sequence of choices.
#[derive(Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    /// From the seed in the environment, or a new one. The test's output names it.
    pub(crate) fn from_environment() -> Self {
        let seed = match std::env::var(SEED) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("{SEED} is {text:?}, and not a number")),
            Err(_) => RandomState::new().hash_one(0),
        };
        // The state must not be zero.
        let state = seed | 1;
        println!("choices follow from {SEED}={state}");
        Self { state }
    }

    /// From a seed of another sequence.
    pub(crate) fn of(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    /// A number below `faces`.
    pub(crate) fn roll(&mut self, faces: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % faces
    }
}

const SEED: &str = "LOCKDOG_NEMESIS_SEED";
