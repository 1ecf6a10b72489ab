//! Queues whose first waiter is killed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockdog::Client;
use tokio::task::JoinHandle;

use super::{LEASE, NEVER, SAFETY, java_at};
use crate::interop::objects::{Held, Object};
use crate::interop::ours_at;
use crate::kinds;
use crate::support::child::Copy;
use crate::support::redis::Redis;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

/// The kinds with a queue on the server.
pub(super) const QUEUES: [Object; 3] = [
    Object::Lock(&kinds::FAIR),
    Object::Lock(&kinds::NON_REENTRANT_FAIR),
    Object::Election,
];

/// A queue whose first waiter is killed. A Java thread and a lockdog owner wait behind it.
pub(super) struct Queue {
    name: String,
    /// The object that the queue waits for.
    held: Held,
    order: Arc<Mutex<Vec<&'static str>>>,
    /// The waiters behind the dead one, in the order of their arrival.
    turns: Vec<(&'static str, JoinHandle<()>)>,
    /// The living Redisson, if nothing else keeps it.
    java: Option<Arc<Redisson>>,
}

impl Queue {
    fn new(object: Object, held: Held) -> Self {
        Self {
            name: queue_of(object),
            held,
            order: Arc::default(),
            turns: Vec::new(),
            java: None,
        }
    }

    /// Releases the lock, so that the queue moves.
    pub(super) fn begin(&mut self) {
        self.held = Held::Nothing;
    }

    async fn java_joins(&mut self, object: Object, java: &Redisson, redis: &Redis) {
        let (name, order) = (&self.name, self.order.clone());
        let waiting = object.java_wait(&java.thread(name), name, None);
        let turn = tokio::spawn(async move {
            let (held, _) = waiting.done().await;
            order.lock().unwrap().push("Redisson");
            held.give_back().await;
        });
        self.turns.push(("Redisson", turn));
        self.has(redis, self.turns.len() + 1).await;
    }

    async fn lockdog_joins(&mut self, object: Object, client: &Client, redis: &Redis) {
        let (name, client, order) = (self.name.clone(), client.clone(), self.order.clone());
        let turn = tokio::spawn(async move {
            let held = object.wait(&client, &name, None).await;
            order.lock().unwrap().push("lockdog");
            held.give_back().await;
        });
        self.turns.push(("lockdog", turn));
        self.has(redis, self.turns.len() + 1).await;
    }

    async fn has(&self, redis: &Redis, waiters: usize) {
        eventually(SAFETY, "they are in the queue", async || {
            let queue = format!("redisson_lock_queue:{{{}}}", self.name);
            redis.ask::<usize>(&["LLEN", &queue]).await == waiters
        })
        .await;
    }

    /// FA6 and LE4: the waiters behind the dead one get the lock in the order of the queue.
    pub(super) async fn goes_on(self) {
        let mut arrived = Vec::new();
        for (side, turn) in self.turns {
            arrived.push(side);
            let ended = tokio::time::timeout(SAFETY, turn).await;
            ended
                .unwrap_or_else(|_| panic!("{}: the dead waiter is dropped", self.name))
                .unwrap();
        }
        assert_eq!(*self.order.lock().unwrap(), arrived, "{}", self.name);
    }
}

/// Queues whose first waiter is a Java thread that will be killed.
pub(super) async fn behind_java(server: &RedisServer, dying: &Redisson) -> Vec<Queue> {
    let redis = server.redis().await;
    let living = Arc::new(java_at(server).start().await);
    let client = ours_at(server).build().await.unwrap();
    let (mut queues, mut first) = (Vec::new(), Vec::new());
    for object in QUEUES {
        // The place of the dead Java waiter is valid until its wait's length after this lease. Both are long
        // enough for a busy machine to queue the other two.
        let lease = Duration::from_secs(12);
        let held = object.hold(&client, &queue_of(object), Some(lease)).await;
        let mut queue = Queue::new(object, held);
        let getter = match object {
            Object::Lock(kind) => kind.java,
            _ => "getFairLock",
        };
        let waits = dying.thread(&queue.name).start_try_lock_for(
            JavaLock::from_getter(getter, &queue.name),
            lease,
            Some(LEASE),
        );
        queue.has(&redis, 1).await;
        queue.lockdog_joins(object, &client, &redis).await;
        // A living Java thread drops the dead one, too. In an election there is none, so the candidates
        // drop it.
        if !matches!(object, Object::Election) {
            queue.java_joins(object, &living, &redis).await;
        }
        first.push(waits);
        queue.java = Some(living.clone());
        queues.push(queue);
    }
    // The calls that will be killed still wait. They are never answered.
    assert!(first.iter().all(|waits| !waits.is_finished()));
    queues
}

/// Queues whose first waiter is in the lockdog process that will be killed.
pub(super) async fn behind_lockdog(
    server: &RedisServer,
    java: &Redisson,
    dying: &mut Copy,
) -> Vec<Queue> {
    let redis = server.redis().await;
    let client = ours_at(server).build().await.unwrap();
    let mut queues = Vec::new();
    for object in QUEUES {
        let held = object.hold(&client, &queue_of(object), Some(NEVER)).await;
        queues.push(Queue::new(object, held));
    }
    dying.go_ahead();
    for (object, queue) in QUEUES.into_iter().zip(&mut queues) {
        queue.has(&redis, 1).await;
        queue.java_joins(object, java, &redis).await;
        queue.lockdog_joins(object, &client, &redis).await;
    }
    queues
}

pub(super) fn queue_of(object: Object) -> String {
    format!("{QUEUE} {}", object.label())
}

/// The prefix of the names of locks with a queue.
pub(super) const QUEUE: &str = "queue of";
