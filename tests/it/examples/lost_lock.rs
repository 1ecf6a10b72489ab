//! Each way to stop the work after a loss stops it.

use super::program::Program;
use crate::support::RedisServer;

#[tokio::test]
async fn each_way_to_stop_on_a_loss_stops_the_work() {
    let server = RedisServer::start().await;
    let output = Program::run("lost_lock", &[&server.url()]).await;
    let beginnings = [
        "lost() says: ",
        "lost_token() stopped 3 of 3 tasks",
        "is_valid() stopped the writing after ",
        "with() says: ",
    ];
    assert_eq!(output.len(), beginnings.len(), "{output:#?}");
    for (line, beginning) in output.iter().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line:?} in {output:#?}");
    }
    let redis = server.redis().await;
    redis.assert_clean().await;
    assert_eq!(redis.keys().await, [""; 0]);
}
