//! Redisson and lockdog use one lock with the same configuration file.

use lockdog_test::Server;
use serde_json::json;

use super::java::ask;
use crate::from_str;

/// Two threads, because the call to Java blocks one thread while the server needs another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_rust_exclude_each_other_by_one_file() {
    let server = Server::new();
    server.require_password("p@ss: #1");
    exclude_each_other(&server, "password: 'p@ss: #1'").await;
    // With a user and no password neither of them logs in. This server refuses every user with a name.
    exclude_each_other(&Server::new(), "username: ann").await;
}

async fn exclude_each_other(server: &Server, login: &str) {
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let file = format!(
        "singleServerConfig:\n  address: redis://{address}\n  {login}\n  database: 3\n  \
         clientName: orders\n  timeout: 5000\n  connectionMinimumIdleSize: 1\n  connectionPoolSize: 4\n\
         nettyThreads: 2\nlockWatchdogTimeout: 20000\n"
    );
    let client = from_str(&file).unwrap().builder.build().await.unwrap();
    let lock = client.lock("orders:42");

    let answer = ask(&json!({ "lock": "orders:42", "file": file }));
    assert_eq!(answer["locked"], true, "{answer}");
    assert!(lock.try_lock().await.unwrap().is_none(), "Java has it");
    let holder = server.holder("orders:42");
    assert!(holder.is_none(), "it is not in database 0");
    ask(&json!({ "unlock": "orders:42" }));

    let guard = lock.try_lock().await.unwrap().expect("Java released it");
    let answer = ask(&json!({ "lock": "orders:42", "file": file }));
    assert_eq!(answer["locked"], false, "{answer}");
    guard.unlock().await.unwrap();
    client.shutdown().await;
}
