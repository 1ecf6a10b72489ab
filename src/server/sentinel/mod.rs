//! A master that sentinels monitor: which server it is now, by their answers.
//!
//! A sentinel that was cut off still names the old master. Each switch has a number, the sentinels'
//! `config-epoch`. The answer with the largest number counts. An answer with a smaller number does not replace
//! the master that the client knows.

mod sentinel_access;
mod sentinel_link;
mod switch_messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use redis::ConnectionInfo;
use tokio::sync::{Notify, watch};

use super::Context;
use super::failure::Failure;
use super::identity::Identity;
use super::membership::{GRACE, Membership, Witness};
use super::single_flight::{Attempt, SingleFlight};
use super::wire::{address_like, password};
use crate::clock::Moment;
use crate::error::Error;
use sentinel_access::SentinelAccess;
use sentinel_link::{NamedMaster, SentinelAnswer, SentinelLink};

/// The sentinels of one master.
pub(crate) struct Sentinels {
    /// The sentinels' name for the master.
    name: String,
    sentinels: Vec<SentinelAccess>,
    /// How to connect to the master at any address.
    master: ConnectionInfo,
    context: Context,
    identity: Arc<Identity>,
    /// Decides which sentinels monitor this master.
    membership: Mutex<Membership>,
    known: Mutex<LastElection>,
    /// When the master was last named, as a [`Moment`].
    named: AtomicU64,
    /// When it was last named by sentinels that consider it healthy, as a [`Moment`].
    sure: AtomicU64,
    /// Notified when a sentinel reports a switch, or when a caller needs a current answer.
    ask_now: Notify,
    /// Notified after each query to the sentinels.
    queried: watch::Sender<()>,
    /// All calls that need the master share one query.
    asking: SingleFlight<()>,
}

#[derive(Default)]
struct LastElection {
    master: Option<NamedMaster>,
    /// The master that a majority names without a larger epoch, and since when.
    doubted: Option<(NamedMaster, Moment)>,
}

impl Sentinels {
    pub(super) fn new(
        name: String,
        sentinels: Vec<ConnectionInfo>,
        master: ConnectionInfo,
        context: Context,
        identity: Arc<Identity>,
    ) -> Result<Self, Error> {
        let sentinels = sentinels.into_iter();
        let sentinels = sentinels.map(|it| SentinelAccess::new(it, &master));
        Ok(Self {
            name,
            sentinels: sentinels.collect::<Result<_, _>>()?,
            master,
            asking: SingleFlight::new(&context.clock),
            context,
            identity,
            membership: Mutex::default(),
            known: Mutex::default(),
            named: AtomicU64::new(0),
            sure: AtomicU64::new(0),
            ask_now: Notify::new(),
            queried: watch::Sender::new(()),
        })
    }

    /// Returns how to connect to the current master, and its term.
    pub(super) async fn master(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(redis::Client, u64), Failure> {
        self.ask_for_all(limit).await?;
        let (NamedMaster { host, port, .. }, term) = {
            let known = self.known.lock();
            let named = known.master.clone();
            let named =
                named.ok_or_else(|| Failure::Unsent("no sentinel names a master".into()))?;
            // Terms end under this lock, so the two belong together.
            (named, self.identity.term.current())
        };
        let address = address_like(&self.master, host, port);
        let client = redis::Client::open(self.master.clone().set_addr(address));
        let client = client.map_err(|error| Failure::of_connect(&error, password(&self.master)))?;
        Ok((client, term))
    }

    /// Asks the sentinels, or waits for the query in flight.
    async fn ask_for_all(self: &Arc<Self>, limit: Duration) -> Result<(), Failure> {
        let own = self.clone();
        let ask = || async move {
            let timeout = own.context.command_timeout;
            own.ask(&mut own.links(), timeout).await
        };
        let background = self.context.background.runtime();
        self.asking.get(background, limit, ask).await
    }

    /// The attempt to find the master.
    pub(super) fn attempt(&self) -> &dyn Attempt {
        &self.asking
    }

    /// When a sentinel last named the master whose connections are in use.
    pub(super) fn named(&self) -> Moment {
        Moment(self.named.load(Ordering::Acquire))
    }

    /// Waits until sentinels that were asked after `since` confirmed the master as healthy.
    pub(super) async fn confirm(&self, since: Moment) {
        let mut queried = self.queried.subscribe();
        while self.sure.load(Ordering::Acquire) < since.0 {
            self.ask_now.notify_one();
            // The sender lives in `self`.
            let _ = queried.changed().await;
        }
    }

    /// Asks the sentinels at this interval and whenever one announces a switch. Never ends.
    pub(super) async fn watch(&self, every: Duration) {
        let listen = |it| switch_messages::listen(it, &self.name, &self.ask_now);
        let loops: FuturesUnordered<_> = self.sentinels.iter().map(listen).collect();
        let asking = async {
            let mut links = self.links();
            loop {
                if let Err(failure) = self.ask(&mut links, ASK_TIMEOUT).await {
                    tracing::debug!(
                        target: "lockdog::server",
                        %failure, "no sentinel names the master"
                    );
                }
                self.queried.send_replace(());
                tokio::time::sleep(SHORTEST_PAUSE.min(every)).await;
                tokio::select! {
                    () = tokio::time::sleep(every) => {}
                    () = self.ask_now.notified() => {}
                }
            }
        };
        tokio::join!(loops.collect::<()>(), asking);
    }

    fn links(&self) -> Vec<SentinelLink<'_>> {
        self.sentinels.iter().map(SentinelLink::to).collect()
    }

    /// Asks all sentinels and processes the answers of a majority if these agree. Otherwise it waits a
    /// short time for the rest.
    async fn ask(&self, links: &mut [SentinelLink<'_>], limit: Duration) -> Result<(), Failure> {
        let began = self.context.clock.now();
        let enough = links.len() / 2 + 1;
        let mut pending: FuturesUnordered<_> = links
            .iter_mut()
            .map(|link| link.ask(&self.name, limit))
            .collect();
        let mut answers: Vec<SentinelAnswer> = Vec::new();
        let mut failed = Failure::Unsent("no sentinel answers".into());
        let mut timer = std::pin::pin!(tokio::time::sleep(limit));
        // Each sentinel that does not consider the master healthy requires one more answer, because a switch
        // may have begun.
        let is_enough = |answers: &[SentinelAnswer]| {
            let doubts = answers.iter().filter(|it| !it.is_well).count();
            let agree = answers.iter().all(|it| it.named == answers[0].named);
            agree && answers.len() >= enough + doubts
        };
        while !is_enough(&answers) {
            tokio::select! {
                answer = pending.next() => match answer {
                    Some(Ok(answer)) => {
                        if answers.is_empty() {
                            // After the first answer, the client waits only briefly for slower sentinels.
                            let soon = tokio::time::Instant::now() + GRACE.min(limit / 4);
                            timer.as_mut().reset(soon);
                        }
                        answers.push(answer);
                    }
                    Some(Err(failure)) => failed = failure,
                    None => break,
                },
                () = &mut timer => break,
            }
        }
        drop(pending);
        if answers.is_empty() {
            self.update_master(&[], false, began);
            return Err(failed);
        }
        let answers = self.of_ours(answers, began).inspect_err(|_| {
            self.update_master(&[], false, began);
        })?;
        let doubts = answers.iter().filter(|it| !it.is_well).count();
        let is_well = doubts * 2 < answers.len();
        let masters: Vec<NamedMaster> = answers.into_iter().map(|it| it.named).collect();
        self.update_master(&masters, is_well, began);
        Ok(())
    }

    /// Drops the answers of sentinels that monitor another master with the same name.
    fn of_ours(
        &self,
        answers: Vec<SentinelAnswer>,
        asked: Moment,
    ) -> Result<Vec<SentinelAnswer>, Failure> {
        let witnesses: Vec<_> = answers
            .iter()
            .map(|answer| Witness {
                ids: answer.ids.clone(),
                also: Some(format!(
                    "master {}:{}",
                    answer.named.host, answer.named.port
                )),
                is_seed: true,
                claims: true,
            })
            .collect();
        let seeds = self.sentinels.len();
        let believed = self.membership.lock().choose(&witnesses, seeds, asked)?;
        if believed.is_first_report {
            tracing::warn!(
                target: "lockdog::server",
                master = self.name,
                "ignoring a sentinel of another master with the same name"
            );
        }
        let answers = answers.into_iter().zip(believed.belongs);
        Ok(answers
            .filter_map(|(answer, belongs)| belongs.then_some(answer))
            .collect())
    }

    /// `is_well`: most of the sentinels consider the master healthy.
    fn update_master(&self, masters: &[NamedMaster], is_well: bool, asked: Moment) {
        let Some((before, now)) = self.believe(masters, is_well, asked) else {
            return;
        };
        // No lock is held, because wakers and log subscribers are the user's code.
        self.identity.term.notify();
        tracing::warn!(
            target: "lockdog::server",
            master = self.name, host = now.host, port = now.port,
            from = before.epoch, to = now.epoch,
            "the sentinels switched the master"
        );
    }

    /// Updates the known master from the answers. Returns the old and the new master, if this was a switch.
    fn believe(
        &self,
        masters: &[NamedMaster],
        is_well: bool,
        asked: Moment,
    ) -> Option<(NamedMaster, NamedMaster)> {
        let mut known = self.known.lock();
        // Without an answer, no majority names another master continuously any more.
        let Some(best) = masters.iter().max_by_key(|named| named.epoch) else {
            known.doubted = None;
            return None;
        };
        let Some(master) = known.master.clone() else {
            known.master = Some(best.clone());
            self.note_named(is_well, asked);
            return None;
        };
        let mut switch = None;
        // The same server with a larger epoch was replaced in between and took over again.
        let is_newer = best.epoch > master.epoch;
        if is_newer || (*best != master && self.is_sure(&mut known, best, masters, asked)) {
            known.doubted = None;
            known.master = Some(best.clone());
            if is_newer || !best.is_at(&master) {
                self.identity.end_term();
                switch = Some((master, best.clone()));
            }
        }
        // The best answer names the known master, and so confirms it.
        if known.master.as_ref().is_some_and(|it| it.is_at(best)) {
            self.note_named(is_well, asked);
        }
        switch
    }

    fn note_named(&self, is_well: bool, asked: Moment) {
        self.named.fetch_max(asked.0, Ordering::AcqRel);
        if is_well {
            self.sure.fetch_max(asked.0, Ordering::AcqRel);
        }
    }

    /// Whether an answer without a larger epoch counts: sentinels that were set up again restart their epochs. A
    /// majority must have given no other answer for [`DOUBT`], long enough for all sentinels to know a switch.
    fn is_sure(
        &self,
        known: &mut LastElection,
        best: &NamedMaster,
        masters: &[NamedMaster],
        asked: Moment,
    ) -> bool {
        let agreeing = masters.iter().filter(|named| *named == best).count();
        if agreeing <= self.sentinels.len() / 2 {
            known.doubted = None;
            return false;
        }
        match &known.doubted {
            Some((named, since)) if named == best => asked.since(*since) > DOUBT,
            _ => {
                known.doubted = Some((best.clone(), asked));
                false
            }
        }
    }
}

/// How long a majority must name another master without a larger epoch before that master counts.
const DOUBT: Duration = Duration::from_secs(10);
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use redis::IntoConnectionInfo;

    use super::*;
    use crate::clock::Clock;
    use crate::user_code::{FreeAtEachCall, OnEvent};

    fn named(port: u16, epoch: u64) -> NamedMaster {
        let host = "h".to_owned();
        NamedMaster { host, port, epoch }
    }

    fn three() -> Sentinels {
        let master = "redis://127.0.0.1:1".into_connection_info().unwrap();
        let context = Context::here(&Clock::default());
        let identity = Identity::new(context.clock.clone(), "orders".to_owned(), true);
        let identity = Arc::new(identity);
        let sentinels = vec![master.clone(); 3];
        Sentinels::new("orders".to_owned(), sentinels, master, context, identity).unwrap()
    }

    fn master(sentinels: &Sentinels) -> NamedMaster {
        sentinels.known.lock().master.clone().unwrap()
    }

    fn at(second: u64) -> Moment {
        Moment(0) + Duration::from_secs(second)
    }

    #[tokio::test]
    async fn a_partitioned_sentinel_cannot_restore_an_old_master() {
        let sentinels = three();
        sentinels.update_master(&[named(1, 5)], true, at(1));
        assert_eq!(
            (sentinels.identity.term.current(), sentinels.named()),
            (0, at(1))
        );
        // The latest switch counts, even if only one sentinel knows of it.
        sentinels.update_master(&[named(1, 5), named(2, 6)], true, at(2));
        assert_eq!(
            (master(&sentinels), sentinels.identity.term.current()),
            (named(2, 6), 1)
        );
        sentinels.update_master(&[named(1, 5)], true, at(3));
        assert_eq!(
            (master(&sentinels), sentinels.identity.term.current()),
            (named(2, 6), 1)
        );
        assert_eq!(sentinels.named(), at(2));
    }

    #[tokio::test]
    async fn a_switch_wakes_callers_and_is_logged_without_a_mutex_held() {
        let sentinels = Arc::new(three());
        sentinels.update_master(&[named(1, 5)], true, at(1));
        let seen = sentinels.clone();
        let free = FreeAtEachCall::new(move || seen.known.try_lock().is_some());
        let mut over = pin!(sentinels.identity.term.until_over(0));
        assert!(free.poll(over.as_mut()).is_pending());
        let subscriber = OnEvent(free.check());
        subscriber.during(|| {
            sentinels.update_master(&[named(2, 6)], true, at(2));
        });
        assert_eq!(free.calls(), [true, true]);
        assert!(free.poll(over.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_majority_with_a_smaller_epoch_is_believed_after_a_while() {
        let sentinels = three();
        sentinels.update_master(&[named(1, 5)], true, at(1));
        let again = [named(2, 0), named(2, 0)];
        sentinels.update_master(&again, true, at(2));
        // A sentinel that agrees with no other restarts the time.
        sentinels.update_master(&again[..1], true, at(8));
        sentinels.update_master(&again, true, at(9));
        sentinels.update_master(&again, true, at(19));
        assert_eq!(
            (master(&sentinels), sentinels.identity.term.current()),
            (named(1, 5), 0)
        );
        sentinels.update_master(&again, true, at(20));
        assert_eq!(
            (master(&sentinels), sentinels.identity.term.current()),
            (named(2, 0), 1)
        );
    }

    #[tokio::test]
    async fn a_master_that_sentinels_report_as_down_is_named_but_not_confirmed() {
        let sentinels = three();
        let sure = || sentinels.sure.load(Ordering::Acquire);
        sentinels.update_master(&[named(1, 5)], true, at(1));
        sentinels.update_master(&[named(1, 5), named(1, 5)], false, at(2));
        assert_eq!((sentinels.named(), sure()), (at(2), at(1).0));
        sentinels.update_master(&[named(1, 5)], true, at(3));
        assert_eq!(sure(), at(3).0);
    }
}
