//! The table refuses a write that comes too late.

use std::process::Command;

use super::program::{self, Program};
use crate::support::RedisServer;
use crate::support::port::dead_port;

#[tokio::test]
async fn the_table_refuses_the_write_of_a_holder_stopped_beyond_its_lease() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    assert_printed(&Program::run("fenced_table", &urls).await);
    for server in &servers {
        let redis = server.redis().await;
        redis.assert_clean().await;
        // The token register stays, so that tokens grow. The lock does not stay.
        assert!(!redis.exists("example:stock:42").await);
        assert_eq!(redis.keys().await.len(), 1);
    }
}

#[tokio::test]
async fn without_urls_the_example_starts_servers_and_removes_them() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().to_str().expect("it has a plain name");
    let program = Program::start_with("fenced_table", &[], &[("TMPDIR", path)]);
    let (status, output) = program.end().await;
    assert!(status.success(), "{status}:\n{output:#?}");
    assert_printed(&output);
    let left = std::fs::read_dir(path).expect("it is still there");
    assert_eq!(left.count(), 0, "the servers' data is still there");
}

#[test]
fn the_example_names_an_unreachable_server() {
    let address = format!("127.0.0.1:{}", dead_port());
    let program = Command::new(program::path("fenced_table"))
        .arg(format!("redis://{address}"))
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&program.stderr);
    assert_eq!(program.status.code(), Some(1), "{output}");
    assert!(
        output.starts_with("no connection to the server: "),
        "{output}"
    );
    assert!(
        output.ends_with(&format!("; server={address}\n")),
        "{output}"
    );
}

fn assert_printed(output: &[String]) {
    let ends = [
        ", reads 10 pieces, and is stopped",
        ", sells 3, writes 7 pieces",
        "goes on, sells 1, writes 9 pieces: refused",
        ", reads 7, sells 1, writes 6 pieces",
        "6 pieces, no sale is missing",
    ];
    assert_eq!(output.len(), ends.len(), "{output:#?}");
    for (line, end) in output.iter().zip(ends) {
        assert!(line.ends_with(end), "{line:?} in {output:#?}");
    }
}
