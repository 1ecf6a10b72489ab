//! What a quorum wants done, as futures that bring its answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::execution::{Doing, Polled};
use super::part::{Part, Told};
use super::whole::Whole;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::session::{Claim, Unlocked, Work};

/// Something to be done at one instance.
pub(super) enum Order {
    Ask {
        member: usize,
        round: u32,
        question: Question,
        lease: Duration,
        /// The answer is not waited for beyond this.
        until: Moment,
    },
    /// Dropped, it is given back in the background.
    GiveBack(usize, Claim),
}

/// What an instance is asked.
pub(super) enum Question {
    Take,
    Extend(Arc<Hold>),
    Mark(Arc<Hold>, u64),
}

/// What came of an order.
pub(super) enum Done {
    Answered {
        member: usize,
        round: u32,
        told: Told,
    },
    GivenBack(usize, Result<Unlocked, Error>),
}

/// Orders under way. Dropped, what they did is undone in the background, and the quorum is told that
/// their answers will not come.
pub(super) struct Orders {
    whole: Arc<Whole>,
    under_way: FuturesUnordered<Polled>,
}

impl Orders {
    pub(super) fn new(whole: &Arc<Whole>, orders: Vec<Order>) -> Self {
        let mut new = Self {
            whole: whole.clone(),
            under_way: FuturesUnordered::new(),
        };
        new.give(orders);
        new
    }

    pub(super) fn give(&mut self, orders: Vec<Order>) {
        if orders.is_empty() {
            return;
        }
        let mut asked = Vec::with_capacity(orders.len());
        for order in orders {
            let is_question = matches!(order, Order::Ask { .. });
            let polled = Polled::new(&self.whole, order);
            if is_question {
                asked.push(polled.execution());
            }
            self.under_way.push(polled);
        }
        self.whole.watch_over(asked);
    }

    /// The next one that is done; `None` if none is under way.
    pub(super) async fn next(&mut self) -> Option<Done> {
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
        self.whole.watch_over(Vec::new());
    }

    fn follow(&mut self, done: Done) {
        if let Done::Answered {
            member,
            round,
            told,
        } = done
        {
            let orders = self.whole.take_in(member, round, told);
            self.give(orders);
        }
    }

    /// Finishes what is under way behind the caller, who has what it wanted. The runtime of the caller
    /// does it where that goes on; the background takes over what it leaves, and undoes what it drops.
    pub(super) fn finish_behind(self) {
        if self.under_way.is_empty() {
            return;
        }
        let left = self.under_way.iter();
        self.whole.watch_over(left.map(Polled::execution).collect());
        #[expect(
            clippy::disallowed_methods,
            reason = "each order ends by itself, within its time"
        )]
        tokio::spawn(self.finish());
    }
}

impl Whole {
    /// Has each client's own thread ask its instance, and do what follows from the answer. What is to
    /// be given back goes to the background: it is not waited for.
    pub(super) fn delegate(self: &Arc<Self>, orders: Vec<Order>) {
        for order in orders {
            let Order::Ask { member, .. } = &order else {
                continue;
            };
            let (whole, member) = (self.clone(), *member);
            let done = execute(self.clone(), order);
            self.run(
                member,
                Box::pin(async move { whole.follow_behind(done.await) }),
            );
        }
    }

    /// Has the thread of an instance's client do this, or that of any other if that one has ended.
    pub(super) fn run(&self, member: usize, mut work: Work) {
        let asked = self.lock.parts()[member].core();
        let others = self.lock.parts().iter().map(Part::core);
        for core in std::iter::once(asked).chain(others) {
            match core.upkeep.run(work) {
                Ok(()) => return,
                Err(back) => work = back,
            }
        }
    }

    pub(super) fn follow_behind(self: &Arc<Self>, done: Done) {
        if let Done::Answered {
            member,
            round,
            told,
        } = done
        {
            let orders = self.take_in(member, round, told);
            self.delegate(orders);
        }
    }
}

pub(super) fn execute(whole: Arc<Whole>, order: Order) -> Doing {
    match order {
        Order::GiveBack(member, claim) => {
            Box::pin(async move { Done::GivenBack(member, claim.unlock().await) })
        }
        Order::Ask {
            member,
            round,
            question,
            lease,
            until,
        } => {
            let asking = Asking {
                whole,
                member,
                round,
                answered: false,
            };
            Box::pin(async move {
                // The whole of it, so that it is dropped with this future and not before.
                let mut asking = asking;
                let told = asking.whole.ask(member, &question, lease, until).await;
                asking.answered = true;
                Done::Answered {
                    member,
                    round,
                    told,
                }
            })
        }
    }
}

/// Tells the quorum of an order that was dropped.
struct Asking {
    whole: Arc<Whole>,
    member: usize,
    round: u32,
    answered: bool,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.answered {
            self.whole.note_dropped(self.member, self.round);
        }
    }
}
