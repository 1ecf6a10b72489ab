//! How a waiter learns that a lock is free.

use std::time::Duration;

/// How waiters learn that a lock is free.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Wake {
    /// By the messages that releases publish. A timer bounds every wait as well.
    #[default]
    PubSub,
    /// By polling with these pauses. The client does not subscribe, so other clients cannot see that it
    /// waits. Next to a client that hands a lock from owner to owner (`ClientBuilder::max_hand_overs`),
    /// it may wait for seconds.
    Poll(Backoff),
}

/// The pauses between attempts. By default they grow from 1 ms to 128 ms by doubling, as those of Redisson's
/// `getSpinLock`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lockdog::config::Backoff;
///
/// let ms = Duration::from_millis;
/// let backoff = Backoff::exponential(ms(10), ms(100), 3);
/// assert_eq!(backoff.pause(0), ms(10));
/// assert_eq!(backoff.pause(2), ms(90));
/// assert_eq!(backoff.pause(9), ms(100));
/// assert_eq!(Backoff::constant(ms(30)).pause(7), ms(30));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    factor: u32,
}

impl Backoff {
    /// The same pause each time. Corresponds to Redisson's `LockOptions.ConstantBackOff`.
    pub fn constant(pause: Duration) -> Self {
        Self::exponential(pause, pause, 1)
    }

    /// Starts with `first`. Each further pause is `factor` times the previous one, at most `longest`.
    /// Corresponds to Redisson's `LockOptions.ExponentialBackOff`.
    pub fn exponential(first: Duration, longest: Duration, factor: u32) -> Self {
        Self {
            first,
            longest,
            factor,
        }
    }

    /// The pause after the attempt with this number, counted from 0. Waiters add a small random jitter,
    /// so that they do not retry together.
    pub fn pause(&self, attempt: u32) -> Duration {
        let factor = self.factor.checked_pow(attempt).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// Redisson's spin lock: 1 ms, doubling up to 128 ms.
impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128), 2)
    }
}
