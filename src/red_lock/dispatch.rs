//! Executes the requests of a quorum hold, as futures that return the answers.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::lock_instance::LockInstance;
use super::pending_query::{PendingQuery, PendingRequest};
use super::query::{Completion, Request};
use super::quorum_hold::QuorumHold;
use crate::session::BackgroundTask;

/// Requests in flight. If this is dropped, their effects are undone in the background, and the quorum's
/// core is notified that their answers will not come.
pub(super) struct InFlight {
    hold: Arc<QuorumHold>,
    in_flight: FuturesUnordered<PendingRequest>,
}

impl InFlight {
    pub(super) fn new(hold: &Arc<QuorumHold>, requests: Vec<Request>) -> Self {
        let mut new = Self {
            hold: hold.clone(),
            in_flight: FuturesUnordered::new(),
        };
        new.give(requests);
        new
    }

    pub(super) fn give(&mut self, requests: Vec<Request>) {
        let requests = requests.into_iter();
        self.in_flight
            .extend(requests.map(|request| request.execute(&self.hold)));
    }

    /// The next completion; `None` if no request is in flight.
    pub(super) async fn next(&mut self) -> Option<Completion> {
        self.in_flight.next().await
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

    /// Waits for all requests in flight, and for all requests that follow from their answers.
    pub(super) async fn finish(mut self) {
        while let Some(done) = self.next().await {
            self.follow(done);
        }
    }

    fn follow(&mut self, done: Completion) {
        if let Completion::Answered {
            member,
            round,
            answer,
        } = done
        {
            let requests = self.hold.process_answer(member, round, answer);
            self.give(requests);
        }
    }

    /// Finishes the requests in flight after the caller has its result. A task on the caller's runtime does
    /// this. If the runtime does not poll the task, the quorum's core gives the requests up when their time is
    /// over, and asks again in the next round. If the runtime drops the task, the background undoes the
    /// requests.
    pub(super) fn finish_detached(self) {
        if self.in_flight.is_empty() {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "each request has a time limit")]
        tokio::spawn(self.finish());
    }
}

impl QuorumHold {
    /// Each client's own thread asks its instance and executes the actions that follow from the answer.
    /// Releases are dropped here, so the background executes them and the caller does not wait.
    pub(super) fn delegate(self: &Arc<Self>, requests: Vec<Request>) {
        for request in requests {
            let Request::Ask { asked, until } = request else {
                continue;
            };
            let asking = PendingQuery::new(self, asked);
            self.run(asking.member(), Box::pin(asking.ask_in_background(until)));
        }
    }

    /// Runs this on the thread of an instance's client, or on any other client's if that thread has
    /// ended.
    pub(super) fn run(&self, member: usize, mut work: BackgroundTask) {
        let asked = self.lock.instances()[member].core();
        let others = self.lock.instances().iter().map(LockInstance::core);
        for core in std::iter::once(asked).chain(others) {
            match core.mailbox.run(work) {
                Ok(()) => return,
                Err(back) => work = back,
            }
        }
    }
}
