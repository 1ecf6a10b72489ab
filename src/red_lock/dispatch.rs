//! What a quorum wants done, as futures that bring its answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog_quorum::Quorum;

use super::execution::{Doing, Polled};
use super::lock_instance::{InstanceAnswer, LockInstance};
use super::quorum_hold::QuorumHold;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::session::{BackgroundTask, Claim, Unlocked};

/// Something to be done at one instance.
pub(super) enum Request {
    Ask {
        asked: InstanceQuery,
        /// The answer is not waited for beyond this.
        until: Moment,
    },
    /// Dropped, it is given back in the background.
    GiveBack(usize, Claim),
}

/// What an instance is asked, and in which round.
#[derive(Clone)]
pub(super) struct InstanceQuery {
    pub(super) member: usize,
    pub(super) round: u32,
    pub(super) question: Query,
    pub(super) lease: Duration,
}

/// What an instance is asked.
#[derive(Clone)]
pub(super) enum Query {
    Take,
    Extend(Arc<Hold>),
    Mark(Arc<Hold>, u64),
}

/// What came of an order.
pub(super) enum Completion {
    Answered {
        member: usize,
        round: u32,
        told: InstanceAnswer,
    },
    GivenBack(usize, Result<Unlocked, Error>),
}

/// Orders under way. Dropped, what they did is undone in the background, and the quorum is told that
/// their answers will not come.
pub(super) struct InFlight {
    hold: Arc<QuorumHold>,
    under_way: FuturesUnordered<Polled>,
}

impl InFlight {
    pub(super) fn new(hold: &Arc<QuorumHold>, requests: Vec<Request>) -> Self {
        let mut new = Self {
            hold: hold.clone(),
            under_way: FuturesUnordered::new(),
        };
        new.give(requests);
        new
    }

    pub(super) fn give(&mut self, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let mut asked = Vec::with_capacity(requests.len());
        for request in requests {
            let is_question = matches!(request, Request::Ask { .. });
            let polled = Polled::new(&self.hold, request);
            if is_question {
                asked.push(polled.execution());
            }
            self.under_way.push(polled);
        }
        self.hold.watch_over(asked);
    }

    /// The next one that is done; `None` if none is under way.
    pub(super) async fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(done) = self.under_way.next().await? {
                return Some(done);
            }
        }
    }

    /// Sends what was not sent yet, and waits for nothing: what the caller sends next comes after it.
    pub(super) async fn send(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(done) = self.next() => self.follow(done),
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Waits for everything that is under way, and for all that follows from it.
    pub(super) async fn finish(mut self) {
        while let Some(done) = self.next().await {
            self.follow(done);
        }
        self.hold.watch_over(Vec::new());
    }

    fn follow(&mut self, done: Completion) {
        if let Completion::Answered {
            member,
            round,
            told,
        } = done
        {
            let requests = self.hold.take_in(member, round, told);
            self.give(requests);
        }
    }

    /// Finishes what is under way behind the caller, who has what it wanted. The runtime of the caller
    /// does it where that goes on; the background takes over what it leaves, and undoes what it drops.
    pub(super) fn finish_behind(self) {
        if self.under_way.is_empty() {
            return;
        }
        let left = self.under_way.iter();
        self.hold.watch_over(left.map(Polled::execution).collect());
        #[expect(
            clippy::disallowed_methods,
            reason = "each order ends by itself, within its time"
        )]
        tokio::spawn(self.finish());
    }
}

impl QuorumHold {
    /// Has each client's own thread ask its instance, and do what follows from the answer. What is to
    /// be given back goes to the background: it is not waited for.
    pub(super) fn delegate(self: &Arc<Self>, requests: Vec<Request>) {
        for request in requests {
            let Request::Ask { asked, until } = request else {
                continue;
            };
            let asking = PendingQuery::new(self, asked);
            self.run(asking.member(), Box::pin(asking.ask_behind(until)));
        }
    }

    /// Has the thread of an instance's client do this, or that of any other if that one has ended.
    pub(super) fn run(&self, member: usize, mut work: BackgroundTask) {
        let asked = self.lock.instances()[member].core();
        let others = self.lock.instances().iter().map(LockInstance::core);
        for core in std::iter::once(asked).chain(others) {
            match core.upkeep.run(work) {
                Ok(()) => return,
                Err(back) => work = back,
            }
        }
    }
}

impl InstanceQuery {
    /// Asks the instance. The future has resources of the runtime that polls it.
    pub(super) fn ask(&self, hold: &Arc<QuorumHold>, until: Moment) -> Doing {
        let (hold, asked) = (hold.clone(), self.clone());
        Box::pin(async move {
            let told = hold.ask(&asked, until).await;
            Completion::Answered {
                member: asked.member,
                round: asked.round,
                told,
            }
        })
    }
}

/// A question under way. Dropped without its answer, it tells the quorum that none comes.
pub(super) struct PendingQuery {
    hold: Arc<QuorumHold>,
    asked: InstanceQuery,
    answered: bool,
}

impl PendingQuery {
    pub(super) fn new(hold: &Arc<QuorumHold>, asked: InstanceQuery) -> Self {
        let hold = hold.clone();
        Self {
            hold,
            asked,
            answered: false,
        }
    }

    pub(super) fn member(&self) -> usize {
        self.asked.member
    }

    /// An answer may still change something.
    pub(super) fn is_awaited(&self, quorum: &Quorum) -> bool {
        quorum.awaits(self.asked.member, self.asked.round)
    }

    /// The quorum is told by the caller, or need not be told.
    pub(super) fn is_answered(&mut self) {
        self.answered = true;
    }

    /// Asks the instance behind the caller, and does what follows from the answer.
    pub(super) async fn ask_behind(mut self, until: Moment) {
        let told = self.hold.ask(&self.asked, until).await;
        self.is_answered();
        let requests = self.hold.take_in(self.asked.member, self.asked.round, told);
        self.hold.delegate(requests);
    }
}

impl Drop for PendingQuery {
    fn drop(&mut self) {
        if !self.answered {
            self.hold.note_dropped(self.asked.member, self.asked.round);
        }
    }
}
