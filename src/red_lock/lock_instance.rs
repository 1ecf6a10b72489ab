//! One instance of a RedLock: a lock on a client of its own, and the queries to it.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::{Answer, Register, Rules, quarantine};
use uuid::Uuid;

use super::instance_acquire::InstanceAcquire;
use super::instance_answer::InstanceAnswer;
use crate::clock::Moment;
use crate::error::{Error, Instance, InstanceState, LostReason};
use crate::hold::{Hold, OwnerState};
use crate::key::LockKey;
use crate::script::{self, InstanceChecks, MarkReply, RenewReply};
use crate::server::{Addressee, DataLoss, Failure, Sent, TimeBox};
use crate::session::{AttemptOutcome, Core, PendingAcquire, Session};
use crate::wait::Backoff;

/// A lock that is one instance of a RedLock.
pub(super) struct LockInstance {
    session: Arc<Session>,
    key: Arc<LockKey>,
    /// The pauses that the lock's handle sets for itself.
    own_backoff: Option<Backoff>,
}

impl LockInstance {
    pub(super) fn new(
        session: Arc<Session>,
        key: Arc<LockKey>,
        own_backoff: Option<Backoff>,
    ) -> Self {
        Self {
            session,
            key,
            own_backoff,
        }
    }

    /// The pauses between two attempts; `None` if messages announce its release.
    pub(super) fn backoff(&self) -> Option<Backoff> {
        let own = self.own_backoff;
        own.or_else(|| self.core().backoff(&self.key))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    pub(super) fn key(&self) -> &Arc<LockKey> {
        &self.key
    }

    /// Its position among the instances, which does not depend on the order in which the caller gave them.
    pub(super) fn waiter(&self) -> (Uuid, &str) {
        (self.core().id, self.key.key())
    }

    /// Whether it is the same lock of the same client.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.waiter() == other.waiter()
    }

    pub(super) fn report(&self, state: InstanceState) -> Instance {
        Instance {
            lock: self.key.name().to_owned(),
            server: self.core().server.address(),
            state,
            token: None,
        }
    }

    /// Acquires the lock on this instance.
    ///
    /// # Cancel safety
    ///
    /// The effects of the acquire are undone in the background.
    pub(super) async fn take(&self, taking: &InstanceAcquire<'_>) -> InstanceAnswer {
        let clock = &self.core().clock;
        let began = clock.now();
        let answer = self.try_take(taking).await;
        answer.unwrap_or_else(|error| InstanceAnswer::failed(error.after(clock.now().since(began))))
    }

    async fn try_take(&self, taking: &InstanceAcquire<'_>) -> Result<InstanceAnswer, Error> {
        let core = self.core();
        self.has_answered()?;
        let mut was_lost = false;
        loop {
            // The server may have changed since the last iteration.
            let guards = InstanceChecks {
                quarantine: core
                    .settings
                    .quarantine_on_server
                    .then(|| quarantine::period(taking.max_lease)),
                register: taking.is_fenced,
            };
            let lost = core.server.lost_at(self.key.key());
            if let Some(left) = self.quarantined(lost, taking) {
                return Ok(InstanceAnswer::from(Answer::Quarantined(left)));
            }
            let (now, until) = (core.clock.now(), taking.until);
            let mut acquiring = match core.owner_state(&self.key, taking.owner) {
                OwnerState::Holding(hold) => {
                    PendingAcquire::again(&self.session, hold, now, until).await?
                }
                // An earlier round may be processing that loss, and drop its claim soon. This waits once.
                OwnerState::Lost(..) if !was_lost => {
                    was_lost = true;
                    core.clock.sleep_until(until.min(now + A_MOMENT)).await;
                    continue;
                }
                OwnerState::Lost(_, lost) => return Err(Error::Lost(lost)),
                OwnerState::Acquiring | OwnerState::Nothing => {
                    self.released(taking).await?;
                    PendingAcquire::first(&self.session, &self.key, taking.owner)
                }
            };
            acquiring.addressee = Some(taking.addressee.clone());
            // The quorum's core gives the request up before this limit, and may ask again.
            acquiring.accept_limit = Some(2 * Rules::answer_limit(taking.terms.lease));
            let now = core.clock.now();
            let attempted = acquiring
                .attempt_member(&taking.terms, guards, now, until)
                .await
                .map_err(|error| error.after(core.clock.now().since(now)))
                .inspect_err(|error| self.suspect_asked(acquiring.sent(), error))?;
            if let Some(left) = attempted.quarantined {
                return Ok(InstanceAnswer::from(Answer::Quarantined(left)));
            }
            // The command named the last data loss that the client knew. After a newer one, the register's
            // value does not count.
            let register = |lost: DataLoss| {
                attempted.register.map(|register| Register {
                    value: register.value,
                    time: register.time,
                    reborn: register.fresh || lost.since != attempted.asked_since,
                })
            };
            match attempted.attempt {
                AttemptOutcome::Granted(claim) => {
                    let claim = taking.judged.keep(taking.round, claim.into_part());
                    // Checked for the server that answered. It may be another one than the slot map named
                    // at first.
                    let lost = match core
                        .server
                        .judge(self.key.key(), acquiring.sent(), until)
                        .await
                    {
                        Ok(lost) => lost,
                        // The drop of the claim releases the lock on this instance. A later round asks
                        // again.
                        Err(failure) => return Ok(InstanceAnswer::failed(failure.into())),
                    };
                    if let Some(left) = self.quarantined(lost, taking) {
                        return Ok(InstanceAnswer::from(Answer::Quarantined(left)));
                    }
                    let Some(claim) = claim.accept() else {
                        return Err(Error::timeout(core.clock.now().since(now)));
                    };
                    return Ok(InstanceAnswer {
                        answer: Answer::Taken(register(lost)),
                        claim: Some(claim),
                        cause: None,
                    });
                }
                AttemptOutcome::Busy(ttl) => {
                    let on = acquiring.sent().on.as_ref();
                    let lost = on.map_or(lost, |on| core.server.lost(self.key.key(), on));
                    let register = register(lost).map(|register| Register {
                        // A moved slot may have lost part of its data; this is not known here.
                        reborn: register.reborn || acquiring.sent().moved,
                        ..register
                    });
                    return Ok(InstanceAnswer::from(Answer::Busy(ttl, register)));
                }
                AttemptOutcome::Lost(lost) => return Err(Error::Lost(lost)),
                // A force unlock came before the grant was read.
                AttemptOutcome::Ended if core.clock.now() < until => core.ensure_open()?,
                AttemptOutcome::Ended | AttemptOutcome::TooLate => {
                    let waited = core.clock.now().since(now);
                    return Err(Error::timeout(waited));
                }
            }
        }
    }

    /// Waits, for at most half of the time left, until this client has settled a hold that it is
    /// releasing on this instance. The hold of a guard that was just dropped must not count as another owner's.
    async fn released(&self, taking: &InstanceAcquire<'_>) -> Result<(), Error> {
        let core = self.core();
        let Some(releasing) = core.holds.releasing(&self.key) else {
            return Ok(());
        };
        let began = core.clock.now();
        // The other half is for the query.
        let until = began + taking.until.since(began) / 2;
        let listener = core.waiters.add_listener(&self.key, taking.owner)?;
        let number = releasing.number();
        // A release that failed is repeated immediately, on another connection. This call does not wait for one
        // that fails for longer.
        let is_awaited = || {
            let is_there = core.holds.numbered(&self.key, number).is_some();
            let is_soon = core.clock.now() < began + REPEATED_SOON;
            is_there && (is_soon || !releasing.state().unsettled)
        };
        while core.clock.now() < until && is_awaited() {
            listener
                .wait(until.min(core.clock.now() + RELEASED_SOON))
                .await?;
        }
        Ok(())
    }

    /// Extends the lease on this instance, on the client's own thread.
    pub(super) async fn extend(
        &self,
        hold: &Arc<Hold>,
        lease: Duration,
        until: Moment,
    ) -> InstanceAnswer {
        let core = self.core();
        let now = core.clock.now();
        if !hold.state().is_valid(now) {
            return InstanceAnswer::from(Answer::NotOurs);
        }
        // The suspicion may come from one caller's connection that timed out. Then a probe clears it soon.
        while let Err(error) = self.has_answered() {
            let now = core.clock.now();
            if now >= until || core.ensure_open().is_err() {
                return InstanceAnswer::failed(error);
            }
            core.clock.sleep_until(until.min(now + A_MOMENT)).await;
        }
        let addressee = Addressee::default();
        let mut answer = std::pin::pin!(core.extend(hold, lease, lease, &addressee));
        let answer = match tokio::time::timeout(until.since(now), &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                // The answer may still come. Until then, send nothing more to this server.
                let silence = Failure::silent(until.since(now));
                core.server.suspect_addressee(&addressee, &silence);
                answer.await
            }
        };
        match answer {
            Ok(RenewReply::Extended) if hold.state().is_living() => {
                InstanceAnswer::from(Answer::Extended)
            }
            Ok(RenewReply::Extended | RenewReply::Missing) => InstanceAnswer::from(Answer::NotOurs),
            Ok(RenewReply::Unknown) => {
                let cause = "the server could not extend the lease".into();
                InstanceAnswer::failed(Error::Unavailable { cause })
            }
            Err(failure) => {
                let error = failure.into();
                if let Some(silence) = silence(&error) {
                    core.server.suspect_addressee(&addressee, &silence);
                }
                InstanceAnswer::failed(error)
            }
        }
    }

    /// Writes a fencing token to the register.
    pub(super) async fn mark(
        &self,
        hold: &Arc<Hold>,
        token: u64,
        lease: Duration,
        until: Moment,
    ) -> InstanceAnswer {
        let core = self.core();
        if let Err(error) = self.has_answered() {
            return InstanceAnswer::failed(error);
        }
        let now = core.clock.now();
        hold.state().sending(until, lease);
        let mut sent = Sent::default();
        let marked = script::mark(
            &core.server,
            &self.key,
            &core.field(hold),
            token,
            lease,
            TimeBox { now, until },
            &mut sent,
        )
        .await;
        match marked {
            Ok(MarkReply::Done) => {
                core.note_renewed(hold, now, lease);
                InstanceAnswer::from(Answer::Marked)
            }
            Ok(MarkReply::Conflict(token)) => InstanceAnswer::from(Answer::Conflict(token)),
            Ok(MarkReply::Lost) => {
                core.lose(hold, LostReason::NotOurs);
                InstanceAnswer::from(Answer::NotOurs)
            }
            Err(failure) => {
                let error = failure.into();
                self.suspect_asked(&sent, &error);
                InstanceAnswer::failed(error)
            }
        }
    }

    /// An error if the client is closed, or if the server is suspected not to answer.
    fn has_answered(&self) -> Result<(), Error> {
        self.core().ensure_open()?;
        match self.core().server.suspected(self.key.key()) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// How long the instance does not count because it may have lost its data.
    fn quarantined(&self, lost: DataLoss, taking: &InstanceAcquire<'_>) -> Option<Duration> {
        quarantine::left(lost.seen, taking.max_lease, self.core().clock.now())
    }

    /// Suspects the server that an acquire in flight was sent to, if it was sent. This may be another server
    /// than the slot map names (design: invariant 15).
    pub(super) fn suspect_late(&self, addressee: &Addressee, waited: Duration) {
        let silence = Failure::silent(waited);
        self.core().server.suspect_addressee(addressee, &silence);
    }

    /// Suspects the server where the query failed: it gets no query until it has answered a probe.
    fn suspect_asked(&self, sent: &Sent, error: &Error) {
        if let Some(silence) = silence(error) {
            self.core().server.suspect_asked(sent, &silence);
        }
    }
}

/// The failure to record for a server that did not answer; `None` for other errors.
fn silence(error: &Error) -> Option<Failure> {
    match error {
        Error::Timeout { waited, .. } => Some(Failure::silent(*waited)),
        Error::Unavailable { cause } => Some(Failure::Unsent(cause.clone())),
        _ => None,
    }
}

const RELEASED_SOON: Duration = Duration::from_millis(10);

const REPEATED_SOON: Duration = Duration::from_millis(100);

const A_MOMENT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod on_servers {
    use super::super::judged_claim::JudgedClaim;
    use super::*;
    use crate::client::Client;
    use crate::hold::Terms;
    use crate::owner::Owner;
    use crate::support::cluster::{Node, slot};
    use crate::support::{Action, Cluster, named};

    const NAME: &str = "l";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_server_that_was_asked_is_suspected_not_the_server_in_the_slot_map() {
        let (_cluster, client, owner, other) = two_masters().await;
        send_on(&owner, &other);

        let instance = instance(&client);
        let answer = instance
            .take(&taking(&instance, &JudgedClaim::default()))
            .await;
        assert!(matches!(answer.answer, Answer::Failed));
        assert_eq!(suspects(&instance), [address(&other)]);
    }

    /// A round ends while the acquire is still in flight. By then it went to the server that MOVED named.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_acquire_in_flight_suspects_the_server_it_was_sent_to() {
        let (_cluster, client, owner, other) = two_masters().await;
        send_on(&owner, &other);

        let instance = instance(&client);
        let judged = JudgedClaim::default();
        let taking = taking(&instance, &judged);
        let suspected = async {
            while !suspects(&instance).contains(&address(&other)) {
                instance.suspect_late(&taking.addressee, Duration::from_millis(500));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            () = suspected => {}
            _ = instance.take(&taking) => panic!("the acquire ended before its server was suspected"),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_extension_suspects_the_server_it_was_sent_to() {
        let (_cluster, client, owner, other) = two_masters().await;
        let instance = instance(&client);
        let taken = instance
            .take(&taking(&instance, &JudgedClaim::default()))
            .await;
        let claim = taken.claim.expect("it is free");
        send_on(&owner, &other);

        // Extending takes up to a third of the lease; the server must be suspected before that.
        let lease = Duration::from_secs(18);
        let until = instance.core().clock.now() + Duration::from_secs(3);
        let early = async {
            while suspects(&instance).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            suspects(&instance)
        };
        let (answer, early) = tokio::join!(instance.extend(claim.hold(), lease, until), early);
        assert_eq!(early, [address(&other)]);
        assert!(matches!(answer.answer, Answer::Failed));
        assert_eq!(suspects(&instance), [address(&other)]);
    }

    /// A cluster of two masters, a client of it, and the masters: the lock's owner, and the other one.
    async fn two_masters() -> (Cluster, Client, Arc<Node>, Arc<Node>) {
        let cluster = Cluster::builder(2, 0).announce_proxies().start().await;
        let owner = cluster.owner_of(NAME).await;
        let other = cluster.nodes.iter().find(|node| node.id != owner.id);
        let other = other.expect("there are two").clone();
        let client = Client::connect(cluster.url()).await.unwrap();
        (cluster, client, owner, other)
    }

    /// The owner redirects every caller to the other node, which does not answer.
    fn send_on(owner: &Node, other: &Node) {
        let moved = format!("-MOVED {} {}", slot(NAME), address(other));
        let send_on = Action::ReplyWith(moved);
        owner.proxy().on(named("EVALSHA"), send_on.clone()).always();
        owner.proxy().on(named("EVAL"), send_on).always();
        for command in ["EVALSHA", "EVAL", "PING"] {
            let stay_silent = Action::DropReply;
            other.proxy().on(named(command), stay_silent).always();
        }
        // Otherwise an unfounded suspicion would soon be cleared.
        owner.proxy().on(named("PING"), Action::DropReply).always();
    }

    fn address(node: &Node) -> String {
        format!("127.0.0.1:{}", node.port())
    }

    fn instance(client: &Client) -> LockInstance {
        let lock = client.lock(NAME);
        LockInstance::new(lock.session().clone(), lock.key().unwrap().clone(), None)
    }

    fn suspects(instance: &LockInstance) -> Vec<String> {
        let suspects = instance.core().server.suspects();
        suspects.iter().map(|node| node.address()).collect()
    }

    fn taking<'a>(instance: &LockInstance, judged: &'a JudgedClaim) -> InstanceAcquire<'a> {
        let lease = Duration::from_secs(100);
        InstanceAcquire {
            owner: Owner::new(),
            terms: Terms::new(lease, false),
            is_fenced: false,
            max_lease: lease,
            until: instance.core().clock.now() + Duration::from_secs(3),
            addressee: Addressee::default(),
            round: 1,
            judged,
        }
    }
}
