//! What one client knows about the server at an address: the id of its run, its term as a master, and how many
//! replicas follow it.

use parking_lot::Mutex;
use redis::Value;

use super::failure::Failure;
use super::followers::Followers;
use super::master_term::MasterTerm;
use super::replica_count::ReplicaCount;
use super::run_id::RunId;
use super::wire::field;
use crate::clock::{Clock, Moment};
use crate::observe::Observers;

/// The identity of the server at an address. All connections of the client to it share it.
pub(super) struct Identity {
    clock: Clock,
    pub(super) run: RunId,
    pub(super) term: MasterTerm,
    replicas: Mutex<ReplicaCount>,
}

impl Identity {
    pub(super) fn new(clock: Clock, address: String, is_elected: bool) -> Self {
        Self {
            run: RunId::new(clock.clone(), address),
            term: MasterTerm::new(is_elected),
            replicas: Mutex::default(),
            clock,
        }
    }

    /// Reports its events to these observers.
    pub(super) fn observed(mut self, observers: &Observers) -> Self {
        self.run.observers = observers.clone();
        self
    }

    /// Another server is the master from now on. [`MasterTerm::notify`] wakes the waiters for that.
    pub(super) fn end_term(&self) {
        // The count is about the replicas of the previous master.
        *self.replicas.lock() = ReplicaCount::default();
        self.term.end();
    }

    /// How many replicas followed the server at the last count.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.lock().following
    }

    /// Counts the replicas in the server's section `replication`.
    pub(super) fn count_replicas(&self, replication: &Value) {
        if let Some(followers) = Followers::read(replication) {
            self.count(followers);
        }
    }

    pub(super) fn count(&self, followers: Followers) {
        let now = self.clock.now();
        self.replicas.lock().count(followers, now);
    }

    /// Whether replicas were lost recently, or that is unknown. One of them may be the master now.
    pub(super) fn lost_replicas(&self, now: Moment) -> bool {
        self.replicas.lock().lost(now)
    }

    /// Processes the server's sections `server` and `replication` of `INFO`. Fails if a later answer may have the
    /// identity. A server that never reports its identity is no failure.
    pub(super) fn update(
        &self,
        server: Result<Value, Failure>,
        replication: Result<Value, Failure>,
    ) -> Result<(), Failure> {
        match (server, replication) {
            (Ok(server), Ok(replication)) => {
                if self.term.is_elected() && field(&replication, "role") == Some("slave") {
                    return Err(Failure::Unsent("the server is a replica".into()));
                }
                self.count_replicas(&replication);
                self.run.see(&server, &replication);
            }
            (Err(failure), _) | (_, Err(failure)) => {
                if failure.is_ambiguous() || failure.passes() {
                    return Err(failure);
                }
                self.run.log_missing(&failure);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::user_code::OnEvent;

    #[test]
    fn a_subscriber_that_blocks_one_thread_does_not_block_the_identity_for_others() {
        let identity = Identity::new(Clock::default(), "server".to_owned(), false);
        let update = |id: &str| {
            let info = Value::SimpleString(format!("run_id:{id}"));
            identity.update(Ok(info.clone()), Ok(info)).unwrap();
        };
        update("a");
        let (called, calls) = mpsc::channel();
        let (unblock, until) = mpsc::channel::<()>();
        let (done, others) = mpsc::channel();
        let soon = Duration::from_secs(10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let until = Mutex::new(until);
                // It reports that it was called, and then blocks until its sender is dropped.
                let subscriber = OnEvent(move || {
                    let _ = called.send(());
                    let _sender_gone = until.lock().recv();
                });
                subscriber.during(|| update("b"));
            });
            calls.recv().expect("it logs that the server is another");
            scope.spawn(|| {
                update("b");
                done.send(()).unwrap();
            });
            let other = others.recv_timeout(soon);
            drop(unblock);
            other.expect("the other thread sees the identity");
        });
        assert!(identity.run.reborn().is_some());
    }
}
