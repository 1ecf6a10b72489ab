//! What a quorum wants done, as futures that bring its answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

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
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>,
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
        for order in orders {
            self.under_way.push(execute(self.whole.clone(), order));
        }
    }

    /// The next one that is done; `None` if none is under way.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.under_way.next().await
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

    /// Leaves what is under way to the runtime of the caller, who has what it wanted. Whatever a
    /// runtime that ends drops of it, the background undoes.
    pub(super) fn finish_behind(self) {
        if self.under_way.is_empty() {
            return;
        }
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
            let asked = self.lock.parts()[*member].core().clone();
            let (whole, done) = (self.clone(), execute(self.clone(), order));
            let mut work: Work = Box::pin(async move {
                if let Done::Answered {
                    member,
                    round,
                    told,
                } = done.await
                {
                    let orders = whole.take_in(member, round, told);
                    whole.delegate(orders);
                }
            });
            // Of a client that was shut down, any other tells so.
            let others = self.lock.parts().iter().map(Part::core);
            for core in std::iter::once(&asked).chain(others) {
                match core.upkeep.run(work) {
                    Ok(()) => break,
                    Err(back) => work = back,
                }
            }
        }
    }
}

fn execute(whole: Arc<Whole>, order: Order) -> Pin<Box<dyn Future<Output = Done> + Send>> {
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
