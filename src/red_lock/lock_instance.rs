//! One instance of a RedLock: a lock on a client of its own, and what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::{Answer, Register, quarantine};
use uuid::Uuid;

use super::instance_answer::InstanceAnswer;
use crate::clock::Moment;
use crate::error::{Error, Instance, InstanceState, LostReason};
use crate::hold::{Hold, OwnerState, Terms};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::script::{self, InstanceChecks, MarkReply, RenewReply};
use crate::server::{Addressee, DataLoss, Failure, Sent, TimeBox};
use crate::session::{AttemptOutcome, Core, PendingAcquire, Session};

/// A lock that is an instance of a bigger one.
pub(super) struct LockInstance {
    session: Arc<Session>,
    key: Arc<LockKey>,
}

/// What an instance is asked for in a first round, or to heal.
#[derive(Clone, Copy)]
pub(super) struct InstanceAcquire {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) is_fenced: bool,
    /// The longest lease that anybody asks of these instances.
    pub(super) max_lease: Duration,
    /// The answer is not waited for beyond this.
    pub(super) until: Moment,
}

impl LockInstance {
    pub(super) fn new(session: Arc<Session>, key: Arc<LockKey>) -> Self {
        Self { session, key }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    pub(super) fn key(&self) -> &Arc<LockKey> {
        &self.key
    }

    /// Where it stands among others, whatever order they were given in.
    pub(super) fn waiter(&self) -> (Uuid, &str) {
        (self.core().id, self.key.key())
    }

    /// It is the same lock of the same client.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.waiter() == other.waiter()
    }

    pub(super) fn report(&self, state: InstanceState) -> Instance {
        Instance {
            lock: self.key.name().to_owned(),
            server: self.core().server.address(),
            state,
        }
    }

    /// Acquires the lock there.
    ///
    /// # Cancel safety
    ///
    /// Whatever it did is undone in the background.
    pub(super) async fn take(&self, taking: &InstanceAcquire) -> InstanceAnswer {
        let clock = &self.core().clock;
        let began = clock.now();
        let told = self.try_take(taking).await;
        told.unwrap_or_else(|error| InstanceAnswer::failed(error.after(clock.now().since(began))))
    }

    async fn try_take(&self, taking: &InstanceAcquire) -> Result<InstanceAnswer, Error> {
        let core = self.core();
        self.has_answered()?;
        let mut was_lost = false;
        loop {
            // The server may be another than at the last look.
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
            let mut acquiring = match core.holds.standing(&self.key, taking.owner) {
                OwnerState::Holding(hold) => {
                    PendingAcquire::again(&self.session, hold, now, until).await?
                }
                // An earlier round may be about to take that in, and to give its claim up.
                OwnerState::Lost(_) if !was_lost => {
                    was_lost = true;
                    core.clock.sleep_until(until.min(now + A_MOMENT)).await;
                    continue;
                }
                OwnerState::Lost(lost) => return Err(Error::Lost(lost)),
                OwnerState::Forgotten(hold) => {
                    core.report_lost(&hold);
                    continue;
                }
                OwnerState::Acquiring | OwnerState::Nothing => {
                    self.released(taking).await?;
                    PendingAcquire::first(&self.session, &self.key, taking.owner)
                }
            };
            let now = core.clock.now();
            let looked = acquiring
                .attempt_as_member(&taking.terms, guards, now, until)
                .await
                .map_err(|error| error.after(core.clock.now().since(now)))
                .inspect_err(|error| self.suspect_asked(acquiring.sent(), error))?;
            if let Some(left) = looked.quarantined {
                return Ok(InstanceAnswer::from(Answer::Quarantined(left)));
            }
            let lost = if matches!(looked.attempt, AttemptOutcome::Granted(_)) {
                // By the server that answered, which may be another than at the first look.
                match core
                    .server
                    .judge(self.key.key(), acquiring.sent(), until)
                    .await
                {
                    Ok(lost) => lost,
                    // It is given back, and asked for again.
                    Err(failure) => return Ok(InstanceAnswer::failed(failure.into())),
                }
            } else {
                let on = acquiring.sent().on.as_ref();
                on.map_or(lost, |on| core.server.lost(self.key.key(), on))
            };
            let register = looked.register.map(|register| Register {
                value: register.value,
                time: register.time,
                // Asked as one that it is no more, it said nothing that counts.
                reborn: register.fresh || lost.since != looked.asked_since,
            });
            match looked.attempt {
                AttemptOutcome::Granted(claim) => {
                    return Ok(match self.quarantined(lost, taking) {
                        Some(left) => InstanceAnswer::from(Answer::Quarantined(left)),
                        None => InstanceAnswer {
                            answer: Answer::Taken(register),
                            claim: Some(claim.into_part()),
                            cause: None,
                        },
                    });
                }
                AttemptOutcome::Busy(ttl) => {
                    let register = register.map(|register| Register {
                        // Whether it moved with all that is in it is not known here.
                        reborn: register.reborn || acquiring.sent().moved,
                        ..register
                    });
                    return Ok(InstanceAnswer::from(Answer::Busy(ttl, register)));
                }
                AttemptOutcome::Lost(lost) => return Err(Error::Lost(lost)),
                // Freed by force before the grant was read.
                AttemptOutcome::Ended if core.clock.now() < until => core.ensure_open()?,
                AttemptOutcome::Ended | AttemptOutcome::TooLate => {
                    let waited = core.clock.now().since(now);
                    return Err(Error::timeout(waited));
                }
            }
        }
    }

    /// Waits until what this client gave up there is settled, unless that takes long: a guard dropped
    /// just now must not look like somebody else's lock.
    async fn released(&self, taking: &InstanceAcquire) -> Result<(), Error> {
        let core = self.core();
        let Some(releasing) = core.holds.releasing(&self.key) else {
            return Ok(());
        };
        let began = core.clock.now();
        // The rest is for the question.
        let until = began + taking.until.since(began) / 2;
        let ear = core.waiters.add_listener(&self.key, taking.owner)?;
        let number = releasing.number();
        let is_awaited = || {
            let is_there = core.holds.numbered(&self.key, number).is_some();
            is_there && !releasing.state().unsettled
        };
        while core.clock.now() < until && is_awaited() {
            ear.wait(until.min(core.clock.now() + RELEASED_SOON))
                .await?;
        }
        Ok(())
    }

    /// Extends the lease of what is held there, on the client's own thread.
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
        // A caller may have found it late on a connection of its own: a sign of life comes soon then.
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
                // It may come yet; but nothing more is asked before it does.
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

    /// Writes a fencing token down.
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
                let answered = core.clock.now();
                core.holds
                    .change(hold, |state| state.renew(now, lease, answered));
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

    /// An error if it is known that it would not answer.
    fn has_answered(&self) -> Result<(), Error> {
        self.core().ensure_open()?;
        match self.core().server.suspected(self.key.key()) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// How long the instance does not count, because it may have lost its data.
    fn quarantined(&self, lost: DataLoss, taking: &InstanceAcquire) -> Option<Duration> {
        quarantine::left(lost.seen, taking.max_lease, self.core().clock.now())
    }

    /// Asks it nothing more until it has answered a probe, if it did not answer. For an acquire that is
    /// still under way: to whom it went is not known.
    pub(super) fn suspect(&self, error: &Error) {
        if let Some(silence) = silence(error) {
            self.core().server.suspect(self.key.key(), &silence);
        }
    }

    /// The same of the server where the question failed, which may be another than the map names
    /// (design: invariant 15).
    fn suspect_asked(&self, sent: &Sent, error: &Error) {
        if let Some(silence) = silence(error) {
            self.core().server.suspect_asked(sent, &silence);
        }
    }
}

/// The failure of a server that did not answer, if it is one.
fn silence(error: &Error) -> Option<Failure> {
    match error {
        Error::Timeout { waited, .. } => Some(Failure::silent(*waited)),
        Error::Unavailable { cause } => Some(Failure::Unsent(cause.clone())),
        _ => None,
    }
}

const RELEASED_SOON: Duration = Duration::from_millis(10);

const A_MOMENT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::support::cluster::{Node, slot};
    use crate::support::{Action, Cluster, named};

    const NAME: &str = "l";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_server_that_was_asked_is_suspected_and_not_the_one_that_the_map_names() {
        let cluster = Cluster::builder(2, 0).announce_proxies().start().await;
        let owner = cluster.owner_of(NAME).await;
        let other = cluster.nodes.iter().find(|node| node.id != owner.id);
        let other = other.expect("there are two");
        let client = Client::connect(cluster.url()).await.unwrap();
        send_on(&owner, other);

        let instance = instance(&client);
        let told = instance.take(&taking(&instance)).await;
        assert!(matches!(told.answer, Answer::Failed));
        assert_eq!(suspects(&instance), [address(other)]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_server_that_was_asked_to_extend_is_suspected_before_its_answer_and_after() {
        let cluster = Cluster::builder(2, 0).announce_proxies().start().await;
        let owner = cluster.owner_of(NAME).await;
        let other = cluster.nodes.iter().find(|node| node.id != owner.id);
        let other = other.expect("there are two");
        let client = Client::connect(cluster.url()).await.unwrap();
        let instance = instance(&client);
        let taken = instance.take(&taking(&instance)).await;
        let claim = taken.claim.expect("it is free");
        send_on(&owner, other);

        // The question takes a third of the lease, and is suspected of silence before.
        let lease = Duration::from_secs(18);
        let until = instance.core().clock.now() + Duration::from_secs(3);
        let early = async {
            while suspects(&instance).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            suspects(&instance)
        };
        let (told, early) = tokio::join!(instance.extend(claim.hold(), lease, until), early);
        assert_eq!(early, [address(other)]);
        assert!(matches!(told.answer, Answer::Failed));
        assert_eq!(suspects(&instance), [address(other)]);
    }

    /// The owner sends whoever asks to the other one, which says nothing any more.
    fn send_on(owner: &Node, other: &Node) {
        let moved = format!("-MOVED {} {}", slot(NAME), address(other));
        let send_on = Action::ReplyWith(moved);
        owner.proxy().on(named("EVALSHA"), send_on.clone()).always();
        owner.proxy().on(named("EVAL"), send_on).always();
        for command in ["EVALSHA", "EVAL", "PING"] {
            let stay_silent = Action::DropReply;
            other.proxy().on(named(command), stay_silent).always();
        }
        // Suspected for nothing, it would soon be cleared otherwise.
        owner.proxy().on(named("PING"), Action::DropReply).always();
    }

    fn address(node: &Node) -> String {
        format!("127.0.0.1:{}", node.port())
    }

    fn instance(client: &Client) -> LockInstance {
        let lock = client.lock(NAME);
        LockInstance::new(lock.session().clone(), lock.key().unwrap().clone())
    }

    fn suspects(instance: &LockInstance) -> Vec<String> {
        let suspects = instance.core().server.suspects();
        suspects.iter().map(|node| node.address()).collect()
    }

    fn taking(instance: &LockInstance) -> InstanceAcquire {
        let lease = Duration::from_secs(100);
        InstanceAcquire {
            owner: Owner::new(),
            terms: Terms {
                lease,
                watched: false,
                max_hold: None,
                local: false,
            },
            is_fenced: false,
            max_lease: lease,
            until: instance.core().clock.now() + Duration::from_secs(3),
        }
    }
}
