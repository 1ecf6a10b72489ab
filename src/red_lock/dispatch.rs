//! What a quorum wants done, as futures that bring its answers.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::execution::Polled;
use super::lock_instance::LockInstance;
use super::pending_query::PendingQuery;
use super::query::{Completion, Request};
use super::quorum_hold::QuorumHold;
use crate::session::BackgroundTask;

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
