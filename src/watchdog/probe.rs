//! Probes a server that seems to be silent, until it answers again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::server::{Connection, Failure, Node};
use crate::session::Core;

/// Probes each suspected server, and sends nothing otherwise.
pub(super) async fn keep_probing(core: &Core) {
    let mut probes: FuturesUnordered<_> = FuturesUnordered::new();
    let mut probed: Vec<Arc<Node>> = Vec::new();
    loop {
        for node in core.server.suspects() {
            if !probed.iter().any(|known| Arc::ptr_eq(known, &node)) {
                probed.push(node.clone());
                probes.push(probe(core, node));
            }
        }
        tokio::select! {
            Some(node) = probes.next() => {
                probed.retain(|known| !Arc::ptr_eq(known, &node));
                // The outage that the waiters met is over.
                core.waiters.wake_all();
            }
            () = core.server.suspicion() => {}
        }
    }
}

/// Probes one server until it answers, or is no longer part of the deployment.
async fn probe(core: &Core, node: Arc<Node>) -> Arc<Node> {
    tokio::select! {
        () = until_it_answers(core, &node) => node.answered(),
        () = node.until_left() => {}
    }
    node
}

/// Sends probes until one is answered, one at a time on each connection. A connection may be silent although
/// the server is not. So the client repeats the probe on a new connection before the leases that wait for the
/// answer end, each time after a longer wait. The first answer to any probe counts.
async fn until_it_answers(core: &Core, node: &Node) {
    let limit = core.server.command_timeout();
    let mut timeout = match node.suspected() {
        // A renewal that waited this long has several times as long until the deadline of its lease.
        Some(Failure::Silent { waited, .. }) => (waited * 2).max(SHORTEST_TIMEOUT).min(limit),
        _ => limit,
    };
    let mut pause = SHORTEST_PAUSE;
    let mut under_way = FuturesUnordered::new();
    loop {
        let failed = match node.own_connection(limit).await {
            Ok(connection) => {
                // An earlier probe may have been answered while this connection was opened.
                loop {
                    let answered: Option<Option<Answered>> = under_way.next().now_or_never();
                    match answered.flatten() {
                        Some((_, Ok(()))) => return,
                        Some((_, Err(_))) => {}
                        None => break,
                    }
                }
                under_way.push(ask(connection.clone(), limit));
                let mut silence = pin!(tokio::time::sleep(timeout));
                loop {
                    tokio::select! {
                        biased;
                        Some((asked, answer)) = under_way.next() => match answer {
                            Ok(()) => return,
                            Err(failure) => {
                                if failure.is_ambiguous() {
                                    node.abandon(&asked);
                                }
                                if under_way.is_empty() {
                                    // No probe is left that could be answered.
                                    break Some(failure);
                                }
                            }
                        },
                        // The earlier probes stay in flight: the server may still answer one.
                        () = &mut silence => {
                            node.abandon(&connection);
                            break None;
                        }
                    }
                }
            }
            Err(failure) if is_answer(&failure) => return,
            Err(failure) => Some(failure),
        };
        let failure = failed.clone();
        let failure = failure.unwrap_or_else(|| Failure::silent(timeout));
        tracing::debug!(target: "lockdog::server", %failure, "the server does not answer yet");
        match failed {
            Some(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            None => timeout = (timeout * 2).min(limit),
        }
    }
}

/// A probe's connection and its result.
type Answered = (Connection, Result<(), Failure>);

async fn ask(connection: Connection, limit: Duration) -> Answered {
    let answer = connection.send(&redis::cmd("PING"), limit).await;
    let answer: Result<redis::Value, Failure> = answer;
    let answer = match answer {
        Err(failure) if !is_answer(&failure) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    };
    (connection, answer)
}

/// Any answer counts, except a transient error: the server would answer an acquire with the same error.
fn is_answer(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { .. }) && !failure.passes()
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Opening a connection takes time, however short the leases are.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
