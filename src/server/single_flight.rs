//! One attempt at a time, whose result all callers share.
//!
//! The attempt is its own task. A caller awaits the result and may stop at any time without an
//! effect on other callers (design: invariant 14). Attempts in quick succession wait before they
//! begin, with exponential backoff and jitter.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use crate::clock::Clock;

/// Attempts to get one thing. Dropping it ends the current attempt.
pub(crate) struct SingleFlight<T> {
    shared: Arc<Flight<T>>,
}

struct Flight<T> {
    clock: Clock,
    state: Mutex<FlightState<T>>,
}

struct FlightState<T> {
    under_way: Option<FlightAttempt<T>>,
    /// When the last attempt ended.
    ended: Option<Instant>,
    backoff: Duration,
    /// No attempt begins before this moment.
    not_before: Option<Instant>,
    /// The failure of the last attempt, if it failed.
    failed: Option<Failure>,
}

struct FlightAttempt<T> {
    result: Arc<FlightResult<T>>,
    /// Cancelled to skip the pause before the attempt. A token, so that it also works before the attempt's
    /// first poll.
    hurry: CancellationToken,
    task: AbortHandle,
}

/// The result of an attempt. Callers are woken in the order in which they came.
struct FlightResult<T> {
    result: OnceLock<Result<T, Failure>>,
    /// Cancelled when the result is present or will never come.
    ended: CancellationToken,
}

/// What a caller found.
enum Joined<T> {
    There(T),
    Attempt(Arc<FlightResult<T>>),
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new(clock: &Clock) -> Self {
        let state = FlightState {
            under_way: None,
            ended: None,
            backoff: Duration::ZERO,
            not_before: None,
            failed: None,
        };
        Self {
            shared: Arc::new(Flight {
                clock: clock.clone(),
                state: Mutex::new(state),
            }),
        }
    }

    /// The result of the current attempt, or of a new one that runs `work` on this runtime. `work`
    /// has its own time limit. `limit` is the caller's: when it is over, the caller gets the last failure.
    ///
    /// # Cancel safety
    ///
    /// The attempt continues without the caller.
    pub(crate) async fn get<F>(
        &self,
        runtime: &Handle,
        limit: Duration,
        work: impl FnOnce() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.get_unless(runtime, limit, || None, work).await
    }

    /// Like [`SingleFlight::get`], unless `there` returns a result: an attempt may have stored one since the
    /// caller checked.
    ///
    /// # Cancel safety
    ///
    /// Same as [`SingleFlight::get`].
    pub(crate) async fn get_unless<F>(
        &self,
        runtime: &Handle,
        limit: Duration,
        there: impl FnOnce() -> Option<T>,
        work: impl FnOnce() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let outcome = match self.join(runtime, there, work) {
            Joined::There(there) => return Ok(there),
            Joined::Attempt(outcome) => outcome,
        };
        if tokio::time::timeout(limit, outcome.ended.cancelled())
            .await
            .is_err()
        {
            let failed = self.shared.state.lock().failed.clone();
            return Err(failed.unwrap_or_else(|| Failure::Unsent("no connection in time".into())));
        }
        let result = outcome.result.get().cloned();
        // The attempt's task was aborted or panicked, or its runtime has ended.
        result.unwrap_or_else(|| Err(Failure::Unsent(ABORTED.into())))
    }

    fn join<F>(
        &self,
        runtime: &Handle,
        there: impl FnOnce() -> Option<T>,
        work: impl FnOnce() -> F,
    ) -> Joined<T>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut state = self.shared.state.lock();
        // An attempt stores its result before it ends, and ending needs this lock.
        if let Some(there) = there() {
            return Joined::There(there);
        }
        if let Some(attempt) = &state.under_way
            && !attempt.task.is_finished()
        {
            return Joined::Attempt(attempt.result.clone());
        }
        let now = Instant::now();
        let wait = state
            .not_before
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let result = Arc::new(FlightResult {
            result: OnceLock::new(),
            ended: CancellationToken::new(),
        });
        let outcome = result.clone();
        let ended = result.ended.clone().drop_guard();
        let hurry = CancellationToken::new();
        let hurried = hurry.clone();
        let (shared, work) = (self.shared.clone(), work());
        let task = runtime.spawn(async move {
            let _cancels_when_it_ends = ended;
            if !wait.is_zero() {
                tokio::select! {
                    // The order is fixed, because a simulated run must be reproducible.
                    biased;
                    () = tokio::time::sleep(wait) => {}
                    () = hurried.cancelled() => {}
                }
            }
            let came_to = work.await;
            shared.end(&came_to);
            outcome.result.get_or_init(|| came_to);
        });
        state.under_way = Some(FlightAttempt {
            result: result.clone(),
            hurry,
            task: task.abort_handle(),
        });
        Joined::Attempt(result)
    }

    /// Ends the current attempt.
    pub(crate) fn abort(&self) {
        if let Some(attempt) = &self.shared.state.lock().under_way {
            attempt.task.abort();
        }
    }
}

/// A [`SingleFlight`] with a result of any type.
pub(crate) trait Attempt {
    /// Lets the current and the next attempt skip their pauses: the cause of earlier failures is gone, or the
    /// client shuts down.
    fn retry_now(&self);

    /// Whether the next attempt would wait before it begins.
    #[cfg(test)]
    fn is_delayed(&self) -> bool;
}

impl<T> Attempt for SingleFlight<T> {
    fn retry_now(&self) {
        let mut state = self.shared.state.lock();
        state.ended = None;
        state.not_before = None;
        if let Some(attempt) = &state.under_way {
            attempt.hurry.cancel();
        }
    }

    #[cfg(test)]
    fn is_delayed(&self) -> bool {
        self.shared.state.lock().not_before.is_some()
    }
}

impl<T> Flight<T> {
    /// Counts every outcome: a connection that opens and breaks immediately is as bad as one that
    /// cannot be opened.
    fn end(&self, outcome: &Result<T, Failure>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_soon = state.ended.is_some_and(|ended| now - ended < CALM);
        state.backoff = match is_soon {
            true => (state.backoff * 2).clamp(SHORTEST, LONGEST),
            false => SHORTEST,
        };
        state.ended = Some(now);
        state.not_before = Some(now + self.clock.jitter_down(state.backoff));
        state.failed = outcome.as_ref().err().cloned();
        state.under_way = None;
    }
}

impl<T> Drop for SingleFlight<T> {
    fn drop(&mut self) {
        if let Some(attempt) = &self.shared.state.lock().under_way {
            attempt.task.abort();
        }
    }
}

const ABORTED: &str = "the attempt to connect was aborted: the runtime has ended or has no I/O \
                       (build it with enable_all()), or another server became the master";
/// Attempts that are further apart do not delay each other.
const CALM: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest pause before an attempt, so that callers notice soon when the server is back.
const LONGEST: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retry_now_skips_the_backoff_of_an_unpolled_attempt() {
        let flight = SingleFlight::<()>::new(&Clock::default());
        let here = Handle::current();
        let refused = || async { Err(Failure::Unsent("no".into())) };
        for _ in 0..10 {
            flight.get(&here, A_MINUTE, refused).await.unwrap_err();
        }
        let mut next = pin!(flight.get(&here, A_MINUTE, || async { Ok(()) }));
        // One thread: its task was spawned, and did not run yet.
        assert!(next.as_mut().now_or_never().is_none());
        flight.retry_now();
        let began = Instant::now();
        next.await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    const A_MINUTE: Duration = Duration::from_secs(60);
}
