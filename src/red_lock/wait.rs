//! The wait for a RedLock: round after round, each when enough instances may be free.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::acquire::{Caller, Round};
use super::part::Part;
use super::whole::Whole;
use crate::clock::Moment;
use crate::error::{Error, InstanceState, Result};
use crate::guard::Guard;
use crate::quorum::{Patience, Rules};
use crate::wait::{Place, Wake, Wish};

/// A caller that waits. Of all callers of this process one asks the instances: the contender in the
/// queue of the lock's home.
pub(super) struct Waiting<'a> {
    caller: &'a Caller<'a>,
    /// Places in the queues of the instances' clients, for the sake of their messages. The first one
    /// says whose turn it is; the others are taken when the lock is found busy.
    places: Vec<(usize, Place)>,
    patience: Patience,
    /// Subscriptions were asked for.
    listens: bool,
    rounds: u32,
    /// Up to when what an instance says does not count.
    quarantined: Vec<Moment>,
    /// Since when too few instances can be asked, and what the last round said of them.
    outage: Option<(Moment, Error)>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(caller: &'a Caller<'a>) -> Result<Self> {
        let members = caller.lock.parts().len();
        let need = Rules::need(members, caller.lock.masked);
        let mut waiting = Self {
            caller,
            places: Vec::new(),
            patience: Patience::new(members, need),
            listens: false,
            rounds: 0,
            quarantined: vec![Moment(0); members],
            outage: None,
        };
        waiting.line_up()?;
        Ok(waiting)
    }

    /// Takes its place in the queue of the first client that has one.
    fn line_up(&mut self) -> Result<()> {
        let mut entered = Err(Error::Closed);
        for member in 0..self.caller.lock.parts().len() {
            entered = self.enter(member);
            if entered.is_ok() {
                break;
            }
        }
        entered
    }

    /// The client of this instance was shut down: the others go on without it. An error if it was the
    /// last one.
    fn leave(&mut self, member: usize) -> Result<()> {
        self.places.retain(|(other, _)| *other != member);
        self.patience.out_of_reach(member);
        if self.places.is_empty() {
            self.line_up()?;
        }
        Ok(())
    }

    /// Takes a place in the queue of one instance's client.
    fn enter(&mut self, member: usize) -> Result<()> {
        let Caller { lock, owner, .. } = *self.caller;
        let part = &lock.parts()[member];
        let wish = Wish {
            owner,
            terms: None,
            deadline: self.caller.deadline,
        };
        let core = part.core();
        core.open()?;
        let place = core.waiters.enter(part.key(), wish, core.clock.now())?;
        self.places.push((member, place));
        Ok(())
    }

    pub(super) async fn wait(mut self) -> Result<Option<Guard>> {
        let caller = self.caller;
        let mut looked = false;
        loop {
            let core = self.part().core();
            if core.open().is_err() {
                self.leave(self.places[0].0)?;
                continue;
            }
            if let Some(guard) = caller.reenter().await? {
                self.has_lock();
                return Ok(Some(guard));
            }
            let now = core.clock.now();
            if looked && caller.deadline.is_some_and(|deadline| now >= deadline) {
                return match self.outage {
                    Some((_, error)) => Err(error),
                    None => Ok(None),
                };
            }
            let cap = now + core.clock.sooner(core.settings.poll_cap);
            if !self.is_contender(now) {
                looked = true;
                self.told(cap).await?;
                continue;
            }
            looked = true;
            let whole = match caller.round().await? {
                Round::Won(guard) => {
                    self.has_lock();
                    return Ok(Some(guard));
                }
                Round::Lost(whole) => whole,
            };
            self.learn(&whole)?;
            if self.listen().await? {
                continue;
            }
            let cap = core.clock.now() + self.pause();
            loop {
                let next = self.patience.next_round(cap);
                if core.clock.now() >= next || !self.told(next).await? {
                    break;
                }
            }
        }
    }

    /// The instance in whose client's queue it waits for its turn.
    fn part(&self) -> &'a Part {
        &self.caller.lock.parts()[self.places[0].0]
    }

    /// The longest wait for the next round.
    fn pause(&mut self) -> Duration {
        let core = self.part().core();
        let cap = core.settings.poll_cap;
        match core.settings.wake {
            Wake::PubSub => core.clock.sooner(cap),
            Wake::Poll(backoff) => {
                let pause = backoff.pause(self.rounds);
                self.rounds = self.rounds.saturating_add(1);
                core.clock.later(pause.min(cap))
            }
        }
    }

    fn is_contender(&self, now: Moment) -> bool {
        let (_, place) = &self.places[0];
        place.look(now).is_contender || place.take_over(now).is_some()
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
                InstanceState::NotAsked => self.patience.free(member),
                InstanceState::HeldByAnother { ttl } => {
                    // A TTL of n ms is over when n + 1 ms have passed for certain.
                    let until = ttl.map(|ttl| now + ttl + Duration::from_millis(1));
                    self.patience.busy(member, until);
                }
                InstanceState::Quarantined { left } => {
                    self.quarantined[member] = now + left;
                    self.patience.out_of_reach(member);
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
        match self.caller.no_quorum(whole) {
            None => self.outage = None,
            Some(error) => {
                let since = self.outage.as_ref().map_or(now, |(since, _)| *since);
                let patience = self.part().core().server.command_timeout();
                if self.caller.deadline.is_none() && now.since(since) >= patience {
                    return Err(error);
                }
                self.outage = Some((since, error));
            }
        }
        Ok(())
    }

    /// Hears the messages of every instance from now on. True if that is news: the lock may have been
    /// released before.
    async fn listen(&mut self) -> Result<bool> {
        let caller = self.caller;
        if self.places.len() == 1 {
            // Told of an instance that answers again, too. One whose client was shut down is not there.
            for member in self.places[0].0 + 1..caller.lock.parts().len() {
                let _entered = self.enter(member);
            }
        }
        if self.listens || self.outage.is_some() {
            return Ok(false);
        }
        self.listens = true;
        let subscriptions: FuturesUnordered<_> = self
            .places
            .iter()
            .map(|(member, place)| (caller.lock.parts()[*member].core(), place))
            .filter(|(core, _)| matches!(core.settings.wake, Wake::PubSub))
            .map(|(core, place)| {
                place.subscribed(core.server.source(), core.server.command_timeout())
            })
            .collect();
        // An instance that does not answer is not waited for.
        let limit = caller.deadline.map_or(LISTENING_SOON, |deadline| {
            LISTENING_SOON.min(deadline.since(caller.lock.clock().now()))
        });
        let all = subscriptions.collect::<Vec<()>>();
        let _all_in_time = tokio::time::timeout(limit, all).await;
        Ok(true)
    }

    /// Waits until one of the instances has something to tell, or until then. True if one did: it may
    /// be free.
    async fn told(&mut self, until: Moment) -> Result<bool> {
        let clock = self.caller.lock.clock();
        let until = self.caller.deadline.map_or(until, |end| end.min(until));
        let mut waits: FuturesUnordered<_> = self
            .places
            .iter()
            .map(|(member, place)| async move { (*member, place.wait(until).await) })
            .collect();
        let Some((member, ended)) = waits.next().await else {
            return Ok(false);
        };
        drop(waits);
        if ended.is_err() {
            self.leave(member)?;
            return Ok(true);
        }
        let now = clock.now();
        if now >= until {
            return Ok(false);
        }
        if now >= self.quarantined[member] {
            self.patience.free(member);
        }
        Ok(true)
    }

    /// The next in line has nothing to look at.
    fn has_lock(&self) {
        self.places[0].1.has_lock();
    }
}

/// A subscription takes a round trip, or a connection to be opened.
const LISTENING_SOON: Duration = Duration::from_millis(500);
