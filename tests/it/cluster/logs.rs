//! Errors and log rows name the server where the failure was.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Client, Owner};
use tracing::Level;

use super::{SOON, ms, soon};
use crate::support::logs::{Logs, alone};
use crate::support::{Cluster, eventually, until_ok};

/// The errors of a lock, and the rows about renewals and lost locks.
#[test]
fn errors_and_log_events_name_the_server_of_the_lock() {
    alone(
        "cluster::logs::errors_and_log_events_name_the_server_of_the_lock",
        async {
            let logs = Logs::of_this_process();
            let cluster = Cluster::start(3, 0).await;
            for node in &cluster.nodes {
                node.cmd("CONFIG SET cluster-require-full-coverage no")
                    .await;
            }
            let client = Client::builder().url(cluster.url()).watchdog_lease(LEASE);
            let client = client.command_timeout(ms(1000));
            let client = until_ok(SOON, async || client.clone().build().await).await;
            let gone = &cluster.nodes[1];
            let names = cluster.names_at(gone, "l", 2).await;
            let guard = client.lock(&names[0]).try_lock().wait(SOON).await;
            let guard = guard.unwrap().expect("it is free");
            gone.server.kill();
            let server = format!("127.0.0.1:{}", gone.port());
            eventually(SOON, "an error names the server", async || {
                let lock = client.lock(&names[1]);
                let error = lock.try_lock().owner(&Owner::new()).await;
                let error = error.expect_err("the server is gone").to_string();
                println!("{error}");
                error.contains(&server)
            })
            .await;
            let lost = soon("the lock is lost", guard.lost()).await;
            assert_eq!(lost.reason(), LostReason::Deadline);
            for row in ["renewal failing", "lock lost"] {
                eventually(SOON, "the row names the server", async || {
                    let lines = logs.at_least(Level::WARN);
                    let mut rows = lines.iter().filter(|line| line.text.contains(row));
                    rows.any(|line| line.text.contains(&format!("server=\"{server}\"")))
                })
                .await;
            }
            drop(guard);
            client.shutdown().await;
        },
    );
}

const LEASE: Duration = Duration::from_secs(6);
