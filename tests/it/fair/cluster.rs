//! Fair locks on a cluster: each queue at its slot's master.

use lockdog::Error;
use lockdog::error::LostReason;
use tokio::task::JoinSet;

use super::*;
use crate::support::cluster::{names, slot};
use crate::support::{Cell, Cluster};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_has_the_queue_of_a_lock() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "door", 1).await[0];
        let held = client.fair_lock(name).lock().await.unwrap();
        let waiting = crate::turn::waiter(&another.fair_lock(name));
        let redis = master.redis().await;
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(SOON, "it waits and listens", async || {
            let entries: Vec<String> = redis.ask(&["LRANGE", &queue, "0", "-1"]).await;
            let [entry] = &entries[..] else {
                return false;
            };
            redis.channels().await.iter().any(|it| it.ends_with(entry))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        held.unlock().await.unwrap();
        let woken = tokio::time::timeout(SOON, waiting).await;
        let guard = woken.expect("a message wakes it").unwrap();
        guard.unlock().await.unwrap();
        assert!(!redis.exists(&queue).await && !redis.exists(name).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_lock_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}door", "do}or", "door{", "}{"] {
        let lock = client.fair_lock(name);
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.waiters().await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}

/// The nodes answer with TRYAGAIN while the keys of one queue are on both, and with ASK after all keys have
/// moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_keeps_its_order_while_its_slot_is_migrated() {
    const SLOT: u16 = 42;
    let cluster = Cluster::start(3, 0).await;
    let to = &cluster.nodes[2];
    let name = &names("door", 1, |it| it == SLOT)[0];
    assert_eq!(slot(name), SLOT);
    let line = Line::of_four(&cluster, name).await;
    let entries = async || {
        let waiters = line.lock.waiters().await.unwrap();
        let fields = waiters.iter().map(|it| it.field().to_owned());
        fields.collect::<Vec<_>>()
    };
    let before = entries().await;
    let migration = cluster.migrate(SLOT, to).await;
    let source = migration.from.redis().await;
    source.reset_stats().await;
    // The queue is on one node, and the other keys are on the other.
    assert!(migration.move_key(&queue_of(name)).await);
    eventually(SOON, "a query was refused with TRYAGAIN", async || {
        migration.refused().await > 0
    })
    .await;
    migration.move_keys().await;
    eventually(SOON, "a query was redirected", async || {
        source.errorstats().await.contains_key("ASK")
    })
    .await;
    assert_eq!(entries().await, before);
    migration.finish().await;
    line.has_its_turns(&to.redis().await, name, before).await;
}

/// FA4: the new master has the queue, and grants in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_keeps_its_order_when_its_master_fails_over() {
    let cluster = Cluster::start(3, 1).await;
    let name = &cluster.names_at(&cluster.nodes[0], "door", 1).await[0];
    let line = Line::of_four(&cluster, name).await;
    let queue = queue_of(name);
    let old = cluster.owner(slot(name)).await.redis().await;
    let before: Vec<String> = old.ask(&["LRANGE", &queue, "0", "-1"]).await;
    let redis = cluster.fail_over(slot(name)).await.redis().await;
    let after: Vec<String> = redis.ask(&["LRANGE", &queue, "0", "-1"]).await;
    assert_eq!(after, before);
    line.has_its_turns(&redis, name, before).await;
}

/// The replica has neither the holder nor the queue when the master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_queue_the_next_master_does_not_know_get_the_lock_there() {
    let cluster = Cluster::start(3, 1).await;
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let names = cluster.names_at(master, "door", 2).await;
    let [name, other] = &names[..] else {
        panic!("there are two");
    };
    // The lease does not end before the switch is over.
    let connect = async || {
        let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
        let client = client.watchdog_lease(LONG).fair_absence(LONG);
        client.build().await.unwrap()
    };
    let clients = [connect().await, connect().await, connect().await];
    for client in &clients {
        // It has connected to this server before.
        crate::turn::turn(&client.fair_lock(other)).await;
    }
    let [holder, others @ ..] = &clients;
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let redis = master.redis().await;
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);
    let held = holder.fair_lock(name).lock().await.unwrap();
    let cell = Cell::new();
    let mut waiters = JoinSet::new();
    for number in 0..4 {
        let lock = others[number % 2].fair_lock(name);
        waiters.spawn(visit(lock, cell.clone()));
        eventually(SOON, "it is in the queue", async || {
            redis.ask::<usize>(&["LLEN", &queue_of(name)]).await == number + 1
        })
        .await;
    }
    master.server.kill();
    replica.server.resume();
    cluster.take_over(slot(name), replica).await;
    let lost = tokio::time::timeout(SOON, held.lost()).await;
    let lost = lost.expect("the holder learns of the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let waited = tokio::time::timeout(SOON, waiters.join_all()).await;
    waited.expect("each has its turn");
    assert!(held.unlock().await.unwrap_err().is_lost());
    visit_in_rounds(clients.iter().map(|it| it.fair_lock(name)), &cell).await;
    cell.assert_exclusive(4 + 3 * 5);
    let redis = replica.redis().await;
    eventually(SOON, "nothing is left", async || {
        !redis.exists(name).await && !redis.exists(&queue_of(name)).await
    })
    .await;
}

/// A holder, and four waiters of two clients in turn.
struct Line {
    lock: Lock,
    held: Guard,
    waiters: Vec<JoinHandle<lockdog::Result<Option<Guard>>>>,
}

impl Line {
    async fn of_four(cluster: &Cluster, name: &str) -> Self {
        let connect = async || {
            let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
            let client = client.fair_absence(LONG).build().await;
            client.unwrap().fair_lock(name)
        };
        let locks = [connect().await, connect().await];
        let held = connect().await.lock().lease(LONG).await.unwrap();
        let mut waiters = Vec::new();
        for number in 0..4 {
            let request = locks[number % 2].try_lock().owner(&Owner::new()).wait(LONG);
            waiters.push(tokio::spawn(request.into_future()));
            eventually(SOON, "it is in the queue", async || {
                locks[0].waiters().await.unwrap().len() == number + 1
            })
            .await;
        }
        let [lock, _] = locks;
        Self {
            lock,
            held,
            waiters,
        }
    }

    /// FA4: in the order of these entries.
    async fn has_its_turns(self, redis: &Redis, name: &str, entries: Vec<String>) {
        self.held.unlock().await.unwrap();
        for (waiter, entry) in self.waiters.into_iter().zip(entries) {
            let guard = tokio::time::timeout(SOON, waiter).await;
            let guard = guard.expect("in time").unwrap().unwrap();
            let guard = guard.expect("it is its turn");
            assert_eq!(redis.hash(name).await.keys().next(), Some(&entry));
            guard.unlock().await.unwrap();
        }
        assert!(!redis.exists(&queue_of(name)).await);
    }
}

fn queue_of(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}
