//! Hearing the messages of a cluster: on one connection to each server whose locks are waited for.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use super::keep::{OfShard, Wanted, Wishes, keep_subscribed};
use super::{LONGEST_PAUSE, SHORTEST_PAUSE};
use crate::server::Node;
use crate::session::Core;
use crate::wait::{Heard, Subscriptions};

/// What is to be heard of one server.
struct Listener {
    node: Arc<Node>,
    /// Dropped, nobody listens there any more.
    wanted: watch::Sender<Wanted>,
}

/// Gives every channel to the server that has it, for ever.
pub(super) async fn keep_listening(core: &Arc<Core>) {
    let subscriptions: &Subscriptions = core.waiters.subscriptions();
    let mut switches = core.server.switches();
    let mut listeners: Vec<Listener> = Vec::new();
    let mut listening = FuturesUnordered::new();
    loop {
        switches.mark_unchanged();
        let mut unknown = false;
        let mut parts: Vec<(Arc<Node>, Wanted)> = Vec::new();
        for (name, channel) in subscriptions.wanted() {
            let Ok(node) = core.server.node(channel.key().key()) else {
                channel.set(Heard::Deaf);
                unknown = true;
                continue;
            };
            let is_there = |(other, _): &&mut (Arc<Node>, Wanted)| Arc::ptr_eq(other, &node);
            match parts.iter_mut().find(is_there) {
                Some((_, part)) => {
                    part.insert(name, channel);
                }
                None => parts.push((node, Wanted::from([(name, channel)]))),
            }
        }
        // Nobody else hears what a server heard that lost its slot.
        for listener in &listeners {
            let here = parts
                .iter()
                .find(|(node, _)| Arc::ptr_eq(node, &listener.node));
            for (name, channel) in listener.wanted.borrow().iter() {
                if here.is_none_or(|(_, part)| !part.contains_key(name)) {
                    channel.set(Heard::Deaf);
                }
            }
        }
        listeners.retain(|listener| core.server.has(&listener.node));
        for listener in &listeners {
            let here = parts
                .iter()
                .position(|(node, _)| Arc::ptr_eq(node, &listener.node));
            let part = here.map(|here| parts.swap_remove(here).1);
            listener.wanted.send_replace(part.unwrap_or_default());
        }
        for (node, part) in parts {
            let (wanted, wishes) = watch::channel(part);
            listening.push(listen(core, node.clone(), wishes));
            listeners.push(Listener { node, wanted });
        }
        tokio::select! {
            () = subscriptions.changed() => {}
            _ = switches.changed() => {}
            Some(()) = listening.next() => {}
            () = tokio::time::sleep(LONGEST_PAUSE), if unknown => {}
        }
    }
}

/// Keeps a connection to one server while there is something to hear, and the server has slots.
async fn listen(core: &Arc<Core>, node: Arc<Node>, mut wishes: watch::Receiver<Wanted>) {
    let limit = core.server.command_timeout();
    let mut pause = SHORTEST_PAUSE;
    while wishes.has_changed().is_ok() {
        if wishes.borrow_and_update().is_empty() {
            if wishes.changed().await.is_err() {
                return;
            }
            continue;
        }
        let waiters = core.waiters.clone();
        let hears = move |channel: &str| {
            if let Some(key) = waiters.subscriptions().key_of(channel) {
                waiters.hear(&key);
            }
        };
        match core.server.subscriber(&node, hears, limit).await {
            Ok(subscriber) => {
                pause = SHORTEST_PAUSE;
                let line = OfShard {
                    core,
                    subscriber: &subscriber,
                };
                tokio::select! {
                    () = keep_subscribed(core, wishes.clone(), line) => {}
                    () = subscriber.gone() => {}
                    () = node.until_left() => {}
                }
                tracing::debug!(
                    server = node.address(),
                    "the connection for messages is gone"
                );
            }
            Err(failure) => {
                tracing::debug!(
                    ?failure,
                    server = node.address(),
                    "no connection for messages"
                );
            }
        }
        for channel in wishes.borrow().values() {
            channel.set(Heard::Deaf);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Wishes for watch::Receiver<Wanted> {
    fn wanted(&mut self) -> Wanted {
        self.borrow_and_update().clone()
    }

    async fn changed(&mut self) {
        if Self::changed(self).await.is_err() {
            // Whoever waits for this is about to end.
            std::future::pending().await
        }
    }
}
