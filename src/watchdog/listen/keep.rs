//! Makes a server's list of subscriptions equal to the client's list of wanted channels.

use std::collections::HashSet;
use std::time::Duration;

use redis::aio::PubSubSink;
use tokio::time::Instant;

use crate::server::{Failure, Subscriber};
use crate::session::Core;
use crate::wait::{ChannelList, SubscriptionState, Waiters};

/// One connection for messages. If it does not answer, it counts as gone: `None`, or false.
pub(super) trait MessageLink {
    /// Subscribes to these channels, and returns for each whether that succeeded.
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>>;

    async fn unsubscribe(&mut self, names: &[String]) -> bool;

    async fn ping(&mut self) -> bool;

    /// Waits until the server has ended subscriptions by itself, and returns their names.
    async fn ended(&mut self) -> Vec<String>;
}

/// Keeps the server's subscriptions equal to the wanted ones, until the connection is gone. After the
/// first check, the cost depends on the number of changes, not of channels.
pub(super) async fn keep_subscribed(
    waiters: &Waiters,
    list: &ChannelList,
    mut link: impl MessageLink,
) {
    let mut listening: HashSet<String> = HashSet::new();
    let mut refused: HashSet<String> = HashSet::new();
    // A new connection has no subscriptions on the server.
    let mut to_check = list.take_all();
    // Changes do not postpone the ping, because they may come continuously.
    let mut ping_at = Instant::now() + PING_EVERY;
    loop {
        let (mut new, mut new_channels) = (Vec::new(), Vec::new());
        let mut old = Vec::new();
        let mut settled = Vec::new();
        // An unlock counts on the waiting list to wake a client that listens on the list's channel, so the
        // client subscribes to that one last, and unsubscribes from it first. Its name is the first one in order.
        to_check.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        for (name, channel) in to_check {
            match channel {
                // A new queue wants a channel to which the client is subscribed already.
                Some(channel) if listening.contains(&name) && !channel.needs_own_answer() => {
                    settled.push((name, channel, SubscriptionState::Listening));
                }
                // A refused channel is retried with the next ping only.
                Some(channel) if refused.contains(&name) => {
                    settled.push((name, channel, SubscriptionState::Refused));
                }
                Some(channel) => {
                    new.push(name);
                    new_channels.push(channel);
                }
                None => {
                    refused.remove(&name);
                    if listening.remove(&name) {
                        old.push(name);
                    }
                }
            }
        }
        if !new.is_empty() {
            let Some(accepted) = link.subscribe(&new).await else {
                return;
            };
            for ((name, channel), is_accepted) in new.into_iter().zip(new_channels).zip(accepted) {
                let (names, state) = if is_accepted {
                    (&mut listening, SubscriptionState::Listening)
                } else {
                    (&mut refused, SubscriptionState::Refused)
                };
                names.insert(name.clone());
                settled.push((name, channel, state));
            }
        }
        old.reverse();
        if !old.is_empty() && !link.unsubscribe(&old).await {
            return;
        }
        for (name, channel, state) in settled {
            // Another connection may have taken the channel over meanwhile, and sets its state.
            if !list.has(&name, &channel) {
                continue;
            }
            // Messages may have been missed while the client was not subscribed.
            let before = channel.set(state);
            if before.has_failed() && state == SubscriptionState::Listening {
                channel.locks().for_each(|key| waiters.wake(&key));
            }
        }
        if !refused.is_empty() {
            ping_at = ping_at.min(Instant::now() + ASK_AGAIN);
        }
        tokio::select! {
            () = list.changed() => {
                to_check = list.take_changes(|| listening.iter().chain(&refused).cloned().collect());
            }
            // The server ended subscriptions, for example because their slots moved: subscribe again.
            ended = link.ended() => {
                for name in &ended {
                    listening.remove(name);
                }
                to_check = list.find(ended);
                for channel in to_check.iter().filter_map(|(_, channel)| channel.as_ref()) {
                    channel.set(SubscriptionState::Failed);
                }
            }
            () = tokio::time::sleep_until(ping_at) => {
                // A half-open connection would be silent forever.
                if !link.ping().await {
                    return;
                }
                ping_at = Instant::now() + PING_EVERY;
                // Retry refused channels: a permission may have been granted meanwhile, or a slot may
                // be back.
                to_check = list.find(refused.drain());
            }
        }
    }
}

/// The connection for messages of a deployment of one server.
pub(super) struct Plain {
    pub(super) sink: PubSubSink,
    pub(super) limit: Duration,
}

impl MessageLink for Plain {
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
        tracing::debug!(
            target: "lockdog::wait",
            %failure, channels = names.len(), "subscription refused"
        );
        if names.len() == 1 {
            return Some(vec![false]);
        }
        // Subscribe one by one: only some of them may be refused.
        let mut accepted = Vec::with_capacity(names.len());
        for name in names {
            accepted.extend(Box::pin(self.subscribe(std::slice::from_ref(name))).await?);
        }
        Some(accepted)
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

impl MessageLink for OfShard<'_> {
    async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>> {
        let answers = names.iter().map(|name| self.subscriber.subscribe(name));
        let answers = futures_util::future::join_all(answers).await;
        let mut accepted = Vec::with_capacity(names.len());
        for answer in answers {
            accepted.push(match answer {
                Ok(()) => true,
                Err(failure) if failure.is_ambiguous() => return None,
                Err(failure) => {
                    tracing::debug!(target: "lockdog::wait", %failure, "subscription refused");
                    // The slot may have moved to another server.
                    self.core.server.redirected(&failure, None);
                    false
                }
            });
        }
        Some(accepted)
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

/// The pauses between connections for messages. They grow until a connection lasts.
pub(super) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self {
            next: SHORTEST_PAUSE,
        }
    }

    /// The pause after a connection that was open since `opened`, or after none could be opened. A server or proxy
    /// that closes each connection soon, for example at the first subscription, would otherwise get one after the
    /// other, and each of them wakes all waiters.
    pub(super) fn after(&mut self, opened: Option<Instant>) -> Duration {
        if opened.is_some_and(|opened| opened.elapsed() >= LASTING) {
            self.next = SHORTEST_PAUSE;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

const PING_EVERY: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that was open for this long worked.
const LASTING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use uuid::Uuid;

    use super::*;
    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::wait::Subscription;

    /// A server's list of channels.
    #[derive(Clone, Default)]
    struct FollowedChannels(Arc<Mutex<HashSet<String>>>);

    impl MessageLink for FollowedChannels {
        async fn subscribe(&mut self, names: &[String]) -> Option<Vec<bool>> {
            self.0.lock().extend(names.iter().cloned());
            Some(vec![true; names.len()])
        }

        async fn unsubscribe(&mut self, names: &[String]) -> bool {
            self.0.lock().retain(|name| !names.contains(name));
            true
        }

        async fn ping(&mut self) -> bool {
            true
        }

        async fn ended(&mut self) -> Vec<String> {
            std::future::pending().await
        }
    }

    fn subscribe(waiters: &Waiters, number: usize) -> Subscription {
        let key = Arc::new(LockKey::new(&kind::PLAIN, &number.to_string(), None).unwrap());
        let channel = key.channel().expect("its releases are published");
        waiters.subscriptions().subscribe(&key, channel)
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_checks_one_channel_and_a_new_connection_checks_all() {
        let waiters = Waiters::new(
            Uuid::nil(),
            Clock::default(),
            Duration::from_secs(60),
            10_000,
            true,
        );
        let many: Vec<_> = (0..MANY)
            .map(|number| subscribe(&waiters, number))
            .collect();
        let list = waiters.subscriptions().list();
        for _connection in 0..2 {
            list.set_all(SubscriptionState::Failed);
            let before = list.checked();
            let link = FollowedChannels::default();
            let names = link.0.clone();
            let changes = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert_eq!(names.lock().len(), MANY);
                assert!(many.iter().all(Subscription::is_listening));
                assert_eq!(list.checked() - before, MANY);
                for number in MANY..MANY + CHANGES {
                    let one = subscribe(&waiters, number);
                    one.settled().await;
                    assert!(one.is_listening() && names.lock().len() == MANY + 1);
                    drop(one);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert_eq!(names.lock().len(), MANY);
                }
                assert_eq!(list.checked() - before, MANY + 2 * CHANGES);
            };
            tokio::select! {
                () = keep_subscribed(&waiters, list, link) => panic!("it ends with its link"),
                () = changes => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_until_a_connection_lasts() {
        let mut pauses = Pauses::new();
        let ms = Duration::from_millis;
        let growing = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000];
        for (at, pause) in growing.into_iter().enumerate() {
            // Every second one cannot be opened.
            let opened = at.is_multiple_of(2).then(Instant::now);
            tokio::time::sleep(ms(900)).await;
            assert_eq!(pauses.after(opened), ms(pause));
        }
        let opened = Instant::now();
        tokio::time::sleep(LASTING).await;
        assert_eq!(pauses.after(Some(opened)), ms(10));
        assert_eq!(pauses.after(None), ms(20));
    }

    const MANY: usize = 5_000;
    const CHANGES: usize = 20;
}
