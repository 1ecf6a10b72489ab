//! Receives the messages of the locks that this client waits for.
//!
//! Messages only make waits shorter. Whatever fails here, timers wake the waiters (design: invariant
//! 8).

mod keep;
mod shards;
#[cfg(test)]
mod simulated;

use std::sync::Arc;

use redis::aio::{PubSub, PubSubSink};
use tokio::time::Instant;

use crate::session::Core;
use crate::wait::{ChannelList, MessageConnection, SubscriptionState, open_messages};
use keep::{Pauses, Plain, keep_subscribed};

/// Keeps one connection open while channels are wanted, and reconnects.
pub(super) async fn keep_listening(core: &Arc<Core>) {
    if core.server.is_cluster() {
        return shards::keep_listening(core).await;
    }
    #[cfg(test)]
    if let Some(wiring) = core.server.simulated() {
        return simulated::keep_listening(core, &wiring).await;
    }
    let list = list(core);
    let mut pauses = Pauses::new();
    loop {
        if list.is_empty() {
            list.changed().await;
            continue;
        }
        let limit = core.server.command_timeout();
        let messages = core.waiters.messages();
        let mut terms = core.server.switches();
        let switched = terms.changed();
        let mut opened = None;
        if let Some(link) = messages.take(limit).await {
            opened = Some(Instant::now());
            receive(core, link, switched).await;
        } else if let Some(connection) = open_messages(&core.server, limit).await {
            opened = Some(Instant::now());
            receive_here(core, connection, switched).await;
        }
        messages.gone();
        list.set_all(SubscriptionState::Failed);
        tokio::time::sleep(core.clock.jitter_down(pauses.after(opened))).await;
    }
}

/// Uses a connection that a waiter opened and reads, until the connection is gone.
async fn receive<T>(core: &Core, link: MessageConnection, switched: impl Future<Output = T>) {
    tokio::select! {
        () = link.ended.cancelled() => {}
        _ = switched => {}
        () = keep_subscribed(&core.waiters, list(core), plain(core, link.sink.clone())) => {}
    }
    core.server.notify_messages_gone();
    tracing::debug!(target: "lockdog::wait", "the connection for messages is gone");
}

/// Uses and reads a connection that was opened here, until it is gone.
async fn receive_here<T>(core: &Core, connection: PubSub, switched: impl Future<Output = T>) {
    let (sink, stream) = connection.split();
    tokio::select! {
        () = core.waiters.handle_messages(stream) => {}
        _ = switched => {}
        () = keep_subscribed(&core.waiters, list(core), plain(core, sink)) => {}
    }
    core.server.notify_messages_gone();
    tracing::debug!(target: "lockdog::wait", "the connection for messages is gone");
}

fn list(core: &Core) -> &ChannelList {
    core.waiters.subscriptions().list()
}

fn plain(core: &Core, sink: PubSubSink) -> Plain {
    let limit = core.server.command_timeout();
    Plain { sink, limit }
}
