//! A connection to a replaced master gets no commands, and its answers do not count.

use super::{LONG, SOON, TestCaller, TestMember, ms};
use crate::client::Client;
use crate::server::{Connection, Endpoint, Failure, ReplicaAck};
use crate::support::{Action, Data, Gate, Redis, RedisServer, Replicated, eventually, named};

/// As after a switch of the master.
fn end_term(endpoint: &Endpoint) {
    endpoint.end_term();
    endpoint.log_term();
}

#[tokio::test]
async fn nothing_is_sent_on_a_connection_of_an_earlier_term() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let caller = TestCaller::connect(server.url()).await;
    let core = &caller.core;
    let node = core.server.node("").unwrap();
    let old = node.connection(ms(3000)).await.unwrap();
    end_term(node.endpoint());
    let mut write = redis::cmd("SET");
    write.arg("k").arg("v");
    let answer = old.send(&write, ms(3000)).await;
    assert!(matches!(answer, Err(Failure::Unsent(_))), "{answer:?}");
    assert!(!redis.exists("k").await);
    // The next connection leads to the current master. A switch ends attempts to connect that are
    // under way, so a call tries again.
    let new = loop {
        match node.connection(ms(3000)).await {
            Ok(new) => break new,
            Err(Failure::Unsent(_)) => tokio::time::sleep(ms(10)).await,
            Err(failure) => panic!("{failure:?}"),
        }
    };
    assert!(!new.is(&old));
    new.send(&write, ms(3000)).await.unwrap();
    assert!(redis.exists("k").await);
}

#[tokio::test]
async fn an_answer_that_arrives_after_the_switch_does_not_count() {
    let member = TestMember::start().await;
    let node = member.core.server.node("").unwrap();
    let old = node.connection(ms(3000)).await.unwrap();
    member.server.pause();
    let mut write = redis::cmd("SET");
    write.arg("k").arg("v");
    let (answer, ()) = tokio::join!(old.send(&write, ms(5000)), async {
        member.proxy.wait_for(named("SET"), 1).await;
        end_term(node.endpoint());
        member.server.resume();
    });
    // The command may have run, and it ran on the old master.
    assert!(matches!(answer, Err(Failure::Broken(_))), "{answer:?}");
    assert!(member.redis.exists("k").await);
}

/// If the server could not extend a lock, the client asks it whether it is a master before it processes the answers
/// for the others.
#[tokio::test]
async fn a_renewal_does_not_count_if_the_master_is_switched_before_its_answer_is_processed() {
    let member = TestMember::with(|client| client.watchdog_lease(ms(12_000))).await;
    let guard = member.client.lock("l").lock().await.unwrap();
    let other = member.client.lock("other").lock().await.unwrap();
    let renewed = || {
        let holds = member.core.holds.all();
        holds.iter().map(|it| it.state().renewed).min()
    };
    let granted = renewed();
    // The first connection of the watchdog has sent its own questions then.
    eventually(LONG, "they are renewed", async || renewed() > granted).await;
    let gate = Gate::new();
    let question = Action::HoldRequest(gate.clone());
    member.proxy.on(named("INFO"), question);
    member.redis.cmd(&["SET", "other", "no lock"]).await;
    gate.wait_reached().await;
    end_term(member.core.server.node("").unwrap().endpoint());
    gate.open();
    let failed = async || member.client.stats().renewals_failed_total > 0;
    eventually(LONG, "the answers do not count", failed).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    drop(other);
}

/// A grant may wait for replicas longer than the client needs to learn that its master was replaced.
#[tokio::test]
async fn a_grant_does_not_count_when_the_master_was_switched_after_it() {
    let all = Replicated::start(1).await;
    let ack = ReplicaAck::BestEffort { timeout: ms(6000) };
    let client = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = client.command_timeout(SOON);
    let caller = TestCaller::new(client.build().await.unwrap(), "l");
    let lock = caller.client.lock("l");
    lock.lock().await.unwrap().unlock().await.unwrap();
    all.replicas[0].pause();
    let (guard, before) = tokio::join!(lock.lock(), async {
        eventually(SOON, "it is granted", async || all.redis.exists("l").await).await;
        let granted = all.redis.hash("l").await;
        end_term(caller.core.server.node("").unwrap().endpoint());
        granted
    });
    // The client requested it again, and the new master granted it.
    let now = all.redis.hash("l").await;
    assert_eq!((before.len(), now.len()), (1, 1));
    assert_ne!(before, now);
    guard.unwrap().unlock().await.unwrap();
    assert!(!all.redis.exists("l").await);
}

/// The id belongs to another connection on the new master.
#[tokio::test]
async fn a_connection_of_an_earlier_term_is_not_killed_on_the_new_master() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let caller = TestCaller::connect(server.url()).await;
    let node = caller.core.server.node("").unwrap();
    let endpoint = node.endpoint();
    for switched in [true, false] {
        let old = endpoint.open_own(ms(3000)).await.unwrap();
        if switched {
            end_term(endpoint);
        }
        node.kill(&old, ms(3000)).await;
        assert_eq!(is_listed(&redis, &old).await, switched);
    }
}

/// The same for a restarted server, which counts its connections from 1 again.
#[tokio::test]
async fn a_connection_from_before_a_restart_is_not_killed_after_it() {
    let server = RedisServer::start().await;
    let caller = TestCaller::connect(server.url()).await;
    let node = caller.core.server.node("").unwrap();
    let endpoint = node.endpoint();
    let old = endpoint.open_own(ms(3000)).await.unwrap();
    server.restart(Data::Lost).await;
    node.kill(&old, ms(3000)).await;
    let redis = server.redis().await;
    let stats = redis.commandstats().await;
    // Redis 6.2 does not count it separately.
    assert!(!stats.contains_key("client|kill"), "{stats:?}");
    // A connection of the new server has that id.
    let new = endpoint.open_own(ms(3000)).await.unwrap();
    node.kill(&new, ms(3000)).await;
    assert!(!is_listed(&redis, &new).await);
}

/// At the start of the next connection, a script keeps the server from its answer to who it is.
#[tokio::test]
async fn a_connection_from_before_a_restart_is_not_killed_while_the_server_is_in_doubt() {
    let member = TestMember::start().await;
    let node = member.core.server.node("").unwrap();
    let old = node.endpoint().open_own(ms(3000)).await.unwrap();
    member.server.restart(Data::Lost).await;
    let busy = "-BUSY Redis is busy running a script".to_owned();
    let refused = member.proxy.on(named("INFO"), Action::ReplyWith(busy));
    let refused = refused.times(2);
    assert!(!node.kill(&old, ms(3000)).await);
    assert_eq!(refused.hits(), 2);
}

/// The client would not notice a restart, after which that id belongs to another connection.
#[tokio::test]
async fn without_permission_for_info_no_connection_is_killed() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = ["ACL", "SETUSER", "ann", "on", ">p", "~*", "&*", "+@all"];
    redis.cmd(&[&user[..], &["-info"]].concat()).await;
    let url = format!("redis://ann:p@127.0.0.1:{}", server.port());
    let caller = TestCaller::connect(url).await;
    let node = caller.core.server.node("").unwrap();
    let old = node.endpoint().open_own(ms(3000)).await.unwrap();
    assert!(!node.kill(&old, ms(3000)).await);
    assert!(is_listed(&redis, &old).await);
}

async fn is_listed(redis: &Redis, connection: &Connection) -> bool {
    let id = format!("id={} ", connection.client_id().unwrap());
    let list: String = redis.ask(&["CLIENT", "LIST"]).await;
    list.lines().any(|line| line.starts_with(&id))
}
