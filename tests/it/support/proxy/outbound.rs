//! The output of the proxy to one side: one queue, written in order.

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::support::proxy::faults::Direction;
use crate::support::proxy::gate::Gate;
use crate::support::proxy::link::{Ending, Link};
use crate::support::proxy::replay::replay;
use crate::support::proxy::rules::Rule;

/// An entry of the queue to one side.
#[derive(Debug)]
pub(super) enum Parcel {
    /// Not to be written before its time.
    Bytes(Instant, Vec<u8>),
    Cut(Rule),
    Held(Rule, Gate, Vec<u8>),
    /// Starts the second delivery of a request, once what precedes it here is written.
    Replay(Rule, Gate, Vec<u8>),
    ServerLeft,
    Silence(Rule),
}

impl Link {
    pub(super) async fn write(
        &self,
        direction: Direction,
        mut queue: UnboundedReceiver<Parcel>,
        mut half: WriteHalf<'_>,
    ) {
        let mut silent = false;
        while let Some(parcel) = queue.recv().await {
            match parcel {
                Parcel::Cut(rule) => {
                    self.end(Ending::Cut);
                    rule.hit();
                    // The reply to the next command may be in the queue already. The client would take it for
                    // the reply that it does not get.
                    return;
                }
                // Not a fault: it is passed on as what it is, and not counted.
                Parcel::ServerLeft => {
                    self.ending.send_replace(Some(Ending::Cut));
                }
                _ if silent => {}
                Parcel::Bytes(due, bytes) => {
                    tokio::time::sleep_until(due).await;
                    if !self.put(direction, &bytes, &mut half).await {
                        return;
                    }
                }
                Parcel::Held(rule, gate, bytes) => {
                    rule.hit();
                    gate.hold().await;
                    let continues = self.put(direction, &bytes, &mut half).await;
                    gate.pass(Ok(()));
                    if !continues {
                        return;
                    }
                }
                Parcel::Replay(rule, gate, request) => {
                    self.shared.runtime.spawn(self.replay(rule, gate, request));
                }
                Parcel::Silence(rule) => {
                    silent = true;
                    rule.hit();
                }
            }
        }
        let _ = half.shutdown().await;
    }

    /// Returns false if the connection ends here, so that nothing may follow.
    async fn put(&self, direction: Direction, bytes: &[u8], half: &mut WriteHalf<'_>) -> bool {
        self.shared.faults.healed(direction).await;
        let allowed = self
            .shared
            .faults
            .allowance(direction, self.id, bytes.len());
        let written = half
            .write_all(&bytes[..allowed.unwrap_or(bytes.len())])
            .await;
        if allowed.is_some() {
            self.end(Ending::Cut);
        } else if written.is_err() {
            self.ending.send_replace(Some(Ending::Cut));
        }
        allowed.is_none() && written.is_ok()
    }

    /// Delivers a request again, without this connection, when the gate opens.
    pub(super) fn replay(
        &self,
        rule: Rule,
        gate: Gate,
        request: Vec<u8>,
    ) -> impl Future<Output = ()> + use<> {
        let login = self.login.lock().unwrap().clone();
        let target = self.shared.target();
        async move {
            gate.hold().await;
            let outcome = replay(target, login, request).await;
            if outcome.is_ok() {
                rule.hit();
            }
            gate.pass(outcome);
        }
    }
}
