//! The objects without a lock that a killed Java process held, and a read lock of ours beside one of its
//! own.

use std::time::Instant;

use lockdog::report::Ttl;
use lockdog::{Client, Guard, LeasedPermit, Owner, PermitSemaphore};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{LEASE, NEVER, SAFETY, spawn_wait};
use crate::interop::objects::{Held, Object};
use crate::interop::ours_at;
use crate::support::redis::Redis;
use crate::support::redisson::Redisson;
use crate::support::{RedisServer, eventually};

/// The permits, the latch and the read lock of the Java process that will be killed. Our own read lock has
/// a longer lease.
pub(super) struct LeftByJava {
    redis: Redis,
    client: Client,
    seats: PermitSemaphore,
    acquired: Instant,
    waiting: JoinHandle<(LeasedPermit, Instant)>,
    at_the_latch: JoinHandle<Held>,
    reads: Guard,
}

impl LeftByJava {
    pub(super) async fn start(server: &RedisServer, dying: &Redisson) -> Self {
        let redis = server.redis().await;
        let client = ours_at(server).watchdog_lease(LEASE);
        let client = client.build().await.unwrap();
        let seats = client.permit_semaphore("seats");
        seats.set_permits(2).await.unwrap();
        let t1 = dying.thread("t1");
        let endless = t1.start_permits::<String>("seats", "acquire", json!([]));
        let endless = endless.value().await.parse().unwrap();
        assert_eq!(
            seats.lease_of(&endless).await.unwrap(),
            Some(Ttl::Persistent)
        );
        let acquired = Instant::now();
        let of_permit = LEASE.as_millis() as u64;
        let args = json!([{ "ms": of_permit }]);
        t1.start_permits::<String>("seats", "acquire", args)
            .value()
            .await;
        let waits = seats.acquire();
        let waiting = tokio::spawn(async move { (waits.await.unwrap(), Instant::now()) });

        let name = Object::Semaphore.label();
        Object::Semaphore.make(&client, name).await;
        Object::Semaphore.java_hold(&t1, name, None).await;
        let name = Object::Latch.label();
        Object::Latch.make(&client, name).await;
        drop(Object::Latch.java_wait(&dying.thread("t2"), name, None));
        let at_the_latch = spawn_wait(Object::Latch, &client, name.to_owned());

        // Redisson's renewal sets the lock's TTL to its own lease, whatever other readers have.
        let reads = client.read_write_lock(READ_BY_BOTH).read();
        let reads = reads
            .lock()
            .owner(&Owner::new())
            .lease(NEVER)
            .await
            .unwrap();
        Object::Read.java_hold(&t1, READ_BY_BOTH, None).await;
        eventually(SAFETY, "Java's renewal cut the TTL", async || {
            redis.pttl(READ_BY_BOTH).await <= LEASE.as_millis() as i64
        })
        .await;
        Self {
            redis,
            client,
            seats,
            acquired,
            waiting,
            at_the_latch,
            reads: reads.into(),
        }
    }

    pub(super) async fn outlive(self, killed: Instant) {
        // Permits with a lease are available again. Redisson's permits without a lease are not.
        let ended = tokio::time::timeout(SAFETY, self.waiting).await;
        let (permit, at) = ended.expect("its lease is over").unwrap();
        assert!(at >= self.acquired + LEASE);
        assert_eq!(self.seats.acquired().await.unwrap(), 2);
        permit.release().await.unwrap();
        // Only an operator knows how many permits Java held of a semaphore without leases.
        let semaphore = self.client.semaphore(Object::Semaphore.label());
        assert_eq!(semaphore.available().await.unwrap(), 0);
        assert!(semaphore.holders().await.unwrap().is_empty());
        semaphore.release(1).await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        // A dead waiter of a latch has changed nothing.
        let latch = self.client.count_down_latch(Object::Latch.label());
        assert_eq!(latch.count().await.unwrap(), 1);
        assert!(!self.at_the_latch.is_finished());
        latch.count_down().await.unwrap();
        let ended = tokio::time::timeout(SAFETY, self.at_the_latch).await;
        ended.expect("the count is zero").unwrap();
        // RW5: without our renewal the key, with our read lock, would have expired by then.
        tokio::time::sleep_until((killed + LEASE * 5 / 4).into()).await;
        assert!(self.reads.is_valid() && self.redis.exists(READ_BY_BOTH).await);
        let writes = self.client.read_write_lock(READ_BY_BOTH).write();
        let busy = writes.try_lock().owner(&Owner::new()).await.unwrap();
        assert!(busy.is_none(), "we still read");
        self.reads.unlock().await.unwrap();
        let keys = [
            "seats",
            "{seats}:timeout",
            "semaphore",
            "lockdog_ledger:{semaphore}",
        ];
        self.redis.cmd(&[&["DEL"][..], &keys].concat()).await;
    }
}

const READ_BY_BOTH: &str = "read by both";
