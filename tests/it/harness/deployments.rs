//! The pool of servers that tests of deployments share.

use std::path::PathBuf;

use super::SOON;
use crate::support::child::{self, Copy};
use crate::support::pool::Pool;
use crate::support::{RedisServer, eventually};

/// However the process ends.
#[test]
fn servers_in_a_pool_end_with_their_process() {
    const TEST: &str = "harness::deployments::servers_in_a_pool_end_with_their_process";
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    if child::argument().is_some() {
        static POOL: Pool<RedisServer> = Pool::new(1);
        let (first, again) = runtime.block_on(async {
            let start = async || {
                let server = RedisServer::start().await;
                let processes = vec![server.process()];
                (server, processes)
            };
            let first = POOL.take(start).await.process();
            let lent = POOL.take(start).await;
            (first, lent.process())
        });
        assert_eq!(first, again, "it goes from test to test");
        child::send(&format!("{} {}", first.0, first.1.display()));
        child::await_go_ahead();
        return;
    }
    for is_killed in [false, true] {
        let mut copy = Copy::run(TEST, "");
        let sent = copy.receive();
        let (pid, folder) = sent.split_once(' ').expect("both are sent");
        let places = [PathBuf::from(format!("/proc/{pid}")), PathBuf::from(folder)];
        assert!(places.iter().all(|place| place.exists()));
        if is_killed {
            copy.kill();
        } else {
            copy.go_ahead();
        }
        runtime.block_on(eventually(
            SOON,
            "the server and its data are gone",
            async || !places.iter().any(|place| place.exists()),
        ));
    }
}
