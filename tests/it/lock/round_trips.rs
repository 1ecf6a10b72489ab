//! The number of round trips does not depend on the machine: a call sends its commands at once, and each
//! command is one round trip.

use lockdog::Client;

use super::{LONG, SOON, ms, waiter};
use crate::support::{Direction, Proxy, RedisServer, eventually};

/// An acquire, an unlock and a hand-over within a client are one round trip each. A hand-over between
/// clients is two. The network takes a millisecond in each direction.
#[tokio::test]
async fn every_step_of_a_lock_takes_the_minimum_of_round_trips() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let connect = async || {
        Client::builder()
            .url(proxy.url())
            .poll_cap(SOON)
            .watchdog_lease(LONG)
            // A command that a busy machine does not answer in time would be sent again.
            .command_timeout(SOON)
            .build()
            .await
            .unwrap()
    };
    let (one, two) = (connect().await, connect().await);
    for client in [&one, &two] {
        let (first, second) = (client.lock("warm"), client.lock("warm"));
        let held = first.lock().await.unwrap();
        let behind = waiter(&second);
        tokio::time::sleep(ms(50)).await;
        held.unlock().await.unwrap();
        behind.await.unwrap().unlock().await.unwrap();
    }
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, ms(1));
    }
    let lock = one.lock("l");

    let sent = Sent::from(&proxy);
    let held = lock.lock().await.unwrap();
    assert_eq!(sent.since(), 1, "an acquire");

    let inside = waiter(&lock);
    tokio::time::sleep(ms(50)).await;
    let sent = Sent::from(&proxy);
    held.unlock().await.unwrap();
    let held = inside.await.unwrap();
    assert_eq!(sent.since(), 1, "a hand-over inside a client");

    redis.reset_stats().await;
    let across = waiter(&two.lock("l"));
    // An attempt, the subscription, and the attempt after it.
    eventually(SOON, "it listens, and has asked again", async || {
        let asked = redis.commandstats().await.get("evalsha").copied();
        !redis.channels().await.is_empty() && asked == Some(2)
    })
    .await;
    tokio::time::sleep(ms(50)).await;
    let sent = Sent::from(&proxy);
    held.unlock().await.unwrap();
    let held = across.await.unwrap();
    assert_eq!(sent.since(), 2, "a hand-over across clients");

    let sent = Sent::from(&proxy);
    held.unlock().await.unwrap();
    // The last waiter of a client unsubscribes, in parallel to the lock's commands.
    assert_eq!(sent.since(), 1, "an unlock");
}

/// The number of scripts that passed the proxy.
struct Sent<'a> {
    proxy: &'a Proxy,
    before: usize,
}

impl<'a> Sent<'a> {
    fn from(proxy: &'a Proxy) -> Self {
        let before = scripts(proxy);
        Self { proxy, before }
    }

    fn since(&self) -> usize {
        scripts(self.proxy) - self.before
    }
}

fn scripts(proxy: &Proxy) -> usize {
    proxy.count(|args| args[0].to_uppercase().starts_with("EVAL"))
}
