//! Hearing the messages of the locks that this client waits for.
//!
//! Messages only make waits faster: whatever goes wrong here, timers wake the waiters
//! (design: invariant 8).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::{PubSub, PubSubSink};

use crate::server::Failure;
use crate::session::Core;
use crate::wait::{Heard, Line, open_messages};

/// Keeps one connection, from the first wish to hear something on.
pub(super) async fn keep_listening(core: &Arc<Core>) {
    let subscriptions = core.waiters.subscriptions();
    let mut pause = SHORTEST_PAUSE;
    let mut reconnected = false;
    loop {
        if subscriptions.wanted().is_empty() {
            subscriptions.changed().await;
            continue;
        }
        let limit = core.server.command_timeout();
        let messages = core.waiters.messages();
        let mut reigns = core.server.switches();
        let switched = reigns.changed();
        if let Some(line) = messages.take(limit).await {
            pause = SHORTEST_PAUSE;
            hear(core, line, reconnected, switched).await;
        } else if let Some(connection) = open_messages(&core.server, limit).await {
            pause = SHORTEST_PAUSE;
            hear_here(core, connection, reconnected, switched).await;
        }
        reconnected = true;
        messages.gone();
        subscriptions.set_all(Heard::Deaf);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Keeps a connection that a waiter opened, until it is gone.
async fn hear<T>(core: &Core, line: Line, reconnected: bool, switched: impl Future<Output = T>) {
    tokio::select! {
        () = line.ended.cancelled() => {}
        _ = switched => {}
        () = keep_subscribed(core, line.sink.clone(), reconnected) => {}
    }
    tracing::debug!("the connection for messages is gone");
}

/// Keeps and reads a connection that was opened here, until it is gone.
async fn hear_here<T>(
    core: &Core,
    connection: PubSub,
    reconnected: bool,
    switched: impl Future<Output = T>,
) {
    let (sink, stream) = connection.split();
    tokio::select! {
        () = core.waiters.hand_on(stream) => {}
        _ = switched => {}
        () = keep_subscribed(core, sink, reconnected) => {}
    }
    tracing::debug!("the connection for messages is gone");
}

/// Makes the server's list of channels what is wanted, again and again.
async fn keep_subscribed(core: &Core, mut sink: PubSubSink, mut reconnected: bool) {
    let limit = core.server.command_timeout();
    let subscriptions = core.waiters.subscriptions();
    let mut listening: HashSet<String> = HashSet::new();
    let mut refused: HashSet<String> = HashSet::new();
    loop {
        let wanted = subscriptions.wanted();
        refused.retain(|name| wanted.contains_key(name));
        let is_new = |name: &&String| !listening.contains(*name) && !refused.contains(*name);
        let new: Vec<String> = wanted.keys().filter(is_new).cloned().collect();
        let old: Vec<String> = listening
            .iter()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        if !new.is_empty() {
            match subscribe(&mut sink, &new, limit).await {
                Some(heard) => {
                    for (name, heard) in new.into_iter().zip(heard) {
                        if heard {
                            listening.insert(name);
                        } else {
                            refused.insert(name);
                        }
                    }
                }
                None => return,
            }
        }
        if !old.is_empty() {
            let done = tokio::time::timeout(limit, sink.unsubscribe(&old)).await;
            if !matches!(done, Ok(Ok(()))) {
                return;
            }
            listening.retain(|name| !old.contains(name));
        }
        for (name, channel) in &wanted {
            let heard = if listening.contains(name) {
                Heard::Listening
            } else {
                Heard::Deaf
            };
            // Messages may have been missed between two connections.
            if channel.set(heard) && reconnected {
                core.waiters.wake(channel.key());
            }
        }
        reconnected = true;
        tokio::select! {
            () = subscriptions.changed() => {}
            () = tokio::time::sleep(PING_EVERY) => {
                // A connection that is half open would be silent for ever.
                let pong: Result<RedisResult<redis::Value>, _> =
                    tokio::time::timeout(limit, sink.ping()).await;
                if !matches!(pong, Ok(Ok(_))) {
                    return;
                }
                // A permission may have been given meanwhile.
                refused.clear();
            }
        }
    }
}

/// Subscribes to all, or where one of them is refused, to those that are not; `None` if the
/// connection does not answer.
async fn subscribe(sink: &mut PubSubSink, names: &[String], limit: Duration) -> Option<Vec<bool>> {
    let answer = tokio::time::timeout(limit, sink.subscribe(names))
        .await
        .ok()?;
    let Err(error) = answer else {
        return Some(vec![true; names.len()]);
    };
    let failure = Failure::of_command(error, limit);
    if failure.is_ambiguous() {
        return None;
    }
    tracing::debug!(?failure, channels = names.len(), "subscription refused");
    if names.len() == 1 {
        return Some(vec![false]);
    }
    let mut heard = Vec::with_capacity(names.len());
    for name in names {
        heard.extend(Box::pin(subscribe(sink, std::slice::from_ref(name), limit)).await?);
    }
    Some(heard)
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_secs(10);
