//! The identity of the server at an address, and whether it is still the same server.
//!
//! A server that came back may have lost its data. Its `run_id` changes with each start. Its
//! `master_replid` changes when it takes over another server's data or is promoted. A FLUSHALL
//! changes neither; only the server's own epoch detects it (`lua/red_lock/acquire.lua`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;

use super::data_loss::DataLoss;
use super::failure::Failure;
use super::followers::Followers;
use super::wire::text;
use crate::clock::{Clock, Moment};

/// One client's knowledge of its server's identity.
pub(super) struct Identity {
    clock: Clock,
    /// See [`Identity::address`].
    address: String,
    /// `None` until the server reported it once.
    known: Mutex<Option<String>>,
    /// When the latest change was noticed, as a [`Moment`]; [`Moment::NEVER`] if there was none.
    reborn: AtomicU64,
    /// The same by the server's clock, in milliseconds; 0 if there was none.
    reborn_since: AtomicU64,
    /// Number of answers after which the server's data may have been lost.
    doubts: AtomicU64,
    /// The number of these doubts that are resolved.
    cleared: AtomicU64,
    /// Number of servers that answered at this address.
    met: AtomicU64,
    /// The value of `met` at the last check of the server's configuration.
    checked: AtomicU64,
    /// The replicas that follow the server.
    replicas: Mutex<ReplicaCount>,
    /// Whether the log already says that the identity cannot be known.
    has_logged: AtomicBool,
    /// Whether the server is used because it is the elected master. Sentinels or other nodes name
    /// it, and the master can change.
    is_elected: bool,
    /// Number of master changes. Connections and answers of an earlier term do not count.
    term: AtomicU64,
    terms: watch::Sender<u64>,
}

/// The replicas of a master at the last count.
#[derive(Default)]
struct ReplicaCount {
    following: u32,
    /// The largest number at one time.
    most: u32,
    /// Since when there have been fewer than that.
    lost: Option<Moment>,
    /// When they were last counted.
    at: Option<Moment>,
    /// No replica follows, and the previous count is too old to exclude one in between.
    unsure: bool,
}

impl ReplicaCount {
    fn count(&mut self, following: u32, now: Moment) {
        if following >= self.most {
            self.most = following;
            self.lost = None;
        } else if following < self.following {
            self.lost = Some(now);
        }
        self.following = following;
        let is_recent = self.at.is_some_and(|at| now.since(at) <= RECENT);
        self.unsure = following == 0 && !is_recent;
        self.at = Some(now);
    }

    /// Whether there may have been more replicas recently.
    fn lost(&self, now: Moment) -> bool {
        let since = |at: Option<Moment>| at.map(|at| now.since(at));
        self.unsure
            || since(self.lost).is_some_and(|since| since < A_MINUTE)
            || since(self.at).is_some_and(|since| since > RECENT)
    }
}

impl Identity {
    pub(super) fn new(clock: Clock, address: String, is_elected: bool) -> Self {
        Self {
            clock,
            address,
            known: Mutex::default(),
            reborn: AtomicU64::new(Moment::NEVER.0),
            reborn_since: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
            met: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            replicas: Mutex::default(),
            has_logged: AtomicBool::new(false),
            is_elected,
            term: AtomicU64::new(0),
            terms: watch::Sender::new(0),
        }
    }

    /// The current master's term. Each connection belongs to one term.
    pub(super) fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// Another server is the master from now on. [`Identity::log_term`] wakes the waiters for that.
    pub(super) fn end_term(&self) {
        // The replicas of the previous master.
        *self.replicas.lock() = ReplicaCount::default();
        self.term.fetch_add(1, Ordering::AcqRel);
    }

    /// Wakes the waiters for the end of a term. Wakers are callers' code, so no lock may be held
    /// here.
    pub(super) fn log_term(&self) {
        self.terms
            .send_modify(|term| *term = self.term().max(*term));
    }

    /// Waits until `term` is over.
    pub(super) async fn until_over(&self, term: u64) {
        if !self.is_elected {
            return std::future::pending().await;
        }
        // The sender lives in `self`. It is updated after the term has ended, so it may lag behind.
        let _ = self.terms.subscribe().wait_for(|now| *now > term).await;
    }

    /// The server's address, for logs and errors.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn is_elected(&self) -> bool {
        self.is_elected
    }

    /// Notifies of each new term.
    pub(super) fn term_changes(&self) -> watch::Receiver<u64> {
        self.terms.subscribe()
    }

    /// When the latest change was noticed. The first identity is no change.
    pub(super) fn reborn(&self) -> Option<Moment> {
        let reborn = Moment(self.reborn.load(Ordering::Acquire));
        (reborn != Moment::NEVER).then_some(reborn)
    }

    /// Since when its data may be incomplete.
    pub(super) fn loss(&self) -> DataLoss {
        // Written in the opposite order, so that a change that is seen here has its server time.
        let seen = self.reborn();
        let since = self.reborn_since.load(Ordering::Acquire);
        DataLoss { seen, since }
    }

    /// The server took over from another one. The next check detects a new identity, before any
    /// answer of it counts.
    pub(super) fn succeed(&self) {
        self.known.lock().get_or_insert_default().clear();
        self.doubt();
    }

    /// How many replicas followed the server at the last count.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.lock().following
    }

    /// Counts the replicas in the server's section `replication`.
    pub(super) fn count_replicas(&self, replication: &Value) {
        if let Some(followers) = Followers::read(replication) {
            self.count(followers);
        }
    }

    pub(super) fn count(&self, followers: Followers) {
        let now = self.clock.now();
        self.replicas.lock().count(followers.following, now);
    }

    /// Whether replicas were lost recently, or that is unknown. One of them may be the master now.
    pub(super) fn lost_replicas(&self, now: Moment) -> bool {
        self.replicas.lock().lost(now)
    }

    /// The caller marks this identity and its data as complete.
    pub(super) fn trust(&self, who: String) {
        let mut known = self.known.lock();
        *known = Some(who);
        self.reborn.store(Moment::NEVER.0, Ordering::Release);
        self.reborn_since.store(0, Ordering::Release);
    }

    /// An answer came after which the server's identity may have changed.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of doubts, if some are unresolved. No answer counts before they are resolved.
    pub(super) fn doubts(&self) -> Option<u64> {
        let doubts = self.doubts.load(Ordering::Acquire);
        (doubts != self.cleared.load(Ordering::Acquire)).then_some(doubts)
    }

    /// Resolves the doubts that existed before the identity was read.
    pub(super) fn clear(&self, doubts: u64) {
        self.cleared.fetch_max(doubts, Ordering::AcqRel);
    }

    /// Processes the server's sections `server` and `replication`. Fails if a later answer will say
    /// more. A server that never reports its identity is no failure.
    pub(super) fn hear(
        &self,
        server: Result<Value, Failure>,
        replication: Result<Value, Failure>,
    ) -> Result<(), Failure> {
        match (server, replication) {
            (Ok(server), Ok(replication)) => {
                if self.is_elected && part(&replication, "role") == Some("slave") {
                    return Err(Failure::Unsent("the server is a replica".into()));
                }
                self.count_replicas(&replication);
                self.see(&server, &replication);
            }
            (Err(failure), _) | (_, Err(failure)) => {
                if failure.is_ambiguous() || failure.passes() {
                    return Err(failure);
                }
                self.miss(&failure);
            }
        }
        Ok(())
    }

    fn see(&self, server: &Value, replication: &Value) {
        let parts = [part(server, "run_id"), part(replication, "master_replid")];
        if parts == [None, None] {
            return self.miss(&Failure::Broken("INFO contains no server id".into()));
        }
        let who = parts.map(Option::unwrap_or_default).join(":");
        let mut known = self.known.lock();
        let is_another = match &*known {
            Some(known) if *known == who => return,
            Some(_) => {
                let now = self.clock.now();
                let time = part(server, "server_time_usec").and_then(|time| time.parse().ok());
                let since = time.map_or(FOR_EVER, |time: u64| time / 1000 + 1);
                self.reborn_since.store(since, Ordering::Release);
                self.reborn.store(now.0, Ordering::Release);
                true
            }
            None => false,
        };
        *known = Some(who);
        self.met.fetch_add(1, Ordering::AcqRel);
        // The user's log subscriber may block, and the client's own thread needs this lock to
        // reconnect.
        drop(known);
        if is_another {
            tracing::warn!(
                target: "lockdog::server",
                server = self.address,
                "server identity changed (restart or failover): locks may be lost"
            );
        }
    }

    /// If a server answered whose configuration was not checked: the number of servers so far.
    pub(super) fn unchecked(&self) -> Option<u64> {
        let met = self.met.load(Ordering::Acquire);
        (met != self.checked.load(Ordering::Acquire)).then_some(met)
    }

    /// The configuration of this server and all earlier ones is checked.
    pub(super) fn checked(&self, met: u64) {
        self.checked.store(met, Ordering::Release);
    }

    /// Logs once that the identity cannot be known.
    fn miss(&self, failure: &Failure) {
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            self.met.fetch_add(1, Ordering::AcqRel);
            tracing::debug!(
                target: "lockdog::server",
                %failure, "the server does not report its identity"
            );
        }
    }
}

/// The value of one field of INFO.
fn part<'a>(info: &'a Value, name: &str) -> Option<&'a str> {
    let text = text(info)?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    // An id has forty hexadecimal digits. A longer value is no id.
    (value.len() <= LONGEST_ID).then_some(value)
}

const LONGEST_ID: usize = 64;
/// Counts that are further apart say nothing about the time between them.
const RECENT: Duration = Duration::from_secs(3);
/// Usually longer than it takes to replace a master that was cut off.
const A_MINUTE: Duration = Duration::from_secs(60);

/// Later than any server's clock in milliseconds, and exact in a script.
const FOR_EVER: u64 = 1 << 52;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::user_code::OnEvent;

    #[test]
    fn a_loss_of_replicas_lasts_until_as_many_follow_again() {
        let mut counted = ReplicaCount::default();
        let at = |second| Moment(0) + Duration::from_secs(second);
        for (second, following, lost) in [
            (0, 0, None),
            (1, 2, None),
            (2, 1, Some(at(2))),
            (3, 1, Some(at(2))),
            (4, 0, Some(at(4))),
            (5, 1, Some(at(4))),
            (6, 2, None),
            (7, 3, None),
            (8, 2, Some(at(8))),
        ] {
            counted.count(following, at(second));
            assert_eq!((counted.following, counted.lost), (following, lost));
        }
        assert!(counted.lost(at(9)) && counted.lost(at(60)));
        counted.count(2, at(69));
        assert!(!counted.lost(at(70)) && counted.lost(at(80)));
    }

    #[test]
    fn a_subscriber_that_blocks_one_thread_does_not_block_the_identity_for_others() {
        let identity = Identity::new(Clock::default(), "server".to_owned(), false);
        let hear = |id: &str| {
            let info = Value::SimpleString(format!("run_id:{id}"));
            identity.hear(Ok(info.clone()), Ok(info)).unwrap();
        };
        hear("a");
        let (called, calls) = mpsc::channel();
        let (unblock, until) = mpsc::channel::<()>();
        let (done, others) = mpsc::channel();
        let soon = Duration::from_secs(10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let until = Mutex::new(until);
                // It reports that it was called, and then blocks until its sender is dropped.
                let subscriber = OnEvent(move || {
                    let _ = called.send(());
                    let _sender_gone = until.lock().recv();
                });
                subscriber.during(|| hear("b"));
            });
            calls.recv().expect("it logs that the server is another");
            scope.spawn(|| {
                hear("b");
                done.send(()).unwrap();
            });
            let other = others.recv_timeout(soon);
            drop(unblock);
            other.expect("the other thread sees the identity");
        });
        assert!(identity.reborn().is_some());
    }

    #[test]
    fn zero_replicas_are_believed_after_two_observations() {
        let mut counted = ReplicaCount::default();
        let at = |second| Moment(0) + Duration::from_secs(second);
        assert!(!counted.lost(at(0)));
        for (second, lost) in [(1, true), (2, false), (3, false), (60, true), (61, false)] {
            counted.count(0, at(second));
            assert_eq!(counted.lost(at(second)), lost, "{second}");
        }
    }
}
