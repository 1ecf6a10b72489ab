//! An error names the server that was asked, not the server that the client believes to have the lock.

use std::sync::Arc;

use lockdog::{Client, Error, Owner, Unlocked};

use super::{SOON, ms};
use crate::faults::scripts::acquire;
use crate::support::cluster::{Node, slot};
use crate::support::{Action, Cluster, Rule, eventually, named, until_ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_the_server_that_refused() {
    let stage = Stage::start().await;
    let refuse = Action::ReplyWith("-ERR not today".to_owned());
    let rules = stage.on_scripts(&stage.owner, &refuse);
    let error = stage.failure().await;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    stage.names(&error, &stage.owner);
    rules.into_iter().for_each(|rule| rule.remove());
    stage.on_scripts(&stage.other, &refuse);
    stage.send_on();
    let error = stage.failure().await;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    stage.names(&error, &stage.other);
    // A query is a command of its own.
    let node = &stage.owner;
    let wrong = Action::ReplyWith("-WRONGTYPE no hash".to_owned());
    node.proxy().on(named("EXISTS"), wrong).always();
    let error = stage.client.lock(NAME).is_locked().await.unwrap_err();
    stage.names(&error, node);
    stage.client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_names_the_server_that_was_asked() {
    let stage = Stage::start().await;
    stage.on_scripts(&stage.owner, &Action::DropReply);
    let error = stage.failure().await;
    assert!(error.is_timeout(), "{error:?}");
    stage.names(&error, &stage.owner);
    stage.client.shutdown().await;

    let stage = Stage::start().await;
    stage.on_scripts(&stage.other, &Action::DropReply);
    stage.send_on();
    let error = stage.failure().await;
    assert!(error.is_timeout(), "{error:?}");
    stage.names(&error, &stage.other);
    stage.client.shutdown().await;
}

/// The waiter has sent no command. The contender of its client has, and has no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiters_timeout_names_the_server_that_its_contender_asked() {
    let stage = Stage::start().await;
    stage.on_scripts(&stage.other, &Action::DropReply);
    stage.send_on();
    let contender = stage.client.lock(NAME).lock().owner(&Owner::new());
    let contender = tokio::spawn(async move { contender.await });
    let asked = || stage.other.proxy().count(acquire()) > 0;
    eventually(SOON, "the contender asked", async || asked()).await;
    let waiter = stage.client.lock(NAME).try_lock().wait(ms(500));
    let error = waiter.owner(&Owner::new()).await;
    let error = error.expect_err("no server answers");
    assert!(error.is_timeout(), "{error:?}");
    stage.names(&error, &stage.other);
    let error = contender.await.unwrap().expect_err("no server answers");
    stage.names(&error, &stage.other);
    stage.client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_unlock_names_the_server_that_was_asked() {
    let stage = Stage::start().await;
    let lock = stage.client.lock(NAME);
    let guard = lock.try_lock().wait(SOON).await.unwrap();
    let guard = guard.expect("no owner has it");
    let rules = stage.on_scripts(&stage.owner, &Action::DropReply);
    let error = guard.unlock().await.expect_err("no server answers");
    let Error::UnlockUnconfirmed(error) = error else {
        panic!("{error:?}");
    };
    stage.names(error.cause().expect("no server answered"), &stage.owner);
    rules.into_iter().for_each(|rule| rule.remove());
    eventually(SOON, "it is released in the background", async || {
        !stage.owner.redis().await.exists(NAME).await
    })
    .await;
    eventually(SOON, "it is acquired again", async || {
        match lock.lock().await {
            Ok(guard) => matches!(guard.unlock().await, Ok(Unlocked::Released)),
            Err(late) => {
                assert!(late.is_retriable(), "{late}");
                false
            }
        }
    })
    .await;
    stage.client.shutdown().await;
}

/// Two masters, of which one has the lock, as the client knows.
struct Stage {
    _cluster: Cluster,
    client: Client,
    owner: Arc<Node>,
    other: Arc<Node>,
}

impl Stage {
    async fn start() -> Self {
        let cluster = Cluster::builder(2, 0).announce_proxies().start().await;
        let owner = cluster.owner_of(NAME).await;
        let other = cluster.nodes.iter().find(|node| node.id != owner.id);
        let other = other.expect("there are two").clone();
        let client = Client::builder().url(cluster.url());
        let client = client.command_timeout(ms(3000));
        let client = until_ok(SOON, async || client.clone().build().await).await;
        // So that the client knows the owner of the slot.
        until_ok(SOON, async || {
            let guard = client.lock(NAME).lock().await?;
            guard.unlock().await
        })
        .await;
        Self {
            _cluster: cluster,
            client,
            owner,
            other,
        }
    }

    /// The owner redirects each script to the other one.
    fn send_on(&self) {
        let moved = format!("-MOVED {} 127.0.0.1:{}", slot(NAME), self.other.port());
        self.on_scripts(&self.owner, &Action::ReplyWith(moved));
    }

    /// This happens to each script on its way to the server.
    fn on_scripts(&self, node: &Node, action: &Action) -> [Rule; 2] {
        let on = |script| node.proxy().on(named(script), action.clone()).always();
        ["EVAL", "EVALSHA"].map(on)
    }

    async fn failure(&self) -> Error {
        let tried = self.client.lock(NAME).try_lock().owner(&Owner::new()).await;
        tried.expect_err("no server grants it")
    }

    fn names(&self, error: &Error, node: &Node) {
        let text = error.to_string();
        for it in [&self.owner, &self.other] {
            let server = format!("server=127.0.0.1:{}", it.port());
            assert_eq!(text.contains(&server), it.id == node.id, "{text}");
        }
    }
}

const NAME: &str = "l";
