//! The tokens of the fenced lock after lost replies. FE1 to FE3 are the invariants of `docs/design.md`.

use lockdog::Client;

use super::fenced::{COUNTER, counter, token};
use super::{LONG, SOON, ms, waiter};
use crate::support::{Action, Proxy, RedisServer, eventually};

/// FE2: the repetition has the token of the grant that it repeats.
#[tokio::test]
async fn an_acquire_repeated_after_a_lost_reply_has_the_token_of_its_grant() {
    let (server, client, proxy) = behind_a_proxy().await;
    let redis = server.redis().await;
    let lock = client.fenced_lock("l");
    drop(lock.lock().await.unwrap());
    redis.eventually_gone("l").await;
    let rule = proxy.on(is(ACQUIRE), Action::ExecuteThenCut);
    let messages = redis.monitor().await;
    let guard = lock.lock().await.unwrap();
    assert_eq!(rule.hits(), 1);
    assert_eq!(counter(&redis).await, token(&guard).to_string());
    let set = format!("\"set\" \"{COUNTER}\"");
    let sets = || {
        messages
            .seen()
            .iter()
            .filter(|it| it.contains(&set))
            .count()
    };
    eventually(SOON, "the token was written", async || sets() > 0).await;
    assert_eq!(sets(), 1, "the repetition issued another token");
    guard.unlock().await.unwrap();
    // A nested acquire is repeated, too.
    let outer = lock.lock().await.unwrap();
    let rule = proxy.on(is(ACQUIRE), Action::ExecuteThenCut);
    let inner = lock.lock().await.unwrap();
    assert_eq!(rule.hits(), 1);
    assert_eq!((token(&inner), inner.hold_count()), (token(&outer), 2));
}

/// FE1 and FE3: the receiver of a hand-over has its own token before it has its guard.
#[tokio::test]
async fn a_hand_over_to_another_owner_of_the_client_issues_a_larger_token() {
    let (server, client, proxy) = behind_a_proxy().await;
    let redis = server.redis().await;
    let lock = client.fenced_lock("l");
    for lost_reply in [false, true] {
        // A row of hand-overs ends after 250 ms, so each is the first one after an acquire.
        let guard = lock.lock().await.unwrap();
        let waiting = waiter(&lock);
        // It is in the queue, and waits for the holder of its own client without a command.
        tokio::time::sleep(ms(50)).await;
        let handed = proxy.count(is(TRANSFER));
        let rule = lost_reply.then(|| proxy.on(is(TRANSFER), Action::ExecuteThenCut));
        let before = token(&guard);
        guard.unlock().await.unwrap();
        let guard = waiting.await.unwrap();
        assert!(token(&guard) > before, "{guard:?}");
        assert_eq!(counter(&redis).await, token(&guard).to_string());
        assert!(proxy.count(is(TRANSFER)) > handed, "it was released");
        assert!(rule.is_none_or(|rule| rule.hits() == 1));
        assert_eq!(redis.hash("l").await.len(), 1);
        guard.unlock().await.unwrap();
    }
    redis.assert_clean().await;
}

/// A client behind a proxy. The scripts are loaded, so that a rule applies to the first sending.
async fn behind_a_proxy() -> (RedisServer, Client, Proxy) {
    let server = RedisServer::start().await;
    for script in [ACQUIRE, TRANSFER] {
        server.redis().await.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&server).await;
    // A waiter that was not polled for a poll cap gets no hand-over.
    let client = Client::builder().url(proxy.url()).poll_cap(LONG);
    (server, client.build().await.unwrap(), proxy)
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/fenced/acquire.lua");
const TRANSFER: &str = include_str!("../../../lua/fenced/transfer.lua");
