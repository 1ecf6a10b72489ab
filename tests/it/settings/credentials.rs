//! Passwords that change on a real server.

use std::sync::{Arc, Mutex};

use lockdog::Client;
use lockdog::config::Credentials;

use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Cell, RedisServer, eventually};

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
async fn locks_are_held_and_handed_on_while_requirepass_and_users_change() {
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
