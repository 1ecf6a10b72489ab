//! Making a server's list of channels what this client wants to hear.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::PubSubSink;

use crate::server::{Failure, Subscriber};
use crate::session::Core;
use crate::wait::{Channel, Heard, Subscriptions};

/// Channels by their names.
pub(super) type Wanted = HashMap<String, Arc<Channel>>;

/// Which channels are to be heard on one connection.
pub(super) trait Wishes {
    fn wanted(&mut self) -> Wanted;

    /// Ends when they may have changed since the last look.
    async fn changed(&mut self);
}

/// One connection for messages. What does not answer is gone: `None`, or false.
pub(super) trait Line {
    /// Whether each of them is heard from now on.
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>>;

    async fn unsubscribe(&mut self, names: &[String]) -> bool;

    async fn ping(&mut self) -> bool;

    /// Waits until the server has ended subscriptions of its own accord, and says which.
    async fn ended(&mut self) -> Vec<String>;
}

/// Makes the server's list what is wanted, again and again, until the connection is gone.
pub(super) async fn keep_subscribed(core: &Core, mut wishes: impl Wishes, mut line: impl Line) {
    let mut listening: HashSet<String> = HashSet::new();
    let mut refused: HashSet<String> = HashSet::new();
    loop {
        let wanted = wishes.wanted();
        refused.retain(|name| wanted.contains_key(name));
        let is_new = |name: &&String| !listening.contains(*name) && !refused.contains(*name);
        let new: Vec<String> = wanted.keys().filter(is_new).cloned().collect();
        let old: Vec<String> = listening
            .iter()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        if !new.is_empty() {
            let Some(heard) = line.subscribe(&new).await else {
                return;
            };
            for (name, heard) in new.into_iter().zip(heard) {
                if heard {
                    listening.insert(name);
                } else {
                    refused.insert(name);
                }
            }
        }
        if !old.is_empty() {
            if !line.unsubscribe(&old).await {
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
            // Messages may have been missed while nobody listened.
            if channel.set(heard) == Heard::Deaf && heard == Heard::Listening {
                core.waiters.wake(channel.key());
            }
        }
        let pause = if refused.is_empty() {
            PING_EVERY
        } else {
            ASK_AGAIN
        };
        tokio::select! {
            () = wishes.changed() => {}
            ended = line.ended() => {
                for name in ended {
                    listening.remove(&name);
                    if let Some(channel) = wanted.get(&name) {
                        channel.set(Heard::Deaf);
                    }
                }
            }
            () = tokio::time::sleep(pause) => {
                // A connection that is half open would be silent for ever.
                if !line.ping().await {
                    return;
                }
                // A permission may have been given meanwhile, or a slot have come back.
                refused.clear();
            }
        }
    }
}

impl Wishes for Arc<Subscriptions> {
    fn wanted(&mut self) -> Wanted {
        Subscriptions::wanted(self)
    }

    async fn changed(&mut self) {
        Subscriptions::changed(self).await;
    }
}

/// The connection for messages of a deployment of one server.
pub(super) struct Plain {
    pub(super) sink: PubSubSink,
    pub(super) limit: Duration,
}

impl Line for Plain {
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>> {
        let answer = tokio::time::timeout(self.limit, self.sink.subscribe(names))
            .await
            .ok()?;
        let Err(error) = answer else {
            return Some(vec![true; names.len()]);
        };
        let failure = Failure::of_command(error, self.limit);
        if failure.is_ambiguous() {
            return None;
        }
        tracing::debug!(?failure, channels = names.len(), "subscription refused");
        if names.len() == 1 {
            return Some(vec![false]);
        }
        // Those that are not refused by themselves.
        let mut heard = Vec::with_capacity(names.len());
        for name in names {
            heard.extend(Box::pin(self.subscribe(std::slice::from_ref(name))).await?);
        }
        Some(heard)
    }

    async fn unsubscribe(&mut self, names: &[String]) -> bool {
        let done = tokio::time::timeout(self.limit, self.sink.unsubscribe(names)).await;
        matches!(done, Ok(Ok(())))
    }

    async fn ping(&mut self) -> bool {
        let pong = tokio::time::timeout(self.limit, self.sink.ping::<redis::Value>()).await;
        matches!(pong, Ok(Ok(_)))
    }

    async fn ended(&mut self) -> Vec<String> {
        std::future::pending().await
    }
}

/// The connection for messages of one server of a cluster.
pub(super) struct OfShard<'a> {
    pub(super) core: &'a Core,
    pub(super) subscriber: &'a Subscriber,
}

impl Line for OfShard<'_> {
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>> {
        let answers = names.iter().map(|name| self.subscriber.subscribe(name));
        let answers = futures_util::future::join_all(answers).await;
        let mut heard = Vec::with_capacity(names.len());
        for answer in answers {
            heard.push(match answer {
                Ok(()) => true,
                Err(failure) if failure.is_ambiguous() => return None,
                Err(failure) => {
                    tracing::debug!(?failure, "subscription refused");
                    // The slot may be elsewhere.
                    self.core.server.redirected(&failure, None);
                    false
                }
            });
        }
        Some(heard)
    }

    async fn unsubscribe(&mut self, names: &[String]) -> bool {
        let answers = names.iter().map(|name| self.subscriber.unsubscribe(name));
        let answers = futures_util::future::join_all(answers).await;
        let is_gone =
            |answer: &Result<(), Failure>| answer.as_ref().is_err_and(Failure::is_ambiguous);
        !answers.iter().any(is_gone)
    }

    async fn ping(&mut self) -> bool {
        self.subscriber.ping().await.is_ok()
    }

    async fn ended(&mut self) -> Vec<String> {
        self.subscriber.ended().await
    }
}

const PING_EVERY: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);
