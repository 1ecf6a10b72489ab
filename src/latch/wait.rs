//! The wait for a latch.

use std::time::Duration;

use super::CountDownLatch;
use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::lock_request::{FIRST_ATTEMPT, WatchedCall};
use crate::observe::{How, LockRef};
use crate::owner::Owner;
use crate::session::{GateState, Opened};

impl CountDownLatch {
    /// Waits until the count is zero, or until the latch is deleted. Returns immediately if there is no count.
    /// Corresponds to Redisson's `await()`.
    ///
    /// All waiters of one client share their queries. The client sends one after each message, in each poll
    /// cap, and for a waiter whose time would end before that.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`](crate::Error::Timeout), [`Error::Unavailable`](crate::Error::Unavailable) or
    ///   [`Error::Refused`](crate::Error::Refused) if the server gave no usable answer for the whole command
    ///   timeout.
    /// - [`Error::Invalid`](crate::Error::Invalid) for an invalid name, on a cluster for a name with a brace,
    ///   and outside a tokio runtime.
    /// - [`Error::TooManyWaiters`](crate::Error::TooManyWaiters) if too many calls of this client wait
    ///   ([`ClientBuilder::max_waiters`](crate::ClientBuilder::max_waiters)).
    /// - [`Error::Closed`](crate::Error::Closed) if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn wait_zero(&self) -> Result<()> {
        self.wait(None).await.map(|_| ())
    }

    /// As [`wait_zero`](Self::wait_zero), for at most this time. Returns whether the latch opened; false means
    /// that the count was above zero at a moment after the call began. Corresponds to Redisson's
    /// `await(time, unit)`.
    ///
    /// # Errors
    ///
    /// As [`wait_zero`](Self::wait_zero), but it retries after failures. It returns an error only if the last
    /// query before the end of the time had no usable answer. A time below 10 ms gets 10 ms for the first
    /// query.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn wait_zero_within(&self, wait: Duration) -> Result<bool> {
        // A very long wait has a deadline too: it is as patient as a short one.
        let until = self.inner.core().clock.now() + wait;
        self.wait(Some(until)).await
    }

    async fn wait(&self, until: Option<Moment>) -> Result<bool> {
        ensure_runtime()?;
        let (key, core) = (self.inner.key()?, self.inner.core());
        let watched = WatchedCall::begin(core, || LockRef::of(key, Owner::current()));
        let outcome = self
            .opened_by(until)
            .await
            .map(|is_open| is_open.then_some(()));
        watched.end(&outcome, |()| How::First);
        outcome.map(|opened| opened.is_some())
    }

    async fn opened_by(&self, until: Option<Moment>) -> Result<bool> {
        let key = self.inner.key()?;
        let core = self.inner.core();
        core.ensure_open()?;
        let _counted = core.waiters.count()?;
        let is_patient = until.is_some();
        let began = core.clock.now();
        // A wait of zero has time for one query.
        let until = until.map_or(Moment::NEVER, |until| until.max(began + FIRST_ATTEMPT));
        // A panic ended the queries, for example one of the user's log subscriber. The next gate has others.
        let is_restarted = |error: &Error| matches!(error, Error::Closed) && !core.is_closed();
        loop {
            let (gate, came) = core.gate(key)?;
            // The next query for the other waiters may come too late for this one.
            if gate.is_older_than(came)
                && until < core.clock.now() + core.settings.poll_cap + core.server.command_timeout()
            {
                gate.query_now();
            }
            tokio::select! {
                biased;
                opened = gate.opened(came, is_patient) => match opened {
                    Ok(Opened::ForAll) => return Ok(true),
                    // The zero may have been before this call, and the count set since then.
                    Ok(Opened::ForOthers) => continue,
                    Err(error) if is_restarted(&error) => {
                        let again = core.clock.now() + AFTER_A_PANIC;
                        core.clock.sleep_until(again.min(until)).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
                () = core.clock.sleep_until(until), if is_patient => {}
            }
            return match gate.state() {
                GateState::Failed(error) if !is_restarted(&error) => Err(error),
                GateState::Closed { began } if came <= began => Ok(false),
                // It opened at this moment.
                GateState::Open { before } if came <= before => Ok(true),
                // No query that began after this waiter came was answered.
                GateState::Unknown
                | GateState::Closed { .. }
                | GateState::Open { .. }
                | GateState::Failed(_) => Err(Error::timeout(core.clock.now().since(began))),
            };
        }
    }
}

/// The next query may panic too.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);
