//! Opens connections for messages.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::PubSub;

use super::endpoint::Endpoint;
use super::failure::Failure;
use super::login::log_in;
use super::subscriber::Subscriber;
use super::user_connector::Purpose;
use super::wire::{isolated, password};
use crate::observe::Role;

impl Endpoint {
    /// A connection for messages, if an address is known.
    pub(crate) async fn open_pubsub(&self, limit: Duration) -> Result<PubSub, Failure> {
        let opened = self.open_messages(limit).await;
        self.opened(Role::Messages, opened)
    }

    async fn open_messages(&self, limit: Duration) -> Result<PubSub, Failure> {
        let client = self.find_for_messages(limit).await?;
        let user_connector = self.user_connector.as_ref();
        let connect = |client: redis::Client| async move {
            if let Some(user_connector) = user_connector {
                return user_connector.open_pubsub(&client).await;
            }
            let opening = async {
                let opened = client.get_async_pubsub().await;
                opened.map_err(|error| {
                    Failure::of_connect(&error, password(client.get_connection_info()))
                })
            };
            isolated(Box::pin(opening)).await
        };
        let logins = self.logins.as_ref();
        log_in(logins, &client, Purpose::Messages, limit, connect).await
    }

    /// A connection for the messages of one server of a cluster, which has only some of the
    /// channels.
    pub(super) async fn subscriber(
        &self,
        sharded: bool,
        on_message: impl Fn(&str, &[u8]) + Send + Sync + 'static,
        limit: Duration,
    ) -> Result<Subscriber, Failure> {
        let client = self.find_for_messages(limit).await?;
        // Messages arrive between answers, and only RESP3 distinguishes the two.
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(redis::ProtocolVersion::RESP3);
        let client = redis::Client::open(info.clone().set_redis_settings(settings));
        let client = client.map_err(|error| Failure::of_connect(&error, password(&info)))?;
        let on_message = Arc::new(on_message);
        let connect = |client: redis::Client| {
            let on_message = on_message.clone();
            async move {
                let on_message = move |channel: &str, text: &[u8]| on_message(channel, text);
                Subscriber::open(&client, sharded, on_message, limit).await
            }
        };
        let logins = self.logins.as_ref();
        let opened = log_in(logins, &client, Purpose::Messages, limit, connect).await;
        self.opened(Role::Messages, opened)
    }

    async fn find_for_messages(&self, limit: Duration) -> Result<redis::Client, Failure> {
        let (client, _) = self.find(limit).await?;
        client.ok_or_else(|| Failure::Unsent("messages need a url besides the pool".into()))
    }
}
