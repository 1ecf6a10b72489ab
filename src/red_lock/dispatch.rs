//! Executes the requests of a quorum hold, as futures that return the answers.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::execution::Polled;
use super::lock_instance::LockInstance;
use super::pending_query::PendingQuery;
use super::query::{Completion, Request};
use super::quorum_hold::QuorumHold;
use crate::session::BackgroundTask;

/// Requests under way. If this is dropped, their effects are undone in the background, and the quorum's
/// core is told that their answers will not come.
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

    /// The next completion; `None` if nothing is under way.
    pub(super) async fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(done) = self.under_way.next().await? {
                return Some(done);
            }
        }
    }

    /// Sends the requests that were not sent yet, without waiting, so that the caller's next command
    /// comes after them.
    pub(super) async fn send(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(done) = self.next() => self.follow(done),
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Waits for everything that is under way, and for all requests that follow from it.
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

    /// Finishes what is under way after the caller has its result. The caller's runtime does this while
    /// it runs. The background takes over requests that the runtime does not poll, and undoes those
    /// that it drops.
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
    /// Lets each client's own thread ask its instance and execute what follows from the answer.
    /// Releases are dropped here, so the background executes them and the caller does not wait.
    pub(super) fn delegate(self: &Arc<Self>, requests: Vec<Request>) {
        for request in requests {
            let Request::Ask { asked, until } = request else {
                continue;
            };
            let asking = PendingQuery::new(self, asked);
            self.run(asking.member(), Box::pin(asking.ask_behind(until)));
        }
    }

    /// Runs this on the thread of an instance's client, or on any other client's if that thread has
    /// ended.
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
