//! What the locks and guards of one client share, and the commands they send.

mod abandoned;
mod acquire;
mod answer;
mod attempt_outcome;
mod batch_acquire;
mod claim;
#[cfg(test)]
mod disconnected;
mod endless;
mod extend;
mod gate;
mod job_outcome;
mod lane;
mod losses;
mod lowering;
mod mailbox;
mod member_attempt;
mod observed;
mod queue_query;
mod reentry;
mod release;
mod replicas;
mod settle;
mod timers;
mod transfer;
mod unanswered_calls;
mod unlock;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::diagnosis::ClientProfile;
use crate::error::Error;
use crate::hold::{HandOverLimits, Hold, Holds};
use crate::key::kind::PermitKind;
use crate::key::{Kind, LockGroup, LockKey, Mode, NameMapper, PermitId, QueueTimeouts, WRITER};
use crate::script::{AcquireItem, ModeOptions, Remembered, Sharing};
use crate::server::Server;
use crate::wait::{Backoff, Waiters, Wake};

pub(crate) use acquire::PendingAcquire;
pub(crate) use attempt_outcome::AttemptOutcome;
pub(crate) use batch_acquire::{BatchAcquire, BatchAttempt};
pub(crate) use claim::{Claim, warn_elsewhere};
#[cfg(test)]
pub(crate) use disconnected::{disconnected, disconnected_with};
pub(crate) use gate::{GateState, Gates, Opened};
pub(crate) use job_outcome::JobOutcome;
pub(crate) use lane::Lane;
pub(crate) use mailbox::{BackgroundTask, ExtendRequest, Mailbox};
pub(crate) use observed::Totals;
pub(crate) use queue_query::QueueOutcome;
pub use reentry::Reentry;
pub use release::Unlocked;
pub(crate) use settle::{Job, Unsettled, settle};
pub(crate) use timers::{Timed, TimerKey, Timers};
pub(crate) use unanswered_calls::{UnansweredCall, UnansweredCalls};

/// One client's settings, validated.
pub(crate) struct ClientSettings {
    pub(crate) watchdog_lease: Duration,
    pub(crate) poll_cap: Duration,
    pub(crate) max_lease: Duration,
    pub(crate) wake: Wake,
    pub(crate) hand_overs: HandOverLimits,
    /// The timeouts of queues on the server.
    pub(crate) queue_timeouts: QueueTimeouts,
    pub(crate) reentry: Reentry,
    /// Servers remember that they lost their data.
    pub(crate) quarantine_on_server: bool,
    /// What a server has to support; `None` if servers are not to be checked.
    pub(crate) expected: Option<ClientProfile>,
    pub(crate) name_mapper: Option<NameMapper>,
    /// Logs have the names of locks at all levels.
    pub(crate) log_names: bool,
    /// The group under which observers count a lock.
    pub(crate) lock_group: Option<LockGroup>,
}

/// What a client, its locks and its guards keep alive. The background work ends when the last of them
/// is dropped.
pub(crate) struct Session {
    core: Arc<Core>,
}

/// A client's state. The watchdog's thread shares it without keeping the client alive.
pub(crate) struct Core {
    pub(crate) id: Uuid,
    /// The id with its separator, as it begins every field. Formatted once.
    prefix: String,
    pub(crate) clock: Clock,
    pub(crate) settings: ClientSettings,
    pub(crate) server: Server,
    pub(crate) holds: Holds,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) timers: Timers,
    pub(crate) mailbox: Mailbox,
    pub(crate) gates: Gates,
    pub(crate) unanswered_calls: UnansweredCalls,
    /// Unbounded channel: there is at most one job per live guard or request. The watchdog runs a few
    /// hundred jobs at a time.
    jobs: mpsc::UnboundedSender<Job>,
    closed: AtomicBool,
    /// How many releases were given up because the server refused them.
    unreleased: AtomicUsize,
    pub(crate) totals: Totals,
    /// Cancelled when the session is dropped. The background then finishes the pending jobs and ends.
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
    /// `id` is that of the client. It must be new.
    pub(crate) fn new(
        id: Uuid,
        settings: ClientSettings,
        clock: Clock,
        server: Server,
        max_waiters: u32,
    ) -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, owed) = mpsc::unbounded_channel();
        let waiters = Waiters::new(
            id,
            clock.clone(),
            settings.poll_cap,
            max_waiters,
            !server.is_cluster(),
        );
        let core = Self {
            id,
            prefix: format!("{id}:"),
            holds: Holds::new(clock.clone(), server.is_switched()),
            waiters: Arc::new(waiters),
            timers: Timers::default(),
            mailbox: Mailbox::default(),
            gates: Gates::default(),
            unanswered_calls: UnansweredCalls::new(max_waiters),
            clock,
            settings,
            server,
            jobs,
            closed: AtomicBool::new(false),
            unreleased: AtomicUsize::new(0),
            totals: Totals::default(),
            ending: CancellationToken::new(),
        };
        (core, owed)
    }

    /// A hold's field in Redis; for a permit with a lease its id as text.
    pub(crate) fn field(&self, hold: &Hold) -> String {
        if let Some(id) = self.permit_id(hold) {
            return id.into_field();
        }
        let mut field = String::with_capacity(self.prefix.len() + 32);
        field.push_str(&self.prefix);
        // Writing to a string cannot fail.
        let _ = write!(field, "{}.{}", hold.owner(), hold.number());
        if hold.key().mode() == Some(Mode::Write) {
            field.push_str(WRITER);
        }
        field
    }

    /// What an acquire of the hold asks for. `partner` is its owner's hold in the other mode.
    fn item<'a>(
        &self,
        hold: &'a Hold,
        target: u32,
        partner: Option<&Hold>,
        modes: ModeOptions,
    ) -> AcquireItem<'a> {
        let key = &**hold.key();
        let sharing = key.mode().map(|_| Sharing {
            partner: partner.map_or_else(String::new, |partner| self.field(partner)),
            modes,
            // The writer's next attempt comes within a poll cap, and renews the announcement before it
            // expires.
            announced: self.settings.poll_cap * 3 / 2,
        });
        AcquireItem {
            key,
            field: self.field(hold),
            target,
            sharing,
            listing: None,
        }
    }

    /// The id of a hold that is a permit with a lease.
    pub(crate) fn permit_id(&self, hold: &Hold) -> Option<PermitId> {
        let is_permit = hold.key().kind().permits == Some(PermitKind::Leased);
        is_permit.then(|| PermitId::of_hold(self.id, hold.number()))
    }

    /// The hold's number in a field of [`Core::field`]; `None` for other clients' fields.
    pub(crate) fn number_of(&self, field: &str) -> Option<u64> {
        let task = field.strip_prefix(&self.prefix)?;
        let task = task.strip_suffix(WRITER).unwrap_or(task);
        task.rsplit_once('.')?.1.parse().ok()
    }

    /// The key of the object with this name. From now on `Client::diagnose` also checks what its kind needs.
    pub(crate) fn key(&self, kind: &'static Kind, name: &str) -> Result<Arc<LockKey>, Error> {
        if let Some(expected) = &self.settings.expected {
            expected.expect(kind);
        }
        let key = LockKey::new(kind, name, self.settings.name_mapper.as_ref())?;
        let key = key.named_in_logs(self.settings.log_names);
        let key = match &self.settings.lock_group {
            Some(group) => key.in_group(group),
            None => key,
        };
        if self.server.is_cluster() {
            return key.check_slot().map(Arc::new);
        }
        Ok(Arc::new(key))
    }

    /// The pauses between polls of a waiter of this lock; `None` if messages wake it.
    pub(crate) fn backoff(&self, key: &LockKey) -> Option<Backoff> {
        match self.settings.wake {
            Wake::Poll(backoff) => Some(backoff),
            Wake::PubSub => key.kind().channel.is_none().then(Backoff::default),
        }
    }

    /// Rejects further requests and ends every wait.
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

    /// What the server remembers of a call, so that repetitions of its command count once. The client sends
    /// the call for at most one command timeout.
    pub(crate) fn once(&self) -> Remembered {
        Remembered::new(Duration::ZERO, self.server.command_timeout())
    }

    /// Removes a hold whose release Redis has answered, or need not answer any more, and wakes the next
    /// waiter. `confirmed`: Redis has nothing of it, or what it has is left to its lease.
    pub(crate) fn forget(&self, hold: &Arc<Hold>, confirmed: bool) {
        self.holds.remove(hold);
        self.notify_released(hold, confirmed);
        if hold.state().is_left() {
            self.end_outlived(hold.clone());
        }
        self.waiters.wake(hold.key());
    }

    /// Hands a job to the background, which completes it even if the caller's runtime ends.
    pub(crate) fn settle_in_background(&self, job: Job) {
        // The receiver lives as long as the watchdog's thread. After that, no job is pending.
        let _ = self.jobs.send(job);
    }
}
