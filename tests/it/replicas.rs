//! Locks that count as granted when the master's replicas acknowledged them.

mod aof;
mod best_effort;
mod cancelled;
mod cluster;
mod hand_over;
mod members;
mod permits;
mod promotion;
mod refusals;
mod required;
mod sharing;

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::error::NotReplicated;
use lockdog::{Client, ClientBuilder, Error, Guard, Lock};

use crate::fixture::connected;
use crate::support::Replicated;
use crate::support::prelude::{SOON, ms};

/// A client of this master that requires an acknowledgement within a second.
async fn requiring(all: &Replicated, replicas: Replicas) -> Client {
    let ack = ReplicaAck::require(replicas).timeout(TIMEOUT);
    build(Client::builder().url(all.master.url()).replica_ack(ack)).await
}

/// As `requiring`, with as much time as a busy machine needs: for locks that are to be granted.
async fn requiring_patiently(all: &Replicated, replicas: Replicas) -> Client {
    let ack = ReplicaAck::require(replicas).timeout(SOON);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    build(builder.command_timeout(SOON)).await
}

/// Acquires a lock that is free, in as many attempts as a busy machine needs.
async fn acquired(lock: &Lock) -> Guard {
    let guard = lock.try_lock().wait(SOON).await;
    guard
        .expect("the replicas acknowledge it")
        .expect("it is free")
}

/// A client of this master that waits for replicas if they are there, for a second.
async fn best_effort(all: &Replicated) -> Client {
    let ack = ReplicaAck::best_effort().timeout(TIMEOUT);
    build(Client::builder().url(all.master.url()).replica_ack(ack)).await
}

async fn build(builder: ClientBuilder) -> Client {
    connected(builder).await
}

/// The error of a failed acquire.
fn not_replicated<T: std::fmt::Debug>(outcome: lockdog::Result<T>) -> NotReplicated {
    match outcome {
        Err(Error::NotReplicated(failed)) => failed,
        other => panic!("it came to {other:?}"),
    }
}

const TIMEOUT: Duration = Duration::from_secs(1);

/// The time that a busy machine may add to a step.
const SLACK: Duration = Duration::from_secs(10);
