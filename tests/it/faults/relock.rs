//! A release that comes late must not end what its owner took since.

use std::time::Duration;

use lockdog::Owner;

use crate::faults::stand::Stand;

/// The drop's command is on its way when the same owner locks again. 10,000 times the key is there
/// afterwards, with the field of the new hold.
#[tokio::test]
async fn a_lock_reacquired_at_once_survives_the_release_of_the_dropped_guard() {
    let stand = Stand::start().await;
    let mut owners = tokio::task::JoinSet::new();
    for name in 0..OWNERS {
        let lock = stand.client.lock(format!("relock:{name}"));
        let redis = stand.redis.clone();
        let client = stand.client.clone();
        owners.spawn(async move {
            let owner = Owner::new();
            let mut guard = lock.lock().owner(&owner).await.unwrap();
            for round in 0..ROUNDS {
                drop(guard);
                // Half of them without waiting for the release, as a first attempt of its own.
                guard = if round % 2 == 0 {
                    lock.lock().owner(&owner).await.unwrap()
                } else {
                    let taken = lock.try_lock().owner(&owner).await.unwrap();
                    taken.expect("after the drop of a guard no other owner has the lock")
                };
                tokio::time::sleep(Duration::from_millis(1)).await;
                let held = redis.hash(lock.name()).await;
                let ours = client.holds();
                let ours = ours.iter().find(|hold| hold.lock == lock.name()).unwrap();
                assert!(guard.is_valid(), "round {round}");
                assert_eq!(held.get(&ours.field).map(String::as_str), Some("1"));
                assert_eq!(held.len(), 1, "round {round}: {held:?}");
            }
        });
    }
    owners.join_all().await;
    stand.assert_recovered().await;
}

const OWNERS: usize = 20;
const ROUNDS: usize = 500;
