//! The permissions that a user needs: those of `docs/security.md`, and the purpose of the optional ones.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Instant;

use lockdog::{Client, Error, Owner, Unlocked};

use super::{LONG, SOON, ms, patient, renewed, waiter};
use crate::support::redis::WAITING;
use crate::support::security::{
    documented, of_a_counted_semaphore, of_a_fair_lock, of_a_fenced_lock, of_a_group_lock,
    of_a_latch, of_a_read_write_lock, of_a_semaphore, of_a_waiting_list, of_an_election,
};
use crate::support::{Redis, RedisServer, eventually, until_ok};

#[tokio::test]
async fn the_documented_acl_is_sufficient() {
    let (server, redis) = with_user(&documented()).await;
    let used = scenario(&server, &redis, ms(60_000)).await;
    let mut refused = refused(&redis).await;
    // Redis 6.2 does not name subcommands. It refuses redis-rs's `client|setinfo`.
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    // All granted permissions are used. The rare ones are for silent connections, which this test does not
    // have.
    let rare = ["client|kill", "ping"];
    let granted = documented();
    let granted = granted.iter().filter_map(|rule| rule.strip_prefix('+'));
    for command in granted.filter(|command| !rare.contains(command)) {
        let seen = used.contains(command) || used.contains(command.split('|').next().unwrap());
        assert!(seen, "{command} is granted and not used: {used:?}");
    }
}

#[tokio::test]
async fn a_list_of_waiting_clients_needs_what_is_documented_for_it() {
    for (rules, is_listed) in [(of_a_waiting_list(), true), (Vec::new(), false)] {
        let (server, redis) = with_user(&[documented(), rules].concat()).await;
        let (holder, waiting) =
            tokio::join!(Client::connect(url(&server)), Client::connect(url(&server)));
        let (holder, waiting) = (holder.unwrap(), waiting.unwrap());
        let held = holder.lock("orders:1").lock().await.unwrap();
        let waiter = waiter(&waiting.lock("orders:1"));
        eventually(SOON, "it listens, and has asked again", async || {
            let asked = redis.commandstats().await.get("evalsha").copied();
            let channels = redis.all_channels().await.len();
            asked >= Some(3) && channels == if is_listed { 3 } else { 1 }
        })
        .await;
        held.unlock().await.unwrap();
        waiter.await.unwrap().unlock().await.unwrap();
        let log = format!("{:?}", redis.cmd(&["ACL", "LOG"]).await);
        assert_eq!(log.contains("lockdog_waiters"), !is_listed, "{log}");
        let used = redis.commandstats().await;
        assert_eq!(used.contains_key("zpopmin"), is_listed);
    }
}

#[tokio::test]
async fn a_client_that_may_use_only_a_part_of_a_waiting_list_does_not_count_as_listed() {
    let channel = "redisson_lock__channel:{orders:1}";
    let list = format!("{WAITING}{{orders:1}}");
    let cases = [
        // It is not in the list, so a release has to wake everyone.
        ("~lockdog_waiters:{orders:*}", &*list, (2, 1)),
        // It does not receive the messages of Redisson's clients, and must hide none of their waiters.
        ("&redisson_lock__channel:{orders:*}", channel, (1, 1)),
    ];
    for (without, refused, expected) in cases {
        let mut rules = [documented(), of_a_waiting_list()].concat();
        let all = rules.len();
        rules.retain(|rule| rule != without);
        assert_eq!(rules.len(), all - 1);
        let (server, redis) = with_user(&rules).await;
        let (holder, listed, narrow) = tokio::join!(
            patient(server.url()).build(),
            patient(server.url()).build(),
            patient(url(&server)).build()
        );
        let (holder, listed, narrow) = (holder.unwrap(), listed.unwrap(), narrow.unwrap());
        let held = holder.lock("orders:1").lock().await.unwrap();
        let first = waiter(&listed.lock("orders:1"));
        let second = waiter(&narrow.lock("orders:1"));
        let mut quiet = 0;
        eventually(SOON, "only one client counts as listed", async || {
            let (_, on_channel, _, on_list): (String, u64, String, u64) =
                redis.ask(&["PUBSUB", "NUMSUB", channel, &list]).await;
            let log = format!("{:?}", redis.cmd(&["ACL", "LOG"]).await);
            let is_so = log.contains(refused) && (on_channel, on_list) == expected;
            // The narrow client may still be about to subscribe.
            quiet = if is_so { quiet + 1 } else { 0 };
            quiet == 10
        })
        .await;
        held.unlock().await.unwrap();
        tokio::join!(
            async { first.await.unwrap().unlock().await.unwrap() },
            async { second.await.unwrap().unlock().await.unwrap() },
        );
    }
}

#[tokio::test]
async fn removing_a_required_permission_fails_a_call() {
    let (server, redis) = with_user(&documented()).await;
    let optional = [
        "client|id",
        "client|kill",
        "client|setname",
        "info",
        "ping",
        "publish",
        "pubsub|numsub",
        "subscribe",
        "unsubscribe",
    ];
    for rule in documented().iter().filter(|rule| rule.starts_with('+')) {
        let command = &rule[1..];
        if optional.contains(&command) {
            continue;
        }
        redis
            .cmd(&["ACL", "SETUSER", "lockdog", &format!("-{command}")])
            .await;
        redis.cmd(&["SCRIPT", "FLUSH"]).await;
        redis.cmd(&["ACL", "LOG", "RESET"]).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let failed = every_call(&client).await;
        assert!(failed, "nothing fails without {command}");
        assert!(
            refused(&redis).await.contains(command),
            "{command} was not asked for"
        );
        redis
            .cmd(&["ACL", "SETUSER", "lockdog", &format!("+{command}")])
            .await;
        redis.cmd(&["FLUSHALL"]).await;
    }
}

fn documented_without(is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let mut rules = documented();
    rules.retain(|rule| !is_left_out(rule));
    rules
}

#[tokio::test]
async fn without_permission_to_subscribe_waiters_poll() {
    let missing = |rule: &str| rule.contains("subscribe") || rule.starts_with('&');
    let (server, redis) = with_user(&documented_without(missing)).await;
    scenario(&server, &redis, ms(50)).await;
    assert!(refused(&redis).await.contains("subscribe"));
}

#[tokio::test]
async fn without_permission_to_publish_other_clients_waiters_poll() {
    let rules = documented_without(|rule| rule == "+publish");
    let (server, redis) = with_user(&rules).await;
    scenario(&server, &redis, ms(50)).await;
    assert!(refused(&redis).await.contains("publish"));
}

#[tokio::test]
async fn without_client_commands_everything_else_works() {
    let rules = documented_without(|rule| rule.starts_with("+client"));
    let (server, redis) = with_user(&rules).await;
    scenario(&server, &redis, ms(60_000)).await;
    let refused = refused(&redis).await;
    assert!(
        refused.iter().any(|command| command.starts_with("client")),
        "{refused:?}"
    );
    let names = redis.clients().await.into_iter().map(|client| client.name);
    assert!(!names.collect::<Vec<_>>().contains(&"billing".to_owned()));
}

#[tokio::test]
async fn without_permission_for_info_everything_else_works() {
    let rules = documented_without(|rule| rule == "+info");
    let (server, redis) = with_user(&rules).await;
    scenario(&server, &redis, ms(60_000)).await;
    assert!(refused(&redis).await.contains("info"));
}

#[tokio::test]
async fn without_permission_to_read_a_holder_or_a_ttl_no_call_waits_for_a_busy_lock() {
    for missing in ["+hget", "+pttl"] {
        let rules = documented_without(|rule| rule == missing);
        let (server, redis) = with_user(&rules).await;
        redis.cmd(&["HSET", "orders:1", "other", "1"]).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let refused = client.lock("orders:1").lock().await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn keys_and_channels_outside_the_pattern_are_refused() {
    let (server, _redis) = with_user(&documented()).await;
    let client = Client::connect(url(&server)).await.unwrap();
    let error = client.lock("payroll:1").lock().await.unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error}");
    assert!(!error.is_retriable());
}

#[tokio::test]
async fn a_semaphore_needs_what_is_documented_for_it() {
    let further = of_a_semaphore();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::builder()
        .url(url(&server))
        .watchdog_lease(ms(6_000));
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore("orders:seats");
    assert!(seats.try_set_permits(1).await.unwrap());
    seats.add_permits(1).await.unwrap();
    let both = seats.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn(seats.acquire().forever().into_future());
    let deadline = || Instant::now() + both.remaining();
    let first = deadline();
    eventually(SOON, "they are renewed", async || {
        deadline() > first + ms(1_000)
    })
    .await;
    both.release().await.unwrap();
    let ids = waiting.await.unwrap().unwrap().into_ids();
    assert!(seats.update_lease(&ids[0], LONG).await.unwrap());
    assert!(seats.lease_of(&ids[0]).await.unwrap().is_some());
    seats.release(&ids).await.unwrap();
    seats.set_permits(5).await.unwrap();
    assert_eq!(seats.permits().await.unwrap(), 5);
    assert_exact(&redis, &further).await;
}

#[tokio::test]
async fn a_read_write_lock_needs_what_is_documented_for_it() {
    let further = of_a_read_write_lock();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::builder()
        .url(url(&server))
        .watchdog_lease(ms(6_000));
    let client = client.build().await.unwrap();
    let rw = client.read_write_lock("orders:prices");
    let reads = rw.read().lock().await.unwrap();
    let other = rw
        .read()
        .lock()
        .owner(&Owner::new())
        .lease(LONG)
        .await
        .unwrap();
    let waiting = tokio::spawn(rw.write().lock().into_future());
    renewed(&[&reads]).await;
    drop(other);
    let writes = reads.upgrade().await.unwrap();
    writes.downgrade().await.unwrap().unlock().await.unwrap();
    waiting.await.unwrap().unwrap().forget();
    assert!(rw.write().force_unlock().await.unwrap());
    assert!(rw.holders().await.unwrap().is_empty());
    assert_exact(&redis, &further).await;
}

#[tokio::test]
async fn a_latch_needs_what_is_documented_for_it() {
    let further = of_a_latch();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::connect(url(&server)).await.unwrap();
    let latch = client.count_down_latch("orders:start");
    assert!(latch.try_set_count(2).await.unwrap());
    // On a busy machine the count may be unknown when the wait is over.
    let waited = async || latch.wait_zero_within(ms(200)).await;
    assert!(!until_ok(SOON, waited).await);
    let start = latch.clone();
    let waiting = tokio::spawn(async move { start.wait_zero().await });
    tokio::time::sleep(ms(300)).await;
    latch.count_down().await.unwrap();
    latch.count_down().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(latch.count().await.unwrap(), 0);
    assert!(!latch.delete().await.unwrap());
    assert_exact(&redis, &further).await;
}

#[tokio::test]
async fn a_semaphore_without_leases_needs_what_is_documented_for_it() {
    let further = of_a_counted_semaphore();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::connect(url(&server)).await.unwrap();
    let seats = client.semaphore("orders:seats");
    assert!(seats.try_set_permits(2).await.unwrap());
    seats.add_permits(1).await.unwrap();
    let mut three = seats.acquire_many(3).await.unwrap();
    let waiting = tokio::spawn(seats.acquire().into_future());
    tokio::time::sleep(ms(300)).await;
    three.split(1).unwrap().release().await.unwrap();
    waiting.await.unwrap().unwrap().forget();
    seats.release(2).await.unwrap();
    drop(three);
    let rest = seats.drain().await.unwrap();
    rest.expect("one is free").forget();
    assert!(!seats.holders().await.unwrap().is_empty());
    assert_eq!(seats.reclaim(lockdog::Uuid::nil()).await.unwrap(), 0);
    // The outcome of an acquire that is dropped is unknown.
    seats.add_permits(2).await.unwrap();
    for _ in 0..3 {
        assert!(
            crate::support::prelude::poll_once(seats.acquire().into_future())
                .await
                .is_none()
        );
    }
    eventually(SOON, "an end is remembered", async || {
        redis.commandstats().await.contains_key("zremrangebyscore")
    })
    .await;
    // The key is deleted while permits are held.
    let held = seats.acquire().await.unwrap();
    redis.cmd(&["DEL", "orders:seats"]).await;
    held.release().await.unwrap();
    assert_exact(&redis, &further).await;
}

#[tokio::test]
async fn a_fenced_lock_needs_what_is_documented_for_it() {
    let further = of_a_fenced_lock();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::connect(url(&server)).await.unwrap();
    let lock = client.fenced_lock("orders:2");
    let guard = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    inner.unlock().await.unwrap();
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(50)).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unlock().await.unwrap();
    assert!(lock.last_token().await.unwrap().is_some());
    let mut refused = refused(&redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    // An acquire that is refused holds nothing.
    for left_out in &further {
        let rest = further.iter().filter(|rule| *rule != left_out).cloned();
        let rules: Vec<String> = documented().into_iter().chain(rest).collect();
        let (server, redis) = with_user(&rules).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let refused = client.fenced_lock("orders:2").lock().await.unwrap_err();
        let is_denied = matches!(&refused, Error::Refused { .. });
        assert!(
            is_denied && refused.to_string().contains("NOPERM"),
            "without {left_out}: {refused}"
        );
        assert!(redis.all_keys().await.is_empty(), "without {left_out}");
    }
}

#[tokio::test]
async fn a_fair_lock_needs_what_is_documented_for_it() {
    let further = of_a_fair_lock();
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let builder = || Client::builder().url(url(&server)).poll_cap(ms(100));
    let (client, another) = (
        builder().build().await.unwrap(),
        builder().build().await.unwrap(),
    );
    let (lock, theirs) = (client.fair_lock("orders:2"), another.fair_lock("orders:2"));
    let guard = lock.lock().await.unwrap();
    // A Redisson waiter whose score is lowered, and one that is dropped.
    let (queue, places) = (
        "redisson_lock_queue:{orders:2}",
        "redisson_lock_timeout:{orders:2}",
    );
    redis.cmd(&["RPUSH", queue, "java:1"]).await;
    redis.cmd(&["ZADD", places, "1", "java:1"]).await;
    let waiting = [waiter(&lock), waiter(&theirs), waiter(&lock)];
    eventually(SOON, "they are in the queue", async || {
        lock.waiters().await.unwrap().len() == 3
    })
    .await;
    redis.cmd(&["RPUSH", queue, "java:2"]).await;
    redis
        .cmd(&["ZADD", places, "9999999999999", "java:2"])
        .await;
    // The first waiter enters again, at the front.
    let first: String = redis.ask(&["LPOP", queue]).await;
    redis.cmd(&["ZREM", places, &first]).await;
    // On a busy machine an attempt may be unanswered when the wait is over.
    let late = async || lock.try_lock().owner(&Owner::new()).wait(ms(300)).await;
    assert!(until_ok(SOON, late).await.is_none());
    guard.unlock().await.unwrap();
    let turns = waiting.map(async |waiter| waiter.await.unwrap().unlock().await.unwrap());
    futures_util::future::join_all(turns).await;
    redis.cmd(&["DEL", queue, places]).await;
    let guard = lock.lock().await.unwrap();
    assert!(theirs.force_unlock().await.unwrap());
    drop(guard);
    let mut refused = refused(&redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    // A waiter that may not enter the queue gets an error, and leaves no key.
    for left_out in further
        .iter()
        .filter(|rule| rule.starts_with("~redisson_lock_"))
    {
        let rest = further.iter().filter(|rule| *rule != left_out).cloned();
        let rules: Vec<String> = documented().into_iter().chain(rest).collect();
        let (server, redis) = with_user(&rules).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let refused = client.fair_lock("orders:2").lock().await.unwrap_err();
        let is_denied = matches!(&refused, Error::Refused { .. });
        assert!(
            is_denied && refused.to_string().contains("NOPERM"),
            "without {left_out}: {refused}"
        );
        assert!(redis.all_keys().await.is_empty(), "without {left_out}");
    }
}

#[tokio::test]
async fn a_group_lock_needs_what_is_documented_for_it() {
    let further = of_a_group_lock();
    let values = || ["a", "b"].map(lockdog::Value::utf8);
    let (server, redis) = with_user(&[documented(), further.clone()].concat()).await;
    let client = Client::builder()
        .url(url(&server))
        .watchdog_lease(ms(6_000));
    let client = client.build().await.unwrap();
    let lock = client.group_lock("orders:2", values());
    let guard = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let waiting = waiter(&lock);
    renewed(&[&guard]).await;
    inner.unlock().await.unwrap();
    assert!(lock.holder().await.unwrap().is_some() && lock.hold_count().await.unwrap() == 1);
    guard.unlock().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(guard);
    let mut refused = refused(&redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    for left_out in &further {
        let rest = further.iter().filter(|rule| *rule != left_out).cloned();
        let rules: Vec<String> = documented().into_iter().chain(rest).collect();
        let (server, redis) = with_user(&rules).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let refused = client
            .group_lock("orders:2", values())
            .lock()
            .await
            .unwrap_err();
        assert!(
            refused.to_string().contains("NOPERM"),
            "without {left_out}: {refused}"
        );
        assert!(redis.all_keys().await.is_empty(), "without {left_out}");
    }
}

#[tokio::test]
async fn an_election_needs_what_is_documented_for_it() {
    let further = of_an_election();
    let all = [documented(), of_a_fair_lock(), further.clone()].concat();
    let (server, redis) = with_user(&all).await;
    let client = Client::builder().url(url(&server)).poll_cap(ms(100));
    let client = client.build().await.unwrap();
    let election = client.election("orders:2");
    let mut leaders = election.observe();
    assert!(leaders.next().await.unwrap().is_none());
    let lead = election.campaign("a").await.unwrap();
    lead.proclaim("b").await.unwrap();
    assert!(leaders.next().await.unwrap().is_some());
    let next = election.campaign("c").owner(&Owner::new());
    let next = tokio::spawn(next.into_future());
    eventually(SOON, "it is in the queue", async || {
        redis
            .ask::<usize>(&["LLEN", "redisson_lock_queue:{orders:2}"])
            .await
            == 1
    })
    .await;
    lead.resign().await.unwrap();
    next.await.unwrap().unwrap().resign().await.unwrap();
    let mut refused = refused(&redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    // A refused campaign leaves no key. Without the channel an observer polls.
    for left_out in further.iter().filter(|rule| !rule.starts_with('&')) {
        let rest = further.iter().filter(|rule| *rule != left_out).cloned();
        let rules = documented().into_iter().chain(of_a_fair_lock());
        let rules: Vec<String> = rules.chain(rest).collect();
        let (server, redis) = with_user(&rules).await;
        let client = Client::connect(url(&server)).await.unwrap();
        let refused = client.election("orders:2").campaign("a").await.unwrap_err();
        let is_denied = matches!(&refused, Error::Refused { .. });
        assert!(
            is_denied && refused.to_string().contains("NOPERM"),
            "without {left_out}: {refused}"
        );
        eventually(SOON, "nothing but the counter is left", async || {
            let keys = redis.all_keys().await;
            keys.iter()
                .all(|key| key.starts_with("redisson_lock_token"))
        })
        .await;
    }
}

/// The script has removed the first hold before it reads the clock for the next token.
#[tokio::test]
async fn a_fenced_hand_over_that_may_not_read_the_clock_frees_the_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.fenced_lock("l");
    let guard = lock.lock().await.unwrap();
    let waiting = tokio::spawn(lock.lock().into_future());
    // It is in the queue, and waits for the holder of its own client without a command.
    tokio::time::sleep(ms(100)).await;
    redis.cmd(&["ACL", "SETUSER", "default", "-time"]).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let refused = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { code, .. } if code == "NOPERM"),
        "{refused}"
    );
    redis.cmd(&["ACL", "SETUSER", "default", "+time"]).await;
    redis.eventually_gone("l").await;
}

/// The script has granted the leadership before it reads the clock for the term.
#[tokio::test]
async fn a_campaign_that_may_not_read_the_clock_leaves_nothing() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    redis.cmd(&["ACL", "SETUSER", "default", "-time"]).await;
    // One attempt has no place in the queue, so the client does not settle after a refusal.
    let campaign = client.election("l").campaign("a").wait(ms(0));
    let refused = campaign.await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert!(!redis.exists("l").await);
    redis.cmd(&["ACL", "SETUSER", "default", "+time"]).await;
}

async fn with_user(rules: &[String]) -> (RedisServer, Redis) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let mut command = vec!["ACL", "SETUSER", "lockdog", "on", ">secret"];
    command.extend(rules.iter().map(String::as_str));
    redis.cmd(&command).await;
    redis.cmd(&["ACL", "LOG", "RESET"]).await;
    (server, redis)
}

/// All normal operations, by that user. Returns the commands that the server ran.
async fn scenario(
    server: &RedisServer,
    redis: &Redis,
    poll_cap: std::time::Duration,
) -> BTreeSet<String> {
    redis.reset_stats().await;
    let connect = async || {
        Client::builder()
            .url(url(server))
            .client_name("billing")
            .poll_cap(poll_cap)
            .watchdog_lease(ms(6_000))
            .build()
            .await
            .unwrap()
    };
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("orders:1").lock().await.unwrap();
    let waiting = waiter(&two.lock("orders:1"));
    renewed(&[&guard]).await;
    let behind = waiter(&two.lock("orders:1"));
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    tokio::time::sleep(ms(50)).await;
    next.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, behind).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    assert!(!every_call(&one).await);
    // The last waiter's subscription ends in the background.
    let left = async || redis.channels().await.is_empty();
    eventually(SOON, "no waiter listens any more", left).await;
    let used = redis.commandstats().await.into_keys().collect();
    one.shutdown().await;
    two.shutdown().await;
    redis.assert_clean().await;
    used
}

/// Calls every function once. Returns true if any call failed.
async fn every_call(client: &Client) -> bool {
    let lock = client.lock("orders:2");
    let owner = Owner::new();
    owner
        .scope(async {
            let mut results = Vec::new();
            let guard = acquire(lock.try_lock().lease(LONG)).await;
            let inner = acquire(lock.try_lock().lease(LONG * 2)).await;
            results.push(lock.hold_count().await.is_ok());
            results.push(lock.is_held().await.is_ok());
            results.push(lock.holder().await.is_ok());
            results.push(lock.remaining_ttl().await.is_ok());
            results.push(lock.is_locked().await.is_ok());
            for guard in [inner, guard] {
                results.push(match guard {
                    Some(guard) => guard.unlock().await.is_ok(),
                    None => false,
                });
            }
            let watched = acquire(lock.try_lock()).await;
            results.push(watched.is_some());
            results.push(lock.force_unlock().await.is_ok());
            drop(watched);
            results.contains(&false)
        })
        .await
}

/// One attempt, because a hold that an earlier call could not release may still exist.
async fn acquire(request: lockdog::request::TryLockRequest) -> Option<lockdog::Guard> {
    request.await.ok().flatten()
}

/// No command was refused, and each of these commands was used.
async fn assert_exact(redis: &Redis, granted: &[String]) {
    let mut refused = refused(redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
    // All granted permissions are used.
    let used = redis.commandstats().await;
    for command in granted.iter().filter_map(|rule| rule.strip_prefix('+')) {
        assert!(
            used.contains_key(command),
            "{command} is not used: {used:?}"
        );
    }
}

/// The commands, keys and channels that the server refused this user, except for the library name that
/// redis-rs sends.
pub(super) async fn refused(redis: &Redis) -> BTreeSet<String> {
    let log: redis::Value = redis.cmd(&["ACL", "LOG"]).await;
    let entries: Vec<std::collections::BTreeMap<String, redis::Value>> =
        redis::from_redis_value(log).expect("a list of entries");
    let object = |entry: &std::collections::BTreeMap<String, redis::Value>| {
        let object: String = redis::from_redis_value(entry["object"].clone()).expect("a name");
        object
    };
    let mut refused: BTreeSet<String> = entries.iter().map(object).collect();
    // Without a list of waiting clients a release wakes all of them.
    let is_of_list = |object: &str| object.starts_with(WAITING) || object == "zcard";
    refused.retain(|object| !object.starts_with("client|setinfo") && !is_of_list(object));
    refused
}

fn url(server: &RedisServer) -> String {
    format!("redis://lockdog:secret@127.0.0.1:{}", server.port())
}
