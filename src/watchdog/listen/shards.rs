//! Receives the messages of a cluster: one connection to each server whose locks are waited for.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::keep::{LONGEST_PAUSE, OfShard, Pauses, keep_subscribed};
use crate::server::Node;
use crate::session::Core;
use crate::wait::{ChannelList, SubscriptionState};

/// The wanted channels of one server.
struct ShardListener {
    node: Arc<Node>,
    wanted: Arc<ChannelList>,
    /// Dropping it stops the subscriptions on this server.
    _stops_listening: DropGuard,
}

/// Assigns every channel to the server with its slot, forever.
pub(super) async fn keep_listening(core: &Arc<Core>) {
    let list = core.waiters.subscriptions().list();
    let mut switches = core.server.switches();
    let mut listeners: Vec<ShardListener> = Vec::new();
    let mut listening = FuturesUnordered::new();
    // Channels whose server is unknown.
    let mut unknown: HashSet<String> = HashSet::new();
    let mut ask_at = Instant::now();
    let mut to_check = list.take_all();
    loop {
        // A server without slots publishes no more messages: its channels have to move.
        listeners.retain(|listener| {
            let stays = core.server.has(&listener.node);
            if !stays {
                let left = listener.wanted.remove_all();
                left.values()
                    .for_each(|channel| _ = channel.set(SubscriptionState::Failed));
                to_check.extend(list.find(left.into_keys()));
            }
            stays
        });
        for (name, channel) in to_check {
            let key = channel.as_ref().map(|channel| channel.key());
            let node = key.and_then(|key| core.server.node(key).ok());
            for listener in &listeners {
                if !node.as_ref().is_some_and(|node| listener.is_of(node)) {
                    // A server that lost the channel's slot publishes no more messages on it.
                    if let Some(channel) = listener.wanted.remove(&name) {
                        channel.set(SubscriptionState::Failed);
                    }
                }
            }
            unknown.remove(&name);
            match (channel, node) {
                (Some(channel), Some(node)) => {
                    let found = listeners.iter().position(|listener| listener.is_of(&node));
                    let at = found.unwrap_or_else(|| {
                        let (listener, stopped) = ShardListener::new(&node);
                        listening.push(listen(core, node, listener.wanted.clone(), stopped));
                        listeners.push(listener);
                        listeners.len() - 1
                    });
                    listeners[at].wanted.insert(name, channel);
                }
                (Some(channel), None) => {
                    channel.set(SubscriptionState::Failed);
                    unknown.insert(name);
                }
                (None, _) => {}
            }
        }
        let known = || {
            let names = listeners
                .iter()
                .flat_map(|listener| listener.wanted.names());
            names.chain(unknown.iter().cloned()).collect()
        };
        tokio::select! {
            () = list.changed() => to_check = list.take_changes(known),
            _ = switches.changed() => {
                // Any channel may have a new server.
                list.note_all();
                to_check = list.take_changes(known);
            }
            Some(()) = listening.next() => to_check = Vec::new(),
            () = tokio::time::sleep_until(ask_at), if !unknown.is_empty() => {
                ask_at = Instant::now() + LONGEST_PAUSE;
                to_check = list.find(unknown.drain());
            }
        }
    }
}

impl ShardListener {
    /// Also returns the token that is cancelled when the listener is dropped.
    fn new(node: &Arc<Node>) -> (Self, CancellationToken) {
        let stopped = CancellationToken::new();
        let listener = Self {
            node: node.clone(),
            wanted: Arc::default(),
            _stops_listening: stopped.clone().drop_guard(),
        };
        (listener, stopped)
    }

    fn is_of(&self, node: &Arc<Node>) -> bool {
        Arc::ptr_eq(&self.node, node)
    }
}

/// Keeps a connection to one server while it has wanted channels and slots.
async fn listen(
    core: &Arc<Core>,
    node: Arc<Node>,
    wanted: Arc<ChannelList>,
    stopped: CancellationToken,
) {
    let limit = core.server.command_timeout();
    let mut pauses = Pauses::new();
    while !stopped.is_cancelled() {
        if wanted.is_empty() {
            tokio::select! {
                () = wanted.changed() => {}
                () = stopped.cancelled() => {}
            }
            continue;
        }
        let waiters = core.waiters.clone();
        let on_message = move |channel: &str, text: &[u8]| {
            for key in waiters.subscriptions().locks_on(channel) {
                waiters.handle_message_text(&key, channel, text);
            }
        };
        let mut opened = None;
        match core.server.subscriber(&node, on_message, limit).await {
            Ok(subscriber) => {
                opened = Some(Instant::now());
                let link = OfShard {
                    core,
                    subscriber: &subscriber,
                };
                tokio::select! {
                    () = keep_subscribed(&core.waiters, &wanted, link) => {}
                    () = stopped.cancelled() => {}
                    () = subscriber.gone() => {}
                    () = node.until_left() => {}
                }
                node.notify_messages_gone();
                tracing::debug!(
                    target: "lockdog::wait",
                    server = node.address(),
                    "the connection for messages is gone"
                );
            }
            Err(failure) => {
                tracing::debug!(
                    target: "lockdog::wait",
                    %failure,
                    server = node.address(),
                    "no connection for messages"
                );
            }
        }
        wanted.set_all(SubscriptionState::Failed);
        tokio::time::sleep(core.clock.jitter_down(pauses.after(opened))).await;
    }
}
