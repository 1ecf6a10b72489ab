//! What servers take. Alone in its program, whose memory it counts.

use lockdog_test::Server;

#[tokio::test]
async fn two_hundred_servers_take_less_than_five_megabytes_each() {
    let before = resident();
    let mut all = Vec::new();
    for _ in 0..SERVERS {
        let server = Server::new();
        let client = server.client().await;
        let guard = client.lock("orders").lock().await.unwrap();
        all.push((server, client, guard));
    }
    let each = resident().saturating_sub(before) / SERVERS;
    println!("{each} bytes each");
    assert!(each < 5_000_000, "{each} bytes");
    for (server, _client, guard) in all {
        assert!(server.holder("orders").is_some());
        guard.unlock().await.unwrap();
    }
}

/// The memory of this process that is not swapped out, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.and_then(|it| it.parse::<u64>().ok());
    kilobytes.expect("the line has a number of kB") * 1024
}

const SERVERS: u64 = 200;
