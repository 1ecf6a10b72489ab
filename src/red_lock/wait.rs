//! The wait for a RedLock: round after round, each when enough instances may be free.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog_quorum::{Patience, Rules};

use super::acquire::{Caller, Round};
use super::part::Part;
use super::whole::Whole;
use crate::clock::Moment;
use crate::error::{Error, InstanceState, Result};
use crate::guard::Guard;
use crate::wait::{Ear, Place, Wish};

/// A caller that waits. Of all callers of this process one asks the instances: the contender in the
/// queue of this lock. The instances' own queues are for those who want one of them only, and neither
/// stands in the other's way.
pub(super) struct Waiting<'a> {
    caller: &'a Caller<'a>,
    /// The instance in whose client the queue is.
    home: &'a Part,
    place: Place,
    /// What hears of each instance, once the lock was found busy.
    ears: Vec<(usize, Ear)>,
    patience: Patience,
    /// Subscriptions were asked for.
    listens: bool,
    rounds: u32,
    /// Up to when what an instance says does not count.
    quarantined: Vec<Moment>,
    /// When this call last knew, others had the lock or were before it in the queue.
    is_busy: bool,
    /// Since when too few instances can be asked.
    outage: Option<Moment>,
}

/// What ended a wait.
enum Told {
    /// An instance may be free.
    Instance,
    /// Something is to be looked at from the beginning.
    Turn,
    Time,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(caller: &'a Caller<'a>) -> Result<Self> {
        let members = caller.lock.parts().len();
        let need = Rules::need(members, caller.lock.masked);
        let (home, place) = enter(caller)?;
        Ok(Self {
            caller,
            home,
            place,
            ears: Vec::new(),
            patience: Patience::new(members, need),
            listens: false,
            rounds: 0,
            quarantined: vec![Moment(0); members],
            is_busy: false,
            outage: None,
        })
    }

    pub(super) async fn wait(mut self) -> Result<Option<Guard>> {
        let caller = self.caller;
        let clock = caller.lock.clock();
        let mut looked = false;
        loop {
            caller.lock.open()?;
            if let Some(guard) = caller.reenter().await? {
                return Ok(Some(self.has_lock(guard)));
            }
            let now = clock.now();
            if looked && caller.deadline.is_some_and(|deadline| now >= deadline) {
                return self.place.outage().map_or(Ok(None), Err);
            }
            looked = true;
            let cap = now + clock.sooner(self.home.core().settings.poll_cap);
            if !self.is_contender(now) {
                self.is_busy = true;
                self.told(cap).await?;
                continue;
            }
            // While this process keeps a quorum of it, its waiters send nothing.
            if let Some(kept) = self.kept(now) {
                self.is_busy = true;
                // What ended before somebody heard of it has to be looked at again.
                if !self.listen_in() {
                    self.told(kept.min(cap)).await?;
                }
                continue;
            }
            if self.is_busy
                && let Some(deadline) = caller.deadline
                && deadline.since(now) < SHORTEST_ROUND
            {
                // Its answers would come too late, and what they grant would have to be undone.
                self.told(deadline).await?;
                continue;
            }
            self.place.promise(now + LONGEST_ROUND);
            let whole = match caller.round().await? {
                Round::Won(guard) => return Ok(Some(self.has_lock(guard))),
                Round::Lost(whole) => whole,
                Round::Elsewhere => continue,
            };
            self.learn(&whole)?;
            if self.listen().await {
                continue;
            }
            let cap = clock.now() + self.pause();
            loop {
                let next = self.patience.next_round(cap);
                if clock.now() >= next || !matches!(self.told(next).await?, Told::Instance) {
                    break;
                }
            }
        }
    }

    /// It got the lock, so enough instances answer, whatever was met before. Whoever is next in line
    /// is woken all the same: it has to hear when the lock is given back.
    fn has_lock(&self, guard: Guard) -> Guard {
        self.place.note_outage(None);
        guard
    }

    /// The longest wait for the next round.
    fn pause(&mut self) -> Duration {
        let core = self.home.core();
        let cap = core.settings.poll_cap;
        match core.backoff(self.home.key()) {
            None => core.clock.sooner(cap),
            Some(backoff) => {
                let pause = backoff.pause(self.rounds);
                self.rounds = self.rounds.saturating_add(1);
                core.clock.later(pause.min(cap))
            }
        }
    }

    fn is_contender(&self, now: Moment) -> bool {
        self.place.look(now).is_contender || self.place.take_over(now).is_some()
    }

    /// Up to when other owners of this process keep so many instances that no quorum is left.
    fn kept(&self, now: Moment) -> Option<Moment> {
        let Caller { lock, owner, .. } = *self.caller;
        let free_at = |part: &Part| part.core().holds.kept_from(part.key(), owner);
        let mut kept: Vec<Option<Moment>> = lock.parts().iter().map(free_at).collect();
        kept.sort_unstable();
        let need = Rules::need(kept.len(), lock.masked);
        kept[need - 1].filter(|until| *until > now)
    }

    /// Draws the lesson from a lost round.
    fn learn(&mut self, whole: &Arc<Whole>) -> Result<()> {
        let clock = &whole.clock;
        let now = clock.now();
        let mut acquired = false;
        for (member, instance) in whole
            .see(|state, _| whole.members(state))
            .into_iter()
            .enumerate()
        {
            match instance.state {
                InstanceState::Acquired => {
                    acquired = true;
                    self.patience.free(member);
                }
                InstanceState::Unanswered => self.patience.free(member),
                InstanceState::HeldByAnother { ttl } => {
                    // A TTL of n ms is over when n + 1 ms have passed for certain.
                    let until = ttl.map(|ttl| now + ttl + Duration::from_millis(1));
                    self.patience.busy(member, until);
                }
                InstanceState::Quarantined { left } => {
                    self.quarantined[member] = now + left;
                    self.patience.busy(member, Some(now + left));
                }
                _ => self.patience.out_of_reach(member),
            }
        }
        if acquired {
            // Lost to others who want it too, or for a reason that the next round would find again.
            let began = whole.see(|state, _| state.quorum.began());
            self.patience.collided(now.since(began), clock.part(), now);
        } else {
            self.patience.was_held();
        }
        let Some(error) = self.caller.no_quorum(whole) else {
            self.is_busy = true;
            self.outage = None;
            self.place.note_outage(None);
            return Ok(());
        };
        let began = whole.see(|state, _| state.quorum.began());
        let is_over = self.caller.deadline.is_some_and(|end| now >= end);
        if is_over && self.is_busy && now.since(began) < SILENCE {
            // The end of the wait came between the questions and their answers: what was known before
            // is the last that is known.
            return Ok(());
        }
        let since = *self.outage.get_or_insert(now);
        let is_long = now.since(since) >= self.home.core().server.command_timeout();
        if is_long && self.caller.deadline.is_none() {
            self.place.note_outage(Some(&error));
            return Err(error);
        }
        self.place.remember_outage(Some(&error));
        Ok(())
    }

    /// Hears of every instance from now on, as far as this process knows of it; one whose client was
    /// shut down is not there. True if that is news.
    fn listen_in(&mut self) -> bool {
        if !self.ears.is_empty() {
            return false;
        }
        let Caller { lock, owner, .. } = *self.caller;
        for (member, part) in lock.parts().iter().enumerate() {
            if let Ok(ear) = part.core().waiters.listen_in(part.key(), owner) {
                self.ears.push((member, ear));
            }
        }
        true
    }

    /// Hears the messages of every instance from now on. True if that is news: the lock may have been
    /// released before.
    async fn listen(&mut self) -> bool {
        let caller = self.caller;
        // In an outage, to be told of an instance that answers again.
        self.listen_in();
        if self.listens || self.outage.is_some() {
            return false;
        }
        self.listens = true;
        let clock = caller.lock.clock();
        let now = clock.now();
        self.place.promise(now + LISTENING_SOON);
        let subscriptions: FuturesUnordered<_> = self
            .ears
            .iter()
            .map(|(member, ear)| (&caller.lock.parts()[*member], ear))
            .filter(|(part, _)| part.core().backoff(part.key()).is_none())
            .map(|(part, ear)| ear.subscribed(&part.core().server))
            .collect();
        // An instance that does not answer is not waited for.
        let limit = caller.deadline.map_or(LISTENING_SOON, |deadline| {
            LISTENING_SOON.min(deadline.since(now))
        });
        let all = subscriptions.collect::<Vec<()>>();
        let _all_in_time = tokio::time::timeout(limit, all).await;
        true
    }

    /// Waits until there is something to look at, but not beyond `until`.
    async fn told(&mut self, until: Moment) -> Result<Told> {
        let clock = self.caller.lock.clock();
        let until = self.caller.deadline.map_or(until, |end| end.min(until));
        let (heard, ended) = {
            let mut ears: FuturesUnordered<_> = self
                .ears
                .iter()
                .map(|(member, ear)| async move { (*member, ear.wait(until).await) })
                .collect();
            tokio::select! {
                biased;
                ended = self.place.wait(until) => (None, ended),
                Some((member, ended)) = ears.next() => (Some(member), ended),
            }
        };
        match (heard, ended) {
            (Some(member), Err(_)) => {
                // Its client was shut down: the others go on without it.
                self.ears.retain(|(other, _)| *other != member);
                self.patience.out_of_reach(member);
                return Ok(Told::Instance);
            }
            (None, Err(Error::Closed)) => {
                // So was the one with the queue.
                (self.home, self.place) = enter(self.caller)?;
                return Ok(Told::Turn);
            }
            (_, ended) => ended?,
        }
        let now = clock.now();
        if now >= until {
            return Ok(Told::Time);
        }
        let Some(member) = heard else {
            return Ok(Told::Turn);
        };
        if now >= self.quarantined[member] {
            self.patience.free(member);
        }
        Ok(Told::Instance)
    }
}

/// Takes the last place in the queue, with the first client that is there.
fn enter<'a>(caller: &Caller<'a>) -> Result<(&'a Part, Place)> {
    let wish = Wish {
        owner: caller.owner,
        terms: None,
        deadline: caller.deadline,
    };
    for part in caller.lock.parts() {
        let core = part.core();
        match core
            .waiters
            .enter(&caller.lock.queue, wish, core.clock.now())
        {
            Err(Error::Closed) => {}
            entered => return entered.map(|place| (part, place)),
        }
    }
    Err(Error::Closed)
}

/// A round and what follows from it take no longer: two looks of half a second, if there is a token.
const LONGEST_ROUND: Duration = Duration::from_secs(1);

/// With less time than this left, one who knows the lock as busy begins no round.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);

/// A round without an answer for this long is more than busy servers.
const SILENCE: Duration = Duration::from_millis(50);

/// A subscription takes a round trip, or a connection to be opened.
const LISTENING_SOON: Duration = Duration::from_millis(500);
