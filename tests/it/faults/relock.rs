//! A late release does not end a later hold of the same owner.

use std::time::Duration;

use lockdog::Owner;

use crate::faults::fixture::Fixture;

/// The same owner locks again while the release of its dropped guard is in flight. After each of the rounds
/// the key has the field of the new hold.
#[tokio::test]
async fn a_lock_reacquired_at_once_survives_the_release_of_the_dropped_guard() {
    let fixture = Fixture::start().await;
    let mut owners = tokio::task::JoinSet::new();
    for name in 0..OWNERS {
        let lock = fixture.client.lock(format!("relock:{name}"));
        let redis = fixture.redis.clone();
        let client = fixture.client.clone();
        owners.spawn(async move {
            let owner = Owner::new();
            let mut guard = lock.lock().owner(&owner).await.unwrap();
            for round in 0..ROUNDS {
                drop(guard);
                // Half of the acquires do not wait for the release: they are a single attempt.
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
    fixture.assert_recovered().await;
}

const OWNERS: usize = 20;
const ROUNDS: usize = 500;
