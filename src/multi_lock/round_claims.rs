//! The claims of a round in progress.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::hold::POLL_TIMEOUT;
use crate::session::{Claim, Core};

/// The claims that a round has acquired so far, while it waits for the rest. If the call's future is not polled,
/// the client's thread releases them, so that they do not keep others out (design: invariant 14).
pub(super) struct RoundClaims {
    core: Arc<Core>,
    shared: Arc<Shared>,
    /// Set while the client's thread watches the future.
    watched: OnceLock<DropGuard>,
}

#[derive(Default)]
struct Shared {
    /// For each member. `None` once they were released.
    claims: Mutex<Option<Vec<Option<Claim>>>>,
    caller: Mutex<Caller>,
}

/// The future of the call.
#[derive(Default)]
struct Caller {
    waker: Option<Waker>,
    polls: u64,
}

impl RoundClaims {
    pub(super) fn new(core: &Arc<Core>, members: usize) -> Self {
        let shared = Shared {
            claims: Mutex::new(Some((0..members).map(|_| None).collect())),
            caller: Mutex::default(),
        };
        Self {
            core: core.clone(),
            shared: Arc::new(shared),
            watched: OnceLock::new(),
        }
    }

    pub(super) fn put(&self, member: usize, claim: Claim) {
        let mut claims = self.shared.claims.lock();
        let replaced = match &mut *claims {
            Some(claims) => claims[member].replace(claim),
            // The others were released, so this one is of no use.
            None => Some(claim),
        };
        drop(claims);
        drop(replaced);
    }

    /// Takes all claims, at the end of the round; `None` if they were released.
    pub(super) fn take(&self) -> Option<Vec<Option<Claim>>> {
        self.shared.claims.lock().take()
    }

    /// Called before the round waits. If it has claims, the client's thread watches the future from now on.
    pub(super) fn watch(&self) {
        let has_some = || {
            let claims = self.shared.claims.lock();
            claims.iter().flatten().any(Option::is_some)
        };
        if self.watched.get().is_some() || !has_some() {
            return;
        }
        let ended = CancellationToken::new();
        self.watched.get_or_init(|| ended.clone().drop_guard());
        let shared = Arc::downgrade(&self.shared);
        let watching = watch(self.core.clone(), shared, ended);
        // If the thread has ended, so has the client, and with it each claim on its locks.
        let _ = self.core.mailbox.run(Box::pin(watching));
    }

    /// Drives the round.
    pub(super) async fn drive<F: Future>(&self, mut round: Pin<&mut F>) -> F::Output {
        poll_fn(|context| {
            let polled = round.as_mut().poll(context);
            if polled.is_pending() && self.watched.get().is_some() {
                self.shared.note_poll(context.waker());
            }
            polled
        })
        .await
    }
}

impl Shared {
    fn note_poll(&self, by: &Waker) {
        // Cloning or dropping a waker runs the caller's code, so the mutex is not held.
        let new = by.clone();
        let mut caller = self.caller.lock();
        caller.polls += 1;
        let old = caller.waker.replace(new);
        drop(caller);
        drop(old);
    }

    /// Wakes the future, to see whether it is polled.
    fn request_poll(&self) -> u64 {
        let (polls, waker) = {
            let mut caller = self.caller.lock();
            (caller.polls, caller.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        polls
    }

    fn polls(&self) -> u64 {
        self.caller.lock().polls
    }
}

/// Gives the claims back if the future is not polled.
async fn watch(core: Arc<Core>, shared: Weak<Shared>, ended: CancellationToken) {
    let watching = async {
        // As long as the answers of a round may take.
        let pause = core.server.command_timeout() + core.waiters.answer_time();
        loop {
            core.clock.sleep_until(core.clock.now() + pause).await;
            let Some(seen) = shared.upgrade().map(|it| it.request_poll()) else {
                return;
            };
            core.clock
                .sleep_until(core.clock.now() + POLL_TIMEOUT)
                .await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            if shared.polls() == seen {
                let claims = shared.claims.lock().take();
                drop(claims);
                return;
            }
        }
    };
    ended.run_until_cancelled(watching).await;
}
