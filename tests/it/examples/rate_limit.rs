//! Two processes share the permits for their calls.

use std::time::{Duration, Instant};

use super::program::Program;
use crate::support::RedisServer;

#[tokio::test]
async fn processes_together_make_no_more_calls_than_there_are_permits() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let began = Instant::now();
    let mut alice = Program::start("rate_limit", &[&server.url(), "alice"]);
    alice.says("alice allows 2 calls at a time").await;
    let bob = Program::start("rate_limit", &[&server.url(), "bob"]);
    let mut begun = 0;
    for (program, name) in [(alice, "alice"), (bob, "bob")] {
        let (status, output) = program.end().await;
        assert!(status.success(), "{status}: {output:#?}");
        assert_eq!(output.last(), Some(&format!("{name} ended")));
        begun += output.iter().filter(|it| it.ends_with(" begins")).count();
        assert!(
            !output
                .iter()
                .any(|it| name == "bob" && it.contains("allows"))
        );
    }
    assert_eq!(begun, 12);
    // Twelve calls, two in each half second: the last two begin after five half seconds.
    assert!(began.elapsed() >= Duration::from_millis(2_500));
    assert_eq!(redis.ask::<i64>(&["GET", "example:calls"]).await, 2);
}
