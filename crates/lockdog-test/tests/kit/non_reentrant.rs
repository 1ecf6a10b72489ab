//! Non-reentrant locks as parts of other locks.

use std::cell::Cell;
use std::time::Duration;

use lockdog::config::Reentry;
use lockdog::{Client, Error, Lock, MultiLock, Owner, RedLock};
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::checks_exclusion;

/// One call of one owner: it adds one. The read and the write are two steps on purpose.
async fn add_one(lock: &MultiLock, value: &Cell<u32>) {
    let guard = lock.lock().await.unwrap();
    let read = value.get();
    sleep(Duration::from_millis(5)).await;
    value.set(read + 1);
    guard.unlock().await.unwrap();
}

fn scripts(servers: &[Server]) -> usize {
    let commands = servers.iter().flat_map(Server::commands);
    let is_script = |command: &Vec<String>| command[0].to_lowercase().starts_with("eval");
    commands.filter(is_script).count()
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_refuses_a_non_reentrant_lock_before_it_sends_a_command() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await);
    }
    // A client inspects a new server.
    let before = scripts(&servers);
    let plain = |client: &Client| client.lock("orders");
    let other = |client: &Client| client.non_reentrant_lock("orders");
    let all = RedLock::new(clients.iter().map(other));
    let one = RedLock::new([plain(&clients[0]), other(&clients[1]), plain(&clients[2])]);
    let mut errors = Vec::new();
    for red in [all.clone(), one.clone(), all.exclusive()] {
        errors.push(red.try_lock().await.unwrap_err());
        errors.push(
            red.try_lock()
                .wait(Duration::from_secs(1))
                .await
                .unwrap_err(),
        );
        errors.push(red.lock().owner(&Owner::new()).await.unwrap_err());
        let (first, second) = tokio::join!(red.with(|_| async {}), red.with(|_| async {}));
        errors.extend([first.unwrap_err(), second.unwrap_err()]);
    }
    for error in &errors {
        assert!(
            matches!(error, Error::Invalid { what, .. } if *what == "locks"),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("not reentrant, lock=\"orders\""), "{text}");
    }
    let place = one.try_lock().await.unwrap_err().to_string();
    assert!(place.contains("place=2"), "{place}");
    assert_eq!(scripts(&servers), before);
}

/// The members of one client are in one command, those of two are not.
async fn members(servers: &[Server; 2], apart: bool) -> [Lock; 2] {
    let first = servers[0].client().await;
    let second = match apart {
        true => servers[1].client().await,
        false => first.clone(),
    };
    [first.non_reentrant_lock("seat"), second.lock("row")]
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_owner_for_a_multi_lock_with_a_non_reentrant_member_take_turns() {
    checks_exclusion();
    for apart in [false, true] {
        let servers = [Server::new(), Server::new()];
        let lock = MultiLock::new(members(&servers, apart).await);
        let value = Cell::new(0);
        let branch = || add_one(&lock, &value);
        tokio::join!(branch(), branch(), branch(), branch());
        assert_eq!(value.get(), 4, "apart={apart}");
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            let request = || lock.try_lock().wait(wait);
            let (first, second) = tokio::join!(request(), request());
            let got = [first.unwrap(), second.unwrap()];
            assert_eq!(got.iter().flatten().count(), 1, "apart={apart}");
        }
        let (first, second) = tokio::join!(lock.try_lock(), lock.try_lock());
        let got = [first.unwrap(), second.unwrap()];
        assert_eq!(got.iter().flatten().count(), 1, "apart={apart}");
        drop(got);
        for server in &servers {
            server.assert_clean().await;
        }
    }
}

/// The call of the member alone and that of the whole are one owner's.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_waits_for_a_call_of_its_owner_for_one_member() {
    let servers = [Server::new(), Server::new()];
    let members = members(&servers, true).await;
    let lock = MultiLock::new(members.clone());
    for _ in 0..20 {
        let alone = members[0].with(|_| sleep(Duration::from_millis(100)));
        let (alone, all) = tokio::join!(alone, lock.with(|_| async {}));
        alone.unwrap();
        all.unwrap();
        let (all, alone) = tokio::join!(lock.try_lock(), members[0].try_lock());
        let (all, alone) = (all.unwrap(), alone.unwrap());
        assert_eq!(u32::from(all.is_some()) + u32::from(alone.is_some()), 1);
    }
    for server in &servers {
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_is_refused_when_its_owner_holds_a_non_reentrant_member() {
    for apart in [false, true] {
        let servers = [Server::new(), Server::new()];
        let members = members(&servers, apart).await;
        let lock = MultiLock::new(members.clone());
        for holds in [lock.lock(), members[0].lock()] {
            let guard = holds.await.unwrap();
            let before = scripts(&servers);
            let requests = [
                lock.try_lock(),
                lock.try_lock().wait(Duration::from_secs(1)),
                lock.try_lock().reentry(Reentry::Local),
            ];
            for request in requests {
                let refused = request.await.unwrap_err();
                let Error::AlreadyHeld(held) = &refused else {
                    panic!("{refused}");
                };
                assert_eq!(held.lock(), "seat");
            }
            let refused = lock.lock().await.unwrap_err();
            assert!(matches!(refused, Error::AlreadyHeld(_)), "{refused}");
            assert_eq!(scripts(&servers), before);
            // To another owner it is a busy lock.
            let others = lock.try_lock().owner(&Owner::new()).await;
            assert!(matches!(others, Ok(None)), "{others:?}");
            drop(guard);
            for server in &servers {
                server.assert_clean().await;
            }
        }
        // The owner may re-enter the other member.
        let row = members[1].lock().await.unwrap();
        let both = lock.lock().await.unwrap();
        assert_eq!(row.hold_count(), 2);
        both.unlock().await.unwrap();
        assert!(row.is_valid());
        row.unlock().await.unwrap();
    }
}
