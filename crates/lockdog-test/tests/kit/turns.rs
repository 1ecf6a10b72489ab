//! Calls of one owner at the same time: the commands of a hold run one at a time.

use lockdog::{Owner, Unlocked};
use lockdog_test::Server;
use tokio::task::yield_now;

/// Another task of the owner acquires and unlocks without a pause. It wants the next turn in the poll in which it had
/// the last one.
#[tokio::test(start_paused = true)]
async fn an_unlock_gets_a_turn_beside_nested_calls_without_a_pause() {
    let server = Server::new();
    let client = server.client().await;
    let owner = Owner::new();
    let lock = client.lock("orders");
    let outer = lock.lock().owner(&owner).await.unwrap();
    let inner = lock.lock().owner(&owner).await.unwrap();
    let nested = tokio::spawn({
        let lock = lock.clone();
        async move {
            for _ in 0..1_000 {
                let guard = lock.lock().owner(&owner).await.unwrap();
                guard.unlock().await.unwrap();
            }
        }
    });
    // The first command of the other task is sent.
    yield_now().await;
    let unlocked = inner.unlock().await.unwrap();
    assert!(matches!(unlocked, Unlocked::StillHeld { .. }));
    assert!(
        !nested.is_finished(),
        "it waited for all of the nested calls"
    );
    nested.await.unwrap();
    outer.unlock().await.unwrap();
    server.assert_clean().await;
}
