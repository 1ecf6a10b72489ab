//! A connection that brings the messages of one server of a cluster.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::wire::{password, text};

/// What such a connection does beside bringing messages.
pub(crate) struct Subscriber {
    connection: MultiplexedConnection,
    /// Messages stay within one shard.
    sharded: bool,
    limit: Duration,
    push: Arc<PushMessage>,
}

/// What the server says unasked, besides messages.
#[derive(Default)]
struct PushMessage {
    /// Channels that it took away.
    ended: Mutex<Vec<String>>,
    changed: Notify,
    gone: CancellationToken,
}

impl Subscriber {
    /// Connects; `hears` is told the channel of each message.
    pub(super) async fn open(
        client: &redis::Client,
        sharded: bool,
        hears: impl Fn(&str) + Send + Sync + 'static,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let push = Arc::new(PushMessage::default());
        let tells = push.clone();
        let told = move |push: PushInfo| {
            tells.hear(&push, &hears);
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit))
            .set_push_sender(told);
        let opened = client.get_multiplexed_async_connection_with_config(&config);
        let refused = |error| Failure::of_connect(&error, password(client.get_connection_info()));
        let connection = opened.await.map_err(refused)?;
        Ok(Self {
            connection,
            sharded,
            limit,
            push,
        })
    }

    /// Hears this channel from now on.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(), Failure> {
        let (word, kind) = match self.sharded {
            true => ("SSUBSCRIBE", PushKind::SSubscribe),
            false => ("SUBSCRIBE", PushKind::Subscribe),
        };
        self.ask(word, channel, &kind).await
    }

    /// Hears it no more.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<(), Failure> {
        let (word, kind) = match self.sharded {
            true => ("SUNSUBSCRIBE", PushKind::SUnsubscribe),
            false => ("UNSUBSCRIBE", PushKind::Unsubscribe),
        };
        self.ask(word, channel, &kind).await
    }

    async fn ask(&self, word: &str, channel: &str, expected: &PushKind) -> Result<(), Failure> {
        let mut command = redis::cmd(word);
        command.arg(channel);
        match self.send(&command).await? {
            Value::Push { kind, data }
                if kind == *expected && data.first().and_then(text) == Some(channel) =>
            {
                Ok(())
            }
            // What it says unasked may be taken for an answer by those who count answers.
            // The channel in it has the lock's name.
            _ => Err(Failure::Broken(
                format!("unexpected answer to {word}").into(),
            )),
        }
    }

    pub(crate) async fn ping(&self) -> Result<(), Failure> {
        self.send(&redis::cmd("PING")).await.map(drop)
    }

    async fn send(&self, command: &redis::Cmd) -> Result<Value, Failure> {
        let answer = self.connection.clone().send_packed_command(command).await;
        let answer = answer.and_then(Value::extract_error);
        answer.map_err(|error| Failure::of_command(error, self.limit))
    }

    /// Waits until the server has ended subscriptions of its own accord, and says which.
    pub(crate) async fn ended(&self) -> Vec<String> {
        loop {
            let changed = self.push.changed.notified();
            let ended = std::mem::take(&mut *self.push.ended.lock());
            if !ended.is_empty() {
                return ended;
            }
            changed.await;
        }
    }

    /// Waits until the connection is gone.
    pub(crate) async fn gone(&self) {
        self.push.gone.cancelled().await;
    }
}

impl PushMessage {
    fn hear(&self, push: &PushInfo, hears: &impl Fn(&str)) {
        let channel = push.data.first().and_then(text);
        match (&push.kind, channel) {
            (PushKind::Message | PushKind::SMessage, Some(channel)) => hears(channel),
            // Those that were asked for are among them: nobody listens to them any more.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(channel)) => {
                self.ended.lock().push(channel.to_owned());
                self.changed.notify_one();
            }
            (PushKind::Disconnection, _) => self.gone.cancel(),
            _ => {}
        }
    }
}
