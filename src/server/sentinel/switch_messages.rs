//! The messages by which a sentinel announces that it switched a master.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::Notify;

use super::sentinel_access::SentinelAccess;
use crate::panics;

/// Subscribes to one sentinel's switch messages, and reconnects. Notifies `ask_now` of each switch of the master
/// with this name. Never ends.
pub(super) async fn listen(sentinel: &SentinelAccess, master: &str, ask_now: &Notify) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let subscribing = async {
            // The queries find out whether this sentinel requires a login.
            let opening = sentinel.client().get_async_pubsub();
            // A panic is a failed attempt, as in `wire::isolated`.
            let mut connection = panics::catch_in(opening).await?.ok()?;
            connection.subscribe("+switch-master").await.ok()?;
            Some(connection.into_on_message())
        };
        if let Ok(Some(mut messages)) = tokio::time::timeout(SUBSCRIBE_TIMEOUT, subscribing).await {
            // Messages from before the subscription are missed, so ask now.
            ask_now.notify_one();
            // A half-open connection would otherwise stay silent forever.
            while let Ok(Some(message)) = tokio::time::timeout(A_MINUTE, messages.next()).await {
                pause = SHORTEST_PAUSE;
                let text: String = message.get_payload().unwrap_or_default();
                if text.split(' ').next() == Some(master) {
                    ask_now.notify_one();
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
const A_MINUTE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
