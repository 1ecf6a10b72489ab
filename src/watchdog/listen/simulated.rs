//! The messages of a simulated run: they come over its network, and the client subscribes as on a real server.

use std::sync::Arc;

use super::keep::{MessageLink, SHORTEST_PAUSE, keep_subscribed};
use crate::session::Core;
use crate::simulation::{SimulatedSubscriber, Wiring};
use crate::wait::SubscriptionState;

pub(super) async fn keep_listening(core: &Arc<Core>, wiring: &Wiring) {
    let list = core.waiters.subscriptions().list();
    loop {
        if list.is_empty() {
            list.changed().await;
            continue;
        }
        let limit = core.server.command_timeout();
        if let Ok((subscriber, mut messages)) = wiring.subscriber(limit).await {
            tokio::select! {
                // A message that came before an acknowledgement is read before it.
                biased;
                () = messages.handle_messages(core) => {}
                () = keep_subscribed(&core.waiters, list, subscriber) => {}
            }
        }
        list.set_all(SubscriptionState::Failed);
        tokio::time::sleep(SHORTEST_PAUSE).await;
    }
}

impl MessageLink for SimulatedSubscriber {
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>> {
        let mut accepted = Vec::with_capacity(names.len());
        for name in names {
            accepted.push(self.call("SUBSCRIBE", name).await?);
        }
        Some(accepted)
    }

    async fn unsubscribe(&mut self, names: &[String]) -> bool {
        for name in names {
            if self.call("UNSUBSCRIBE", name).await != Some(true) {
                return false;
            }
        }
        true
    }

    async fn ping(&mut self) -> bool {
        self.call("PING", "").await.is_some()
    }

    async fn ended(&mut self) -> Vec<String> {
        std::future::pending().await
    }
}
