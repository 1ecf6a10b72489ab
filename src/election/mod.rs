//! Leader election: a fair lock whose holder has a term and publishes a value.

mod campaign;
mod leader;
mod leadership;
mod observe;
mod run;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::kind;
use crate::lock::{ForceUnlockRequest, Lock};
use crate::object::Object;
use crate::script::election;
use crate::session::Session;

pub use campaign::{CampaignRequest, TimedCampaignRequest};
pub use leader::Leader;
pub use leadership::{Leadership, Leading};
pub use observe::Leaders;

/// An election on a server: one of its candidates leads at a time. Redisson has none. It corresponds to
/// etcd's `Election` and Curator's `LeaderSelector`; `docs/election.md` compares them.
///
/// An `Election` is a handle. The client sends nothing when it creates or clones a handle. All handles with one
/// name are the same election. Each handle keeps its client alive.
///
/// - **Who leads.** The candidates wait in the queue of a [fair lock](crate::Client::fair_lock). The first
///   one leads until it resigns, or until its lease ends. Without a fixed lease the watchdog renews it.
/// - **Terms.** Each leadership has a number, its term, which is larger than the terms of all leaderships before
///   it. It is a fencing token: send it with each write, so that a store can refuse the late writes of an
///   earlier leader.
/// - **Values.** Each leader publishes a value, for example its address. All clients can
///   [read](Self::leader) the value and [observe](Self::observe) its changes.
///
/// An election and a lock of another kind with the same name exclude each other. A Redisson client may campaign
/// with `getFairLock(name)`: it waits in the same queue, and leads without a value and without a term.
///
/// # Panics
///
/// As [`Lock`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let election = client.election("scheduler");
/// let lead = election.campaign("10.0.0.7:9000").await?; // waits for its turn
/// tokio::select! {
///     lost = lead.lost() => eprintln!("stop: {lost}"),
///     () = schedule(lead.term()) => lead.resign().await?,
/// }
/// # Ok(())
/// # }
/// # async fn schedule(_term: u64) {}
/// ```
#[derive(Clone)]
pub struct Election {
    inner: Arc<Inner>,
}

/// The state that the handles and requests of one election share.
struct Inner {
    /// The lock whose holder leads.
    lock: Lock,
    object: Object,
}

impl Election {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        let inner = Inner {
            lock: Lock::new(session.clone(), &kind::ELECTION, name),
            object: Object::new(session, &kind::ELECTION, name),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The name, as given by the caller.
    pub fn name(&self) -> &str {
        self.inner.object.name()
    }

    /// Campaigns for the leadership, and publishes the value when it is elected. The value is what
    /// [`leader`](Self::leader) and [`observe`](Self::observe) show, for example an address; at most 65,536 bytes.
    ///
    /// Without [`CampaignRequest::wait`] it waits without limit for its turn.
    ///
    /// # Errors
    ///
    /// After an error the caller does not lead. The client releases in the background what the server granted.
    ///
    /// - [`Error::AlreadyHeld`] if this owner leads.
    /// - [`Error::Lost`] if this owner lost its leadership and still has the [`Leadership`]: drop it first. Also if
    ///   the leadership was lost before the client published the value.
    /// - [`Error::Invalid`] for a value that is too long.
    /// - else as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, it leaves the queue. If it was elected, it resigns in the background.
    pub fn campaign(&self, value: impl Into<String>) -> CampaignRequest {
        CampaignRequest::new(self.clone(), value.into())
    }

    /// Who leads now. `None` if no client leads.
    ///
    /// It names only a client that holds the election's lock at this moment, so a leader that crashed is shown
    /// until its lease ends. It sends one command.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let asked = self.inner.object.call(async |core, key, time, sent| {
            election::leader(&core.server, key, time, sent).await
        });
        let (answer, _) = asked.await?;
        let core = self.inner.object.core();
        Ok(answer.map(|answer| Leader::new(core, answer)))
    }

    /// Takes the leadership away from its leader, for example if that one hangs. Returns false if no client leads.
    /// The next candidate leads, if there is one. Redisson has no election.
    ///
    /// The client first reads the leader, and then ends only that leadership: a command that arrives late or twice
    /// ends no later one. A leader of this client reports the loss immediately. A leader of another client reports it
    /// at the next renewal, or with a fixed lease at the end of the lease. With
    /// [`ForceUnlockRequest::expecting`] it ends only the leadership of the given holder.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the leadership may or may not end.
    pub fn force_resign(&self) -> ForceUnlockRequest {
        self.inner.lock.force_unlock()
    }

    /// Observes the leader: first the current one, then each change. Each observer sends its own queries to the
    /// server: one after each message of a leader, and one in each
    /// [`poll_cap`](crate::ClientBuilder::poll_cap). It sends nothing before the first [`Leaders::next`].
    pub fn observe(&self) -> Leaders {
        Leaders::new(self.clone())
    }
}

/// Refuses a value that is too long.
fn check_value(value: &str) -> Result<()> {
    if value.len() <= LONGEST_VALUE {
        return Ok(());
    }
    let why = format!(
        "it must be at most {LONGEST_VALUE} bytes, got={}",
        value.len()
    );
    Err(Error::invalid("value of a leader", why))
}

const LONGEST_VALUE: usize = 65_536;

/// See [`Client`](crate::Client).
impl UnwindSafe for Election {}
impl RefUnwindSafe for Election {}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
