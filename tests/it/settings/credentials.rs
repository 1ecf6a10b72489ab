//! Passwords that change on real servers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use lockdog::config::Credentials;
use lockdog::{Client, Error};

use crate::lock::secrets::{SECRET, no_secret_in, shown};
use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Cell, Cluster, Logs, RedisServer, Sentinels, eventually, logs};

/// A client whose user and password are those in the mutex.
async fn client(url: String, login: &Arc<Mutex<(&'static str, &'static str)>>) -> Client {
    let login = login.clone();
    let builder = Client::builder().url(url).watchdog_lease(LONG);
    let builder = builder.credentials(move || {
        let (user, password) = *login.lock().unwrap();
        async move {
            let credentials = Credentials::new(password);
            Ok(match user {
                "" => credentials,
                user => credentials.username(user),
            })
        }
    });
    builder.build().await.unwrap()
}

#[tokio::test]
async fn locks_are_held_and_handed_over_while_requirepass_and_users_change() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["CONFIG", "SET", "requirepass", "first"]).await;
    redis
        .cmd(&["ACL", "SETUSER", "ann", "on", ">one", "~*", "&*", "+@all"])
        .await;
    for protocol in ["", "?protocol=resp3"] {
        redis.cmd(&["CONFIG", "SET", "requirepass", "first"]).await;
        let url = format!("redis://127.0.0.1:{}/{protocol}", server.port());
        let login = Arc::new(Mutex::new(("", "first")));
        let (one, two) = (client(url.clone(), &login).await, client(url, &login).await);
        let cell = Cell::new();
        let guard = one.lock("orders").lock().await.unwrap();
        let waiter = {
            let (lock, cell) = (two.lock("orders"), cell.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                cell.bump(ms(1)).await;
                guard.unlock().await.unwrap();
            })
        };
        let logins: [(&str, &str, &[&str]); 3] = [
            ("", "second", &["CONFIG", "SET", "requirepass", "second"]),
            // Both passwords work for a while.
            ("ann", "two", &["ACL", "SETUSER", "ann", ">two"]),
            ("ann", "two", &["ACL", "SETUSER", "ann", "<one"]),
        ];
        for (user, password, change) in logins {
            eventually(SOON, "the waiter listens", async || {
                !redis.channels().await.is_empty()
            })
            .await;
            redis.cmd(change).await;
            *login.lock().unwrap() = (user, password);
            let before: Vec<i64> = redis.clients().await.into_iter().map(|it| it.id).collect();
            for kind in ["normal", "pubsub"] {
                redis
                    .cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
                    .await;
            }
            eventually(SOON, "both clients logged in again", async || {
                one.lock("other").is_locked().await.is_ok()
                    && two.lock("other").is_locked().await.is_ok()
            })
            .await;
            // Only this test's own connection was there before.
            let clients = redis.clients().await;
            let left = clients.iter().filter(|it| before.contains(&it.id)).count();
            assert_eq!(left, 1, "{clients:?}");
            // By the client's own connection, which it may just have lost.
            eventually(SOON, "the lock is extended", async || {
                guard.extend(LONG).await.is_ok()
            })
            .await;
            assert!(guard.is_valid());
        }
        assert!(!waiter.is_finished());
        cell.bump(ms(1)).await;
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
        cell.assert_exclusive(2);
        redis.cmd(&["ACL", "SETUSER", "ann", ">one"]).await;
    }
}

#[test]
fn locks_of_a_cluster_are_held_and_handed_over_while_passwords_change() {
    logs::alone(
        "settings::credentials::locks_of_a_cluster_are_held_and_handed_over_while_passwords_change",
        async {
            let logs = Logs::of_this_process();
            let cluster = Cluster::start(3, 0).await;
            let (mut servers, mut names) = (Vec::new(), Vec::new());
            for node in &cluster.nodes {
                servers.push(&node.server);
                names.extend(cluster.names_at(node, "l", 1).await);
            }
            let texts = passwords_change(&cluster.url(), &servers, &names, async |_| {}).await;
            no_secret_in(&texts, &logs);
        },
    );
}

/// At the first change another server becomes the master, too.
#[test]
fn locks_behind_sentinels_are_held_and_handed_over_while_passwords_and_the_master_change() {
    logs::alone(
        "settings::credentials::locks_behind_sentinels_are_held_and_handed_over_while_passwords_and_the_master_change",
        async {
            let logs = Logs::of_this_process();
            let all = Sentinels::start().await;
            let servers: Vec<_> = all.servers.iter().collect();
            let names = ["a".to_owned(), "b".to_owned()];
            let switch = async |number| {
                if number == 2 {
                    all.failover().await;
                }
            };
            let texts = passwords_change(&all.url(), &servers, &names, switch).await;
            no_secret_in(&texts, &logs);
        },
    );
}

/// Changes the password of the user of two clients, one of which has all these locks while the other one waits
/// for them. Returns what the clients said.
async fn passwords_change(
    url: &str,
    servers: &[&RedisServer],
    names: &[String],
    switch: impl AsyncFn(u32),
) -> Vec<String> {
    let everywhere = async |args: &[&str]| {
        for server in servers {
            server.redis().await.cmd(args).await;
        }
    };
    let rule = |sign: &str, number: u32| format!("{sign}{SECRET}{number}");
    let first = rule(">", 1);
    everywhere(&["ACL", "SETUSER", USER, "on", &first, "~*", "&*", "+@all"]).await;
    let (one, holder) = client_of(url).await;
    let (two, waiter) = client_of(url).await;
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for name in names {
        guards.push(one.lock(name).lock().await.unwrap());
        let lock = two.lock(name);
        waiters.push(tokio::spawn(async move { lock.lock().await }));
    }
    let mut texts = Vec::new();
    for number in 2..4 {
        eventually(SOON, "the waiters listen", async || {
            let mut channels = BTreeSet::new();
            for server in servers {
                channels.extend(server.redis().await.channels().await);
            }
            channels.len() == names.len()
        })
        .await;
        let before = connections(servers).await;
        everywhere(&["ACL", "SETUSER", USER, &rule(">", number)]).await;
        everywhere(&["ACL", "SETUSER", USER, &rule("<", number - 1)]).await;
        // The holder's program still has the old password.
        *waiter.lock().unwrap() = number;
        everywhere(&["CLIENT", "KILL", "USER", USER, "SKIPME", "yes"]).await;
        switch(number).await;
        for name in names {
            let mut refused = None;
            eventually(SOON, "the old password is refused", async || {
                refused = one.lock(name).is_locked().await.err();
                matches!(&refused, Some(Error::Refused { code, .. }) if code == "WRONGPASS")
            })
            .await;
            texts.push(shown(&refused.expect("it is")));
        }
        *holder.lock().unwrap() = number;
        eventually(SOON, "both clients logged in again", async || {
            let mut is_done = true;
            for (client, name) in names.iter().flat_map(|name| [(&one, name), (&two, name)]) {
                is_done &= client.lock(name).is_locked().await.is_ok();
            }
            is_done
        })
        .await;
        for guard in &guards {
            eventually(SOON, "the lock is extended", async || {
                guard.extend(LONG).await.is_ok()
            })
            .await;
            assert!(guard.is_valid());
        }
        let after = connections(servers).await;
        assert!(!before.is_empty() && !after.is_empty());
        assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    }
    texts.push(format!("{one:#?} {two:#?}"));
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        assert!(!waiter.is_finished());
        // By the connection of the client's own thread.
        drop(guard);
        let next = tokio::time::timeout(SOON, waiter).await;
        let guard = next.expect("it is handed on").unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
    for client in [one, two] {
        client.shutdown().await;
    }
    texts
}

/// A client, and the number of the password that its program knows.
async fn client_of(url: &str) -> (Client, Arc<Mutex<u32>>) {
    let known = Arc::new(Mutex::new(1));
    let number = known.clone();
    let builder = Client::builder().url(url).watchdog_lease(LONG);
    let builder = builder.credentials(move || {
        let password = format!("{SECRET}{}", number.lock().unwrap());
        async move { Ok(Credentials::new(password).username(USER)) }
    });
    (builder.build().await.unwrap(), known)
}

/// The connections of clients, each of which has logged in.
async fn connections(servers: &[&RedisServer]) -> BTreeSet<(usize, i64)> {
    let mut all = BTreeSet::new();
    for (number, server) in servers.iter().enumerate() {
        for client in server.redis().await.clients().await {
            let is_ours = client.name.starts_with("lockdog/");
            let is_logged_in = client.fields["user"] == USER;
            assert!(is_logged_in || !is_ours, "{client:?}");
            if is_logged_in {
                all.insert((number, client.id));
            }
        }
    }
    all
}

const USER: &str = "ann";
