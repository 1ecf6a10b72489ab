//! The loss of one member is the loss of the whole.

use std::time::Duration;

use lockdog::error::{InstanceState, LostReason};
use lockdog::report::Verdict;
use lockdog::{Client, ClientBuilder, Error, Guard, MultiLock, Owner, Unlocked};

use super::{Fixture, SOON, ms, multi};
use crate::support::{eventually, timed};

/// Two servers and a multi lock of three members with a short watchdog lease.
struct Scene {
    test: Fixture,
    clients: Vec<Client>,
    lock: MultiLock,
}

impl Scene {
    async fn start() -> Self {
        let test = Fixture::start(2).await;
        let clients = test
            .servers
            .clients_with(|client| client.watchdog_lease(LEASE))
            .await;
        let lock = multi(&clients, &MEMBERS);
        Self {
            test,
            clients,
            lock,
        }
    }

    /// Checks that every query reports the loss of the whole because of this member, and that the other
    /// members are released while the guard still exists.
    async fn assert_lost(&self, guard: &Guard, member: (usize, &str), reason: LostReason) {
        let lost = tokio::time::timeout(SOON, guard.lost())
            .await
            .expect("it is notified of the loss");
        assert_eq!((lost.lock(), lost.reason()), (member.1, reason));
        let token = guard.lost_token();
        tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert_eq!(guard.hold_count(), 0);
        for instances in [lost.instances().to_vec(), guard.instances()] {
            assert_eq!(instances.len(), MEMBERS.len());
            for (instance, (server, name)) in instances.iter().zip(MEMBERS) {
                let port = self.test.servers.all[server].port();
                assert_eq!(instance.server, format!("127.0.0.1:{port}"));
                let as_was = match instance.state {
                    InstanceState::Lost => name == member.1,
                    InstanceState::GivenBack => name != member.1,
                    _ => false,
                };
                assert!(instance.lock == name && as_was, "{instance}");
            }
        }
        for (server, name) in MEMBERS {
            if (server, name) != member {
                eventually(SOON, "the others are released", async || {
                    self.test.is_free(server, name).await
                })
                .await;
            }
        }
    }
}

/// Renewed for as long as it is held.
#[tokio::test]
async fn all_members_are_renewed() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    let token = guard.lost_token();
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 10).await;
        assert!(guard.is_valid() && !token.is_cancelled());
        for (server, name) in MEMBERS {
            let ttl = scene.test.servers.redis[server].pttl(name).await;
            let most = LEASE.as_millis() as i64;
            assert!((1..=most).contains(&ttl), "{name} {ttl}");
        }
    }
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    scene.test.assert_clean().await;
}

/// A member that is deleted: the loss is reported at the next renewal, without a query.
#[tokio::test]
async fn a_deleted_member_ends_the_whole_hold() {
    let scene = Scene::start().await;
    for member in MEMBERS {
        let guard = scene.lock.lock().await.unwrap();
        let token = guard.lost_token();
        scene.test.servers.redis[member.0]
            .cmd(&["DEL", member.1])
            .await;
        let cancelled = tokio::time::timeout(SOON, token.cancelled()).await;
        cancelled.expect("the token is cancelled without a call");
        // At the renewal, and not at the deadline.
        scene.assert_lost(&guard, member, LostReason::NotOurs).await;
        // While the guard exists its owner gets `Lost` and no new hold.
        let error = scene.lock.lock().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        let error = guard.unlock().await.unwrap_err();
        let Error::Lost(lost) = error else {
            panic!("{error}")
        };
        assert_eq!(lost.lock(), member.1);
        let next = scene.lock.try_lock().await.unwrap().expect("all are free");
        next.unlock().await.unwrap();
        scene.test.assert_clean().await;
    }
}

/// Other owners can acquire the other members while the guard exists.
#[tokio::test]
async fn the_remaining_members_are_free_for_others() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    let others = multi(&scene.test.others().await, &[(0, "b"), (1, "c")]);
    scene.test.servers.redis[0].cmd(&["DEL", "a"]).await;
    // Otherwise they would be renewed.
    let next = others.try_lock().wait(SOON).await;
    let next = next.unwrap().expect("they are released");
    assert!(!guard.is_valid(), "it was notified before");
    // The drop of the guard does not affect these owners.
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert!(next.is_valid() && others.locks()[0].is_locked().await.unwrap());
    next.unlock().await.unwrap();
    scene.test.assert_clean().await;
}

/// A loss that the client has not noticed yet is reported by the unlock, which releases the others.
#[tokio::test]
async fn the_unlock_reports_a_loss_and_releases_the_others() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&MEMBERS);
    for member in MEMBERS {
        let guard = lock.lock().await.unwrap();
        test.servers.redis[member.0].cmd(&["DEL", member.1]).await;
        assert!(guard.is_valid(), "the next renewal is far away");
        let error = guard.unlock().await.unwrap_err();
        let Error::Lost(lost) = error else {
            panic!("{error}")
        };
        assert_eq!(
            (lost.lock(), lost.reason()),
            (member.1, LostReason::NotOurs)
        );
        for (server, name) in MEMBERS {
            assert!(test.is_free(server, name).await, "{name} is released");
        }
        test.assert_clean().await;
    }
}

/// A member that another owner holds by now is not changed.
#[tokio::test]
async fn a_member_taken_by_another_owner_is_left_alone() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    scene.test.servers.redis[1].cmd(&["DEL", "c"]).await;
    let elsewhere = scene.test.held_elsewhere(1, "c").await;
    scene
        .assert_lost(&guard, (1, "c"), LostReason::NotOurs)
        .await;
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert!(elsewhere.is_valid());
    assert_eq!(elsewhere.unlock().await.unwrap(), Unlocked::Released);
    scene.test.assert_clean().await;
}

/// A loss that this client causes itself is reported at once.
#[tokio::test]
async fn a_member_freed_by_force_ends_the_whole_hold() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    assert!(scene.clients[0].lock("b").force_unlock().await.unwrap());
    let token = guard.lost_token();
    tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
    scene
        .assert_lost(&guard, (0, "b"), LostReason::Forced)
        .await;
    drop(guard);
    scene.test.assert_clean().await;
}

/// A client that ends takes its members with it.
#[tokio::test]
async fn the_shutdown_of_one_client_ends_the_whole_hold() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    assert_eq!(scene.clients[1].shutdown().await.released, 1);
    scene
        .assert_lost(&guard, (1, "c"), LostReason::ShutDown)
        .await;
    let error = scene.lock.lock().owner(&Owner::new()).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    drop(guard);
    scene.test.assert_clean().await;
}

/// A server that is unreachable for longer than the lease.
#[tokio::test]
async fn a_member_on_an_unreachable_server_is_lost_at_its_deadline() {
    let scene = Scene::start().await;
    let guard = scene.lock.lock().await.unwrap();
    scene.test.servers.all[1].pause();
    let (lost, took) = timed(tokio::time::timeout(SOON, guard.lost())).await;
    let lost = lost.expect("it is notified of the loss");
    assert_eq!((lost.lock(), lost.reason()), ("c", LostReason::Deadline));
    // A busy machine wakes it later; `is_valid` is exact nevertheless.
    println!("notified after {took:?}");
    assert!(!guard.is_valid());
    for name in ["a", "b"] {
        eventually(SOON, "the others are released", async || {
            scene.test.is_free(0, name).await
        })
        .await;
    }
    drop(guard);
    scene.test.servers.all[1].resume();
    scene.test.assert_clean().await;
}

/// An outage shorter than the lease loses nothing.
#[tokio::test]
async fn an_outage_shorter_than_the_lease_loses_nothing() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.watchdog_lease(ms(7_000)))
        .await;
    let lock = multi(&clients, &MEMBERS);
    let guard = lock.lock().await.unwrap();
    test.servers.all[1].pause();
    tokio::time::sleep(ms(1_500)).await;
    test.servers.all[1].resume();
    tokio::time::sleep(ms(6_000)).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Every guard of it is notified, and the claims of its owner on single members stay.
#[tokio::test]
async fn a_loss_is_reported_to_all_guards_and_leaves_other_holds_alone() {
    let scene = Scene::start().await;
    let single = scene.clients[0].lock("a").lock().await.unwrap();
    let outer = scene.lock.lock().await.unwrap();
    let inner = scene.lock.lock().await.unwrap();
    assert_eq!(scene.test.counts(0, "a").await, ["3"]);
    scene.test.servers.redis[1].cmd(&["DEL", "c"]).await;
    for guard in [&inner, &outer] {
        let lost = tokio::time::timeout(SOON, guard.lost())
            .await
            .expect("it is notified of the loss");
        assert_eq!(lost.lock(), "c");
    }
    eventually(SOON, "b is released", async || {
        scene.test.is_free(0, "b").await
    })
    .await;
    eventually(SOON, "a is held once", async || {
        scene.test.counts(0, "a").await == ["1"]
    })
    .await;
    assert!(single.is_valid() && single.hold_count() == 1);
    drop((inner, outer));
    tokio::time::sleep(LEASE * 4 / 3).await;
    assert!(single.is_valid());
    single.unlock().await.unwrap();
    scene.test.assert_clean().await;
}

/// `with` cancels its work.
#[tokio::test]
async fn the_work_is_cancelled_when_one_member_is_lost() {
    let scene = Scene::start().await;
    let deleting = async |_held: lockdog::Held| {
        scene.test.servers.redis[0].cmd(&["DEL", "b"]).await;
        std::future::pending::<()>().await;
    };
    let outcome = tokio::time::timeout(SOON, scene.lock.with(deleting)).await;
    let error = outcome.expect("it is cancelled").unwrap_err();
    assert!(error.is_lost(), "{error}");
    scene.test.assert_clean().await;
}

/// In jeopardy as soon as one member is, and lost with it.
#[tokio::test]
async fn the_verdict_is_that_of_the_worst_member() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.watchdog_lease(ms(15_000)))
        .await;
    let guard = multi(&clients, &MEMBERS).lock().await.unwrap();
    assert_eq!(guard.verdict(), Verdict::Held);
    test.servers.all[1].pause();
    let becomes = async |verdict| {
        eventually(SOON, "the verdict is another", async || {
            guard.verdict() == verdict
        })
        .await;
    };
    becomes(Verdict::Jeopardy).await;
    assert!(guard.is_valid());
    test.servers.all[1].resume();
    becomes(Verdict::Held).await;
    test.servers.redis[1].cmd(&["DEL", "c"]).await;
    becomes(Verdict::Lost(LostReason::NotOurs)).await;
    assert!(!guard.is_valid());
    drop(guard);
    test.assert_clean().await;
}

/// The error of an unlock without an answer names the member and its server.
#[tokio::test]
async fn an_unlock_that_one_server_does_not_confirm_names_the_server() {
    let test = Fixture::start(2).await;
    let guard = test.multi(&MEMBERS).lock().await.unwrap();
    test.servers.all[1].pause();
    let error = guard.unlock().await.unwrap_err();
    let Error::UnlockUnconfirmed(unlock) = &error else {
        panic!("{error}")
    };
    assert_eq!(unlock.lock(), "[a, b, c]");
    let [a, b, c] = unlock.instances() else {
        panic!("{error}")
    };
    for given_back in [a, b] {
        assert!(
            matches!(given_back.state, InstanceState::GivenBack),
            "{error}"
        );
    }
    let is_silent =
        matches!(&c.state, InstanceState::Unreachable { cause, .. } if cause.is_timeout());
    assert!(is_silent && error.is_timeout(), "{error}");
    let server = format!(
        "\"c\" on 127.0.0.1:{}: unreachable",
        test.servers.all[1].port()
    );
    assert!(error.to_string().contains(&server), "{error}");
    test.servers.all[1].resume();
    test.assert_clean().await;
}

/// A view that outlives its guard reports the release.
#[tokio::test]
async fn a_view_that_outlives_its_guard_is_notified_at_once() {
    let scene = Scene::start().await;
    let kept = std::sync::Mutex::new(None);
    let keep = async |held: lockdog::Held| *kept.lock().unwrap() = Some(held);
    scene.lock.with(keep).await.unwrap();
    let held = kept.into_inner().unwrap().unwrap();
    assert!(!held.is_valid() && held.remaining().is_zero());
    let lost = tokio::time::timeout(SOON, held.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Released);
    scene.test.assert_clean().await;
}

/// Members are not renewed before all are held: a member of a failed attempt expires by itself.
#[tokio::test]
async fn nothing_is_renewed_before_all_members_are_held() {
    let test = Fixture::start(2).await;
    // The attempt does not end before the lease.
    let patient = |client: ClientBuilder| client.watchdog_lease(LEASE).command_timeout(SOON);
    let lock = multi(&test.servers.clients_with(patient).await, &MEMBERS);
    // The first attempt takes two members and waits for the third one's server.
    test.servers.all[1].pause();
    let request = lock.lock().owner(&Owner::new()).into_future();
    let waiting = tokio::spawn(request);
    eventually(SOON, "the first members are taken", async || {
        !test.is_free(0, "a").await
    })
    .await;
    test.servers.redis[0].reset_stats().await;
    eventually(SOON, "its lease has run out", async || {
        test.is_free(0, "a").await
    })
    .await;
    assert_eq!(test.scripts(0).await, 0, "no client renewed it");
    waiting.abort();
    test.servers.all[1].resume();
    test.assert_clean().await;
}

/// A forgotten hold continues member by member.
#[tokio::test]
async fn the_unlock_reports_a_loss_after_forgetting() {
    let scene = Scene::start().await;
    scene.lock.lock().await.unwrap().forget();
    tokio::time::sleep(LEASE * 4 / 3).await;
    assert!(scene.lock.is_held().await.unwrap(), "it is renewed");
    scene.test.servers.redis[0].cmd(&["DEL", "b"]).await;
    let error = scene.lock.unlock().await.unwrap_err();
    let is_expected = error.is_lost() || matches!(error, Error::NotHeld(_));
    assert!(is_expected, "{error}");
    scene.test.assert_clean().await;
}

const MEMBERS: [(usize, &str); 3] = [(0, "a"), (0, "b"), (1, "c")];
/// A hold outlasts a stall of three seconds before its first renewal.
const LEASE: Duration = Duration::from_millis(4_800);
