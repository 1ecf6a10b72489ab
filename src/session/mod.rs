//! What the locks and guards of one client share, and the commands they send.

mod acquire;
mod batch_acquire;
mod claim;
mod lane;
mod member_attempt;
mod owed;
mod reentry;
mod release;
mod replicas;
mod settle;
mod transfer;
mod upkeep;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::diagnosis::ClientProfile;
use crate::error::{Error, LostReason};
use crate::hold::{HandOverLimits, Hold, HoldState, Holds};
use crate::key::{LockKey, NameMapper};
use crate::server::Server;
use crate::wait::{Backoff, Waiters, Wake};

pub(crate) use acquire::{AttemptOutcome, PendingAcquire};
pub(crate) use batch_acquire::{BatchAcquire, BatchAttempt};
pub(crate) use claim::{Claim, warn_elsewhere};
pub(crate) use lane::Lane;
pub use reentry::Reentry;
pub use release::Unlocked;
pub(crate) use settle::{Job, JobOutcome, Unsettled, settle};
pub(crate) use upkeep::{BackgroundTask, ExtendRequest, Timed, TimerKey, Upkeep};

/// One client's settings, checked.
pub(crate) struct Settings {
    pub(crate) watchdog_lease: Duration,
    pub(crate) poll_cap: Duration,
    pub(crate) max_lease: Duration,
    pub(crate) wake: Wake,
    pub(crate) hand_overs: HandOverLimits,
    pub(crate) reentry: Reentry,
    /// A server remembers that it lost its data.
    pub(crate) quarantine_on_server: bool,
    /// What a server has to be fit for; `None` if nobody is to look.
    pub(crate) expected: Option<ClientProfile>,
    pub(crate) name_mapper: Option<NameMapper>,
}

/// What a client, its locks and its guards hold on to. The background work ends with the last one.
pub(crate) struct Session {
    core: Arc<Core>,
}

/// What a client knows and works with. The watchdog's thread shares it, without keeping the client
/// alive by it.
pub(crate) struct Core {
    pub(crate) id: Uuid,
    /// The id as it stands in front of every field, written once.
    prefix: String,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) server: Server,
    pub(crate) holds: Holds,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) upkeep: Upkeep,
    /// Bounded by what it serves: each job is owed by one guard or request, which took more room. The
    /// watchdog gives a task to some hundreds of them at a time.
    jobs: mpsc::UnboundedSender<Job>,
    closed: AtomicBool,
    /// How many releases were given up because the server refused them.
    unreleased: AtomicUsize,
    /// Nobody holds on to the session any more: finish what is owed and end.
    pub(crate) ending: CancellationToken,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.close();
        self.core.ending.cancel();
    }
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        server: Server,
        max_waiters: u32,
    ) -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, owed) = mpsc::unbounded_channel();
        let waiters = Waiters::new(clock.clone(), settings.poll_cap, max_waiters);
        let id = Uuid::new_v4();
        let core = Self {
            id,
            prefix: format!("{id}:"),
            holds: Holds::new(clock.clone(), server.is_switched()),
            waiters: Arc::new(waiters),
            upkeep: Upkeep::default(),
            clock,
            settings,
            server,
            jobs,
            closed: AtomicBool::new(false),
            unreleased: AtomicUsize::new(0),
            ending: CancellationToken::new(),
        };
        (core, owed)
    }

    /// The field that stands in Redis for a hold.
    pub(crate) fn field(&self, hold: &Hold) -> String {
        let mut field = String::with_capacity(self.prefix.len() + 24);
        field.push_str(&self.prefix);
        // A string takes whatever is written to it.
        let _ = write!(field, "{}", hold.owner());
        if !mutant!("fixed_field") {
            let _ = write!(field, ".{}", hold.number());
        }
        field
    }

    /// Takes apart a field that [`Core::field`] made; `None` for everybody else's.
    pub(crate) fn number_of(&self, field: &str) -> Option<u64> {
        let task = field.strip_prefix(&self.prefix)?;
        task.rsplit_once('.')?.1.parse().ok()
    }

    /// The pauses after which a waiter of this lock asks again; `None` if messages wake it.
    pub(crate) fn backoff(&self, key: &LockKey) -> Option<Backoff> {
        match self.settings.wake {
            Wake::Poll(backoff) => Some(backoff),
            Wake::PubSub => key.kind().channel.is_none().then(Backoff::default),
        }
    }

    /// Refuses what is asked from now on; ends every wait.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.server.close();
        self.waiters.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn ensure_open(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Takes a hold whose release Redis has answered, or need not answer any more, off the list,
    /// and lets the next waiter try.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.holds.remove(hold);
        self.waiters.wake(hold.key());
    }

    /// Ends a hold against its owner's will, and tells.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, reason: LostReason) {
        if self.lose_quietly(hold, reason) {
            self.report_lost(hold);
        }
    }

    /// Notes that this client freed the lock from a hold. A grant that nobody has read yet is none.
    pub(crate) fn forced(&self, hold: &Arc<Hold>) {
        if self.holds.change(hold, HoldState::end_pending) {
            // Its call may be polled no more, and others wait for the end of what it gave up.
            let (job, _) = Job::if_listed(hold.clone());
            self.settle_in_background(job);
        }
        self.lose(hold, LostReason::Forced);
    }

    /// Ends a hold against its owner's will, and tells its guards only. False if it was no hold.
    pub(crate) fn lose_quietly(&self, hold: &Arc<Hold>, reason: LostReason) -> bool {
        self.holds.change(hold, |state| state.lose(reason))
    }

    /// Says in the log that a hold was lost, and drops it if nobody is left to be told.
    pub(crate) fn report_lost(&self, hold: &Arc<Hold>) {
        let now = self.clock.now();
        let is_part = {
            let state = hold.state();
            state.parts > 0 && state.parts == state.count
        };
        if is_part {
            // The lock that it belongs to may be held all the same.
            tracing::debug!(
                target: "lockdog::quorum",
                { lock.hash = %hold.key().fingerprint() }, "a part was lost"
            );
        } else if let Some(lost) = hold.loss(now) {
            tracing::warn!(
                target: "lockdog::lock",
                {
                    lock.hash = %hold.key().fingerprint(),
                    owner = lost.owner(),
                    reason = ?lost.reason(),
                    held_ms = lost.held_for().as_millis() as u64,
                    since_renewal_ms = lost.since_renewal().as_millis() as u64,
                    server = self.server.address_of(hold.key().key()),
                },
                "lock lost"
            );
        }
        let forgotten = self.holds.change(hold, |state| state.end_forgotten(now));
        match forgotten {
            Some(dropped) => self.after_drop(hold, dropped),
            None => self.waiters.wake(hold.key()),
        }
    }

    /// Hands a job to the background, where it is done even if its runtime is about to end.
    pub(crate) fn settle_in_background(&self, job: Job) {
        // The receiver lives as long as the watchdog's thread; after that nothing is owed.
        let _ = self.jobs.send(job);
    }
}
