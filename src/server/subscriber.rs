//! A connection for the messages of one server of a cluster.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::wire::{isolated, password, text};

/// Controls such a connection's subscriptions.
pub(crate) struct Subscriber {
    connection: MultiplexedConnection,
    /// Use sharded channels: messages stay within one shard.
    sharded: bool,
    limit: Duration,
    push: Arc<PushMessage>,
}

/// Push messages of the server other than published messages.
#[derive(Default)]
struct PushMessage {
    /// Channels whose subscriptions the server ended.
    ended: Mutex<Vec<String>>,
    changed: Notify,
    gone: CancellationToken,
}

impl Subscriber {
    /// Connects. `on_message` gets the channel and the text of each message.
    pub(super) async fn open(
        client: &redis::Client,
        sharded: bool,
        on_message: impl Fn(&str, &[u8]) + Send + Sync + 'static,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let push = Arc::new(PushMessage::default());
        let receiver = push.clone();
        let on_push = move |push: PushInfo| {
            receiver.receive(&push, &on_message);
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit))
            .set_push_sender(on_push);
        let opening = async {
            let opened = client.get_multiplexed_async_connection_with_config(&config);
            let info = client.get_connection_info();
            let refused = |error| Failure::of_connect(&error, password(info));
            opened.await.map_err(refused)
        };
        let connection = isolated(Box::pin(opening)).await?;
        Ok(Self {
            connection,
            sharded,
            limit,
            push,
        })
    }

    /// Subscribes to this channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(), Failure> {
        let (word, kind) = match self.sharded {
            true => ("SSUBSCRIBE", PushKind::SSubscribe),
            false => ("SUBSCRIBE", PushKind::Subscribe),
        };
        self.ask(word, channel, &kind).await
    }

    /// Unsubscribes from this channel.
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
            // redis-rs may mistake a push message for the answer, since it counts answers. The
            // answer is not shown, because its channel contains the lock's name.
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

    /// Waits until the server has ended subscriptions without a request, and returns their channels.
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

    /// Waits until the connection is closed.
    pub(crate) async fn gone(&self) {
        self.push.gone.cancelled().await;
    }
}

impl PushMessage {
    fn receive(&self, push: &PushInfo, on_message: &impl Fn(&str, &[u8])) {
        let channel = push.data.first().and_then(text);
        match (&push.kind, channel) {
            (PushKind::Message | PushKind::SMessage, Some(channel)) => {
                let payload = match push.data.get(1) {
                    Some(Value::BulkString(payload)) => payload.as_slice(),
                    _ => &[],
                };
                on_message(channel, payload);
            }
            // The client's own unsubscribes are reported here too. That does no harm, because no waiter
            // wants these channels any more.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(channel)) => {
                self.ended.lock().push(channel.to_owned());
                self.changed.notify_one();
            }
            (PushKind::Disconnection, _) => self.gone.cancel(),
            _ => {}
        }
    }
}
