//! A server that accepts only one key per command, as a proxy of a cluster may.

use std::sync::{Arc, Mutex};

use lockdog::Guard;
use lockdog::error::LostReason;
use lockdog::observe::{ClientEvent, Observer};
use lockdog::report::Verdict;
use tokio::time::{sleep, timeout};

use super::{LEASE, OUTLAST, PERIOD, RENEW, SAFETY, builder, connect, connected};
use super::{hold_many, is_renewal, renewals};
use crate::support::{Action, Proxy, RedisServer, eventually, named};

/// A proxy answers CROSSSLOT to commands of several keys.
#[tokio::test]
async fn a_batch_refused_for_its_keys_is_split_and_stays_split() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let refusal = Action::ReplyWith(REFUSAL.to_owned());
    let rule = proxy.on(is_batch, refusal).always();
    let mut guards = hold_many(&client, "b", LOCKS).await;
    rule.wait_hits(1).await;
    sleep(PERIOD).await;
    // Commands in flight at the first refusal were refused, too, and no later ones.
    let refused = rule.hits();
    let before = renewals(&proxy);
    sleep(OUTLAST).await;
    assert_eq!(rule.hits(), refused);
    all_are_held(&guards).await;
    let each = (renewals(&proxy) - before) as f64 / LOCKS as f64;
    println!("{refused} refused, then {each} renewals for each lock in four periods");
    assert!(each >= 1.0, "{each} renewals for each lock in four periods");

    // Each by itself: the loss of one is reported, and no other is affected.
    redis.cmd(&["DEL", "b:7"]).await;
    redis.cmd(&["SET", "b:3", "no hash", "PX", "60000"]).await;
    let wrong_type = guards.remove(3);
    let gone = guards.remove(6);
    let lost = timeout(SAFETY, gone.lost())
        .await
        .expect("it is notified of the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let lost = timeout(SAFETY, wrong_type.lost()).await;
    assert_eq!(
        lost.expect("it is notified of the loss").reason(),
        LostReason::Deadline
    );
    all_are_held(&guards).await;

    // Another connection to the same server, without a refusal so far.
    assert!(proxy.cut_all() >= 2);
    sleep(OUTLAST).await;
    all_are_held(&guards).await;
    assert_eq!(rule.hits(), refused);
    for guard in guards {
        guard.unlock().await.expect("it was held all the time");
    }
    drop((wrong_type, gone));
    redis.assert_clean().await;
}

/// If each single command is refused as well, the batch failed.
#[tokio::test]
async fn a_split_batch_whose_parts_are_all_refused_is_retried_until_the_deadline() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let lease = LEASE * 3;
    let client = connected(builder(proxy.url()).watchdog_lease(lease)).await;
    let batches = proxy.on(is_batch, Action::ReplyWith(REFUSAL.to_owned()));
    let busy = Action::ReplyWith("-LOADING wait".to_owned());
    let guards = hold_many(&client, "b", 5).await;
    batches.wait_hits(1).await;
    let singles = proxy.on(is_renewal, busy).always();
    singles.wait_hits(10).await;
    singles.remove();
    sleep(lease + PERIOD).await;
    all_are_held(&guards).await;
    // Then all commands are refused.
    let singles = proxy.on(
        named("evalsha"),
        Action::ReplyWith("-LOADING wait".to_owned()),
    );
    let singles = singles.always();
    for guard in &guards {
        let lost = timeout(SAFETY, guard.lost())
            .await
            .expect("it is notified of the loss");
        assert_eq!(lost.reason(), LostReason::Deadline);
    }
    assert!(singles.hits() >= 5);
    singles.remove();
    drop(guards);
    server.redis().await.assert_clean().await;
}

/// The answer of one lock is processed when it comes, although the server does not answer for the other one.
#[tokio::test]
async fn a_lock_of_a_split_batch_does_not_wait_for_the_answer_of_another_lock() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let redis = server.redis().await;
    // A command that is sent a second time, with the text of its script, would come after the other one.
    redis.cmd(&["SCRIPT", "LOAD", RENEW.0]).await;
    let noted = Noted::default();
    let builder = builder(proxy.url()).watchdog_lease(LEASE * 3);
    let client = connected(builder.observer(noted.clone())).await;
    let refusal = Action::ReplyWith("-TRYAGAIN Multiple keys request".to_owned());
    let batches = proxy.on(is_batch, refusal).always();
    let is_silent = |args: &[String]| is_renewal(args) && args[2] == "1" && args[3] == "silent";
    let silent = proxy.on(is_silent, Action::DropReply).always();
    // The first one is renewed before the other one.
    let gone = client.lock("gone").lock().await.unwrap();
    let other = client.lock("silent").lock().await.unwrap();
    redis.cmd(&["DEL", "gone"]).await;
    let lost = timeout(SAFETY, gone.lost())
        .await
        .expect("it is notified of the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    eventually(SAFETY, "a renewal fails", async || noted.get().len() >= 2).await;
    assert!(batches.hits() >= 1 && silent.hits() >= 1);
    assert_eq!(noted.get()[..2], ["lost", "renewal failed"]);
    silent.remove();
    batches.remove();
    drop((gone, other));
    redis.assert_clean().await;
}

/// Notes the losses and failed renewals.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<&'static str>>>);

impl Noted {
    fn get(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Noted {
    fn event(&self, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Lost { .. } => self.0.lock().unwrap().push("lost"),
            ClientEvent::RenewalFailed { .. } => self.0.lock().unwrap().push("renewal failed"),
            _ => {}
        }
    }
}

/// No guard is lost. On a busy machine a renewal may be late, and puts its holds in jeopardy for a moment.
async fn all_are_held(guards: &[Guard]) {
    eventually(SAFETY, "all are held", async || {
        let mut all = guards.iter();
        all.all(|guard| guard.is_valid() && guard.verdict() == Verdict::Held)
    })
    .await;
}

/// A renewal of several names.
fn is_batch(args: &[String]) -> bool {
    is_renewal(args) && args[2] != "1"
}

const LOCKS: usize = 20;
const REFUSAL: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
