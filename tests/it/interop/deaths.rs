//! A process is killed that holds an object of each kind, and whose waiter is first in each queue. The
//! other side gets each object when its lease ends, and the queues continue in their order. One process and
//! one kill serve all kinds, because the leases are real and a JVM costs more than most tests.

mod left;
mod queues;

use std::time::{Duration, Instant, SystemTime};

use lockdog::{Client, ClientBuilder};
use tokio::task::JoinHandle;

use left::LeftByJava;
use queues::{QUEUE, QUEUES, behind_java, behind_lockdog, queue_of};

use super::objects::{Held, Object, WRITE};
use super::{NEVER, SAFETY, has_every_kind, java_at, without_timers};
use crate::kinds;
use crate::support::RedisServer;
use crate::support::child::{Copy, argument, await_go_ahead, send};

/// The object that the killed side holds, and the object that the other side waits for.
const HELD: [(Object, Object); 11] = [
    alike(Object::Lock(&kinds::PLAIN)),
    alike(Object::Lock(&kinds::SPIN)),
    alike(Object::Lock(&kinds::NON_REENTRANT)),
    alike(Object::Lock(&kinds::FENCED)),
    alike(Object::Lock(&kinds::FENCED_FROM_ONE)),
    alike(Object::Lock(&kinds::FAIR)),
    alike(Object::Lock(&kinds::NON_REENTRANT_FAIR)),
    alike(Object::Lock(&kinds::GROUP)),
    // R19, in both modes.
    alike(WRITE),
    (Object::Read, WRITE),
    alike(Object::Election),
];

const OTHERS: [Object; 3] = [Object::Permits, Object::Semaphore, Object::Latch];

const fn alike(object: Object) -> (Object, Object) {
    (object, object)
}

fn has_lease(name: &str) -> bool {
    let without = [Object::Semaphore, Object::Latch];
    without.iter().all(|object| object.label() != name)
}

fn held() -> &'static [(Object, Object)] {
    if has_every_kind() { &HELD } else { &HELD[..1] }
}

fn others() -> &'static [Object] {
    if has_every_kind() { &OTHERS } else { &[] }
}

#[tokio::test]
async fn lockdog_gets_what_a_killed_java_process_held_when_its_lease_ends() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let dying = java_at(&server)
        .watchdog_timeout(LEASE)
        .own_jvm()
        .start()
        .await;
    let client = without_timers(&server).build().await.unwrap();
    let mut waiting = Vec::new();
    for &(holds, waits) in held() {
        let (name, from) = (holds.label(), Instant::now());
        holds.java_hold(&dying.thread(name), name, None).await;
        let client = client.clone();
        let waits = async move {
            let held = waits.wait(&client, name, Some(NEVER)).await;
            (held, from.elapsed())
        };
        waiting.push((name, tokio::spawn(waits)));
    }
    let (mut left, mut queues) = (None, Vec::new());
    if has_every_kind() {
        left = Some(LeftByJava::start(&server, &dying).await);
    }
    let messages = redis.messages("*").await;
    if has_every_kind() {
        queues = behind_java(&server, &dying).await;
    }
    dying.kill();
    let killed = Instant::now();
    for queue in &mut queues {
        queue.begin();
    }
    let mut got = Vec::new();
    for (name, waiting) in waiting {
        let ended = tokio::time::timeout(SAFETY, waiting).await;
        let ended = ended.unwrap_or_else(|_| panic!("{name}: its lease is over"));
        let (held, after) = ended.unwrap();
        assert!(after >= LEASE, "{name}: {after:?}");
        got.push(held);
    }
    // No message came: each waiter waited for the end of the lease.
    let locks = ["redisson_lock__", "redisson_rwlock"];
    let mut published = messages.seen();
    published.retain(|(channel, _)| {
        let is_lock = locks.iter().any(|prefix| channel.starts_with(prefix));
        is_lock && !channel.contains(QUEUE)
    });
    assert_eq!(published, []);
    for held in got {
        held.give_back().await;
    }
    for queue in queues {
        queue.goes_on().await;
    }
    if let Some(left) = left {
        left.outlive(killed).await;
    }
    redis.assert_clean().await;
}

/// The test runs in two processes: as the test, and as the process that is killed.
#[tokio::test]
async fn java_gets_what_a_killed_lockdog_process_held_when_its_lease_ends() {
    if let Some(url) = argument() {
        return hold_and_wait_in_the_queues(url).await;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = without_timers(&server).build().await.unwrap();
    for object in others() {
        object.make(&client, object.label()).await;
    }
    let mut dying = Copy::run(
        "interop::deaths::java_gets_what_a_killed_lockdog_process_held_when_its_lease_ends",
        &server.url(),
    );
    let from = SystemTime::now();
    dying.go_ahead();
    assert_eq!(dying.receive(), "holding");
    let mut waiting = Vec::new();
    for &(holds, waits) in held() {
        let name = holds.label();
        waiting.push((name, waits.java_wait(&java.thread(name), name, Some(NEVER))));
    }
    for object in others() {
        let name = object.label();
        let waits = object.java_wait(&java.thread(name), name, Some(NEVER));
        waiting.push((name, waits));
    }
    let mut queues = Vec::new();
    if has_every_kind() {
        queues = behind_lockdog(&server, &java, &mut dying).await;
    }
    let messages = redis.messages("*").await;
    dying.kill();
    for queue in &mut queues {
        queue.begin();
    }
    if has_every_kind() {
        // A permit without a lease has to be reclaimed. A dead waiter of a latch has changed nothing.
        let semaphore = client.semaphore(Object::Semaphore.label());
        let [dead] = &semaphore.holders().await.unwrap()[..] else {
            panic!("the killed process is the only holder");
        };
        assert_eq!(semaphore.available().await.unwrap(), 0);
        let dead = dead.client_id().expect("it is a lockdog client");
        assert_eq!(semaphore.reclaim(dead).await.unwrap(), 1);
        let latch = client.count_down_latch(Object::Latch.label());
        assert_eq!(latch.count().await.unwrap(), 1);
        latch.count_down().await.unwrap();
    }
    let mut got = Vec::new();
    for (name, waiting) in waiting {
        let ended = tokio::time::timeout(SAFETY, waiting.done()).await;
        let (held, at) = ended.unwrap_or_else(|_| panic!("{name}: its lease is over"));
        if has_lease(name) {
            let after = at.duration_since(from).unwrap_or_default();
            assert!(after >= LEASE, "{name}: {after:?}");
        }
        got.push(held);
    }
    let locks = ["redisson_lock__", "redisson_rwlock"];
    let mut published = messages.seen();
    published.retain(|(channel, _)| {
        let is_lock = locks.iter().any(|prefix| channel.starts_with(prefix));
        is_lock && !channel.contains(QUEUE)
    });
    assert_eq!(published, []);
    for held in got {
        held.give_back().await;
    }
    for queue in queues {
        queue.goes_on().await;
    }
    let keys = [
        "permit_semaphore",
        "semaphore",
        "lockdog_ledger:{semaphore}",
    ];
    redis.cmd(&[&["DEL"][..], &keys].concat()).await;
    redis.assert_clean().await;
}

/// The lockdog process that is killed.
async fn hold_and_wait_in_the_queues(url: String) {
    let client = Client::builder().url(url).command_timeout(SAFETY);
    let client = soon_absent(client).watchdog_lease(LEASE);
    let client = client.build().await.unwrap();
    await_go_ahead();
    let mut holding = Vec::new();
    for (object, _) in held() {
        holding.push(object.hold(&client, object.label(), None).await);
    }
    let mut waiting = Vec::new();
    for object in others() {
        match object {
            Object::Latch => waiting.push(spawn_wait(*object, &client, object.label().to_owned())),
            _ => holding.push(object.hold(&client, object.label(), None).await),
        }
    }
    send("holding");
    await_go_ahead();
    for object in QUEUES {
        waiting.push(spawn_wait(object, &client, queue_of(object)));
    }
    tokio::time::sleep(SAFETY * 2).await;
    drop((holding, waiting));
}

fn spawn_wait(object: Object, client: &Client, name: String) -> JoinHandle<Held> {
    let client = client.clone();
    tokio::spawn(async move { object.wait(&client, &name, None).await })
}

fn soon_absent(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder.poll_cap(Duration::from_millis(250));
    builder.fair_absence(Duration::from_secs(4))
}

/// Long enough for a watchdog on a busy machine.
const LEASE: Duration = Duration::from_secs(6);
