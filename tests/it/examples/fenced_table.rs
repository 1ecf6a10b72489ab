//! A write that comes too late is refused by the table itself.

use super::program::Program;
use crate::support::RedisServer;

#[tokio::test]
async fn the_table_refuses_the_write_of_one_who_was_stopped_beyond_the_lease() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let said = Program::run("fenced_table", &urls).await;
    let ends = [
        ", reads 10 pieces, and is stopped",
        ", sells 3, writes 7 pieces",
        "goes on, sells 1, writes 9 pieces: refused",
        ", reads 7, sells 1, writes 6 pieces",
        "6 pieces, no sale is missing",
    ];
    assert_eq!(said.len(), ends.len(), "{said:#?}");
    for (line, end) in said.iter().zip(ends) {
        assert!(line.ends_with(end), "{line:?} in {said:#?}");
    }
    for server in &servers {
        let redis = server.redis().await;
        redis.assert_clean().await;
        // The register stays, for tokens to grow from it; the lock does not.
        assert!(!redis.exists("stock:42").await);
        assert_eq!(redis.keys().await.len(), 1);
    }
}
