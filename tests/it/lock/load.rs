//! Many locks and unlocks leave nothing on the server or in this process.

use lockdog::{Client, Owner};
use tokio::task::JoinSet;

use super::{Fixture, Kind, LONG, SOON, ms};
use crate::kinds::some_kinds;
use crate::support::{eventually, logs};

some_kinds! {
    [plain PLAIN, group GROUP] {
        many_clients_cause_no_failed_call_and_leave_no_channel 2
        all_contenders_for_two_names_succeed_in_both_rounds
    }
}

/// Lock names are random and holds are short, so clients subscribe and unsubscribe all the time.
async fn many_clients_cause_no_failed_call_and_leave_no_channel(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let clients = [test.client.clone(), test.another().await];
    let mut tasks = JoinSet::new();
    for task in 0..32_u64 {
        let client = clients[task as usize % 2].clone();
        tasks.spawn(async move {
            for job in 0..20 {
                let number = task * 31 + job * 17;
                let lock = kind.lock(&client, &format!("l{}", number % 5));
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(ms(number % 3)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let [subscribed] = test.calls(["subscribe"]).await;
    assert!(subscribed > 0, "no client ever waited");
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

async fn all_contenders_for_two_names_succeed_in_both_rounds(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    for round in 0..2 {
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let lock = test.lock(&format!("l{}", task % 2));
            tasks.spawn(async move {
                let guard = lock.try_lock().wait(SOON).await.unwrap();
                let guard = guard.expect("the other one holds it for a moment only");
                tokio::time::sleep(ms(20)).await;
                guard.unlock().await.unwrap();
            });
        }
        assert_eq!(tasks.join_all().await.len(), 4, "round {round}");
    }
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn an_aborted_subscription_does_not_break_the_next_one() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let holder = test.another().await;
    let lock = client.lock("l");
    for given_up_after in 0..12 {
        let guard = holder.lock("l").lock().lease(LONG).await.unwrap();
        let mut waiting = lock.lock().owner(&Owner::new()).into_future();
        for _ in 0..given_up_after {
            let unready = super::poll_once(&mut waiting).await;
            assert!(unready.is_none());
            tokio::task::yield_now().await;
        }
        drop(waiting);
        // The second waiter receives the message. Nothing else would wake it during the test.
        let second = super::waiter(&lock);
        let listening = "the second one listens";
        eventually(SOON, listening, async || {
            test.redis.channels().await.len() == 1
        })
        .await;
        guard.unlock().await.unwrap();
        let second = tokio::time::timeout(SOON, second).await.unwrap().unwrap();
        second.unlock().await.unwrap();
        test.redis.assert_clean().await;
    }
}

/// In its own process, because the test measures its memory. Each release is a job of the client's
/// background, and all jobs come at once.
#[test]
fn memory_does_not_grow_with_mass_releases() {
    logs::alone(
        "lock::load::memory_does_not_grow_with_mass_releases",
        async {
            let test = Fixture::start().await;
            for _ in 0..2 {
                hold_and_drop(&test, 5_000).await;
            }
            // Three hundred bytes for each hold would be 4,500 kB here.
            settles_below(3_000, async || {
                for _ in 0..3 {
                    hold_and_drop(&test, 5_000).await;
                }
            })
            .await;
            test.redis.assert_clean().await;
        },
    );
}

/// Acquires this many locks, and drops all guards together.
async fn hold_and_drop(test: &Fixture, count: usize) {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(test.client.lock(format!("l{number}")).lock().await.unwrap());
    }
    drop(guards);
    eventually(LONG, "every lock is released", async || {
        test.redis.keys().await.is_empty() && test.client.holds().is_empty()
    })
    .await;
}

#[test]
fn memory_does_not_grow_with_locks_and_unlocks() {
    logs::alone(
        "lock::load::memory_does_not_grow_with_locks_and_unlocks",
        async {
            let test = Fixture::start().await;
            let all = |steps| crowd(test.client.clone(), steps);
            all(4_000).await;
            // A hundred bytes for each step would be 1,600 kB here. The allocator alone was seen to vary by
            // 620 kB.
            let steps = std::cell::Cell::new(16_000);
            settles_below(1_500, async || {
                // The names contain the number of steps.
                steps.set(steps.get() + 4);
                all(steps.get()).await;
            })
            .await;
            assert!(test.client.holds().is_empty());
            assert!(test.redis.keys().await.is_empty());
            test.redis.assert_clean().await;
        },
    );
}

/// The future of a call has no room for a command while it waits.
#[test]
fn memory_of_a_waiter_is_small() {
    logs::alone("lock::load::memory_of_a_waiter_is_small", async {
        let test = Fixture::start().await;
        let held = test.client.lock("l").lock().await.unwrap();
        let wait = async |count: u32| {
            let waiting = JoinSet::from_iter((0..count).map(|_| {
                let request = test.client.lock("l").lock().owner(&Owner::new());
                request.into_future()
            }));
            eventually(LONG, "all wait", async || {
                test.client.stats().waiters == count
            })
            .await;
            waiting
        };
        // What the client has for any number of waiters.
        drop(wait(100).await);
        eventually(LONG, "none waits", async || {
            test.client.stats().waiters == 0
        })
        .await;
        let before = resident();
        let waiting = wait(WAITERS).await;
        let each = resident().saturating_sub(before) * 1024 / u64::from(WAITERS);
        println!("{each} bytes each");
        assert!(each < 6_000, "{each} bytes");
        drop(waiting);
        held.unlock().await.unwrap();
    });
}

const WAITERS: u32 = 5_000;

/// This many attempts and unlocks by four tasks, with a new name each time.
async fn crowd(client: Client, steps: u64) {
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let client = client.clone();
        tasks.spawn(async move {
            for step in 0..steps / 4 {
                let lock = client.lock(format!("l:{steps}:{}:{step}", task % 2));
                let guard = lock.try_lock().wait(ms(30_000)).await.unwrap();
                guard
                    .expect("no owner holds it for long")
                    .unlock()
                    .await
                    .unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// Repeats the work until it lets this process grow by less than this number of kB. What each unit of the work leaves
/// behind would do so every time, and what the allocator keeps for a thread only once.
async fn settles_below(most: u64, work: impl AsyncFn()) {
    let mut grown: Vec<u64> = Vec::new();
    while grown.iter().all(|grown| *grown >= most) {
        assert!(grown.len() < 4, "the memory grew each time: {grown:?} kB");
        let before = resident();
        work().await;
        grown.push(resident().saturating_sub(before));
    }
    println!("the memory grew by {grown:?} kB");
}

/// This process's resident memory in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .expect("the kernel reports it")
        .parse()
        .expect("a number")
}
