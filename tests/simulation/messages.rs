//! A client's connection for messages.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::network::{Delivery, Network, SimulatedMessage, SimulatedWire, Wiring};
use crate::server::Failure;
use crate::session::Core;

/// Subscribes and unsubscribes.
pub(crate) struct SimulatedSubscriber {
    wire: SimulatedWire,
    limit: Duration,
}

/// The messages that arrive on a connection, until it breaks.
pub(crate) struct SimulatedMessages {
    network: Arc<Network>,
    arrived: UnboundedReceiver<SimulatedMessage>,
}

impl Network {
    /// Executes a command about connections. `None` for any other command.
    pub(super) fn execute(&self, delivery: &Delivery) -> Option<Value> {
        let (connection, args) = (delivery.connection, &delivery.args);
        match args[0].as_str() {
            "CLIENT" if args[1] == "KILL" => return Some(self.kill(&args[3])),
            // A connection delivers its own subscriptions once.
            "SUBSCRIBE" | "UNSUBSCRIBE" if delivery.copy => {}
            "SUBSCRIBE" => self.subscribe(connection, &args[1]),
            "UNSUBSCRIBE" => self.unsubscribe(connection, &args[1]),
            _ => return None,
        }
        Some(Value::Okay)
    }
}

impl Wiring {
    pub(crate) async fn subscriber(
        &self,
        limit: Duration,
    ) -> Result<(SimulatedSubscriber, SimulatedMessages), Failure> {
        let wire = self.open().await?;
        let messages = SimulatedMessages {
            network: self.network.clone(),
            arrived: self.network.receiver(wire.connection),
        };
        Ok((SimulatedSubscriber { wire, limit }, messages))
    }
}

impl SimulatedSubscriber {
    /// Whether the server accepted it; `None` if the connection is closed, or its replies are lost.
    pub(crate) async fn call(&self, name: &str, argument: &str) -> Option<bool> {
        let mut command = redis::cmd(name);
        command.arg(argument);
        let answer = tokio::time::timeout(self.limit, self.wire.send(&command)).await;
        let value = answer.ok()?.ok()?;
        Some(matches!(value, Value::Okay))
    }
}

impl SimulatedMessages {
    /// As [`Waiters::handle_messages`](crate::wait::Waiters::handle_messages).
    pub(crate) async fn handle_messages(&mut self, core: &Core) {
        while let Some(message) = self.arrived.recv().await {
            for key in core.waiters.subscriptions().locks_on(&message.channel) {
                if core.waiters.is_listening(&key) {
                    self.network.note_received(core.id, message.clone());
                }
                let (channel, text) = (&message.channel, message.text.as_bytes());
                core.waiters.handle_message_text(&key, channel, text);
            }
        }
    }
}
