//! Mistakes in the use of the kit: each is named at once.

use std::time::Duration;

use lockdog::{Client, Error};
use lockdog_test::Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::Builder;

use crate::support::LONG;

/// Sends one command without a client, and answers the first line of the reply.
pub(crate) async fn ask(server: &Server, words: &[&str]) -> String {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    let mut stream = BufReader::new(server.connect());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

#[tokio::test]
async fn an_unknown_command_is_named_in_the_error() {
    let server = Server::new();
    let refused = ask(&server, &["BitCount", "orders"]).await;
    let expected = "-ERR unknown command 'BitCount', the test server knows only what locks need";
    assert_eq!(refused, expected);
    let script = "return redis.call('bitcount', KEYS[1])";
    let refused = ask(&server, &["eval", script, "1", "orders"]).await;
    assert!(
        refused.starts_with("-ERR unknown command 'bitcount', the test server knows only"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_list_of_clients_with_a_filter_is_refused() {
    let server = Server::new();
    let refused = ask(&server, &["client", "list", "type", "pubsub"]).await;
    assert!(refused.starts_with("-ERR unknown subcommand"), "{refused}");
    let all = ask(&server, &["client", "list"]).await;
    assert!(all.starts_with('$'), "{all}");
}

#[tokio::test]
#[should_panic(expected = r#"there is no lock "orders"; the keys are []"#)]
async fn losing_a_lock_on_an_empty_server_panics() {
    Server::new().lose("orders");
}

#[tokio::test]
#[should_panic(expected = r#"the key "orders" is not a lock"#)]
async fn asking_for_the_holder_of_a_key_that_is_no_lock_panics() {
    let server = Server::new();
    assert_eq!(ask(&server, &["set", "orders", "42"]).await, "+OK");
    server.holder("orders");
}

#[tokio::test]
#[should_panic(expected = r#"the test server has no command "evalsah" to refuse"#)]
async fn refusing_an_unknown_command_panics() {
    Server::new().refuse("evalsah", "OOM no memory", 1);
}

#[tokio::test]
#[should_panic(expected = "an error is one line and not empty")]
async fn refusing_with_an_empty_error_panics() {
    Server::new().refuse("evalsha", "", 1);
}

#[tokio::test]
#[should_panic(expected = "no client could connect to the test server")]
async fn a_client_panics_with_the_reason_when_the_server_refuses_it() {
    let server = Server::new();
    server.require_password("secret");
    server.client().await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_delay_is_a_server_that_does_not_answer() {
    let server = Server::new();
    let client = server.client().await;
    server.delay(Duration::MAX);
    let silent = client.lock("orders").lock().await;
    assert!(matches!(silent, Err(Error::Timeout { .. })), "{silent:?}");
    server.delay(Duration::ZERO);
    let other = server.client().await.lock("other").lock().await.unwrap();
    other.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "no client could connect to the test server")]
async fn a_client_of_a_frozen_server_panics_and_does_not_wait_forever() {
    let server = Server::new();
    server.freeze();
    server.client().await;
}

#[test]
fn a_client_learns_that_the_runtime_of_its_server_has_ended() {
    let start = || {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let first = start();
    let server = first.block_on(async { Server::new() });
    drop(first);
    let failed = start().block_on(async { server.builder().build().await });
    let text = failed.unwrap_err().to_string();
    let expected = "the runtime on which the test server was created has ended";
    assert!(text.contains(expected), "{text}");
    let refused = start().block_on(async { server.listen("127.0.0.1:0").await });
    assert_eq!(refused.unwrap_err().to_string(), expected);
}

/// As the runtime of another test whose `block_on` has returned.
#[test]
fn listening_does_not_wait_for_a_runtime_that_does_not_run() {
    let start = || Builder::new_current_thread().enable_all().build().unwrap();
    let (idle, other) = (start(), start());
    let server = idle.block_on(async { Server::new() });
    let listening =
        other.block_on(async { tokio::time::timeout(LONG, server.listen("127.0.0.1:0")).await });
    let address = listening.expect("it does not wait").unwrap();
    // The server answers as soon as its runtime runs.
    let client = idle.block_on(Client::connect(format!("redis://{address}")));
    drop(client.unwrap());
}

#[test]
#[should_panic(expected = "IO is disabled")]
fn listening_on_a_runtime_without_io_panics() {
    let runtime = Builder::new_current_thread().enable_time().build();
    let server = async { Server::new().listen("127.0.0.1:0").await };
    let listening = runtime.unwrap().block_on(server);
    println!("{listening:?}");
}

/// A second server would be one connector more, which `connectors` tries.
#[tokio::test]
async fn a_url_on_the_builder_of_a_test_server_is_refused() {
    let server = Server::new();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{address}");
    Client::connect(&url).await.unwrap();
    let refused = server.builder().url(&url).build().await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("connector") && text.contains("set one connector"),
        "{text}"
    );
}

#[test]
#[should_panic(expected = "requires the `current_thread` Tokio runtime")]
fn a_multi_thread_runtime_that_starts_with_a_paused_clock_panics() {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .enable_all()
        .start_paused(true)
        .build();
    runtime
        .unwrap()
        .block_on(async { Server::new().client().await });
}

#[test]
#[should_panic(expected = "requires the `current_thread` Tokio runtime")]
fn pausing_the_clock_of_a_multi_thread_runtime_panics() {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Server::new().client().await;
        let _guard = client.lock("orders").lock().await.unwrap();
        tokio::time::pause();
    });
}
