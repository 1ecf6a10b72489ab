//! What other deployments than one server stand on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::SOON;
use crate::support::child::{self, Copy};
use crate::support::pool::Pool;
use crate::support::{RedisServer, eventually};

/// A file that starts servers of its own would run on one of those, whatever the run asked for.
#[test]
fn what_runs_on_every_deployment_starts_no_server_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = fs::read_to_string(root.join("tests/run")).expect("it is there");
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("one_server=("));
    let words = line
        .expect("it has the list")
        .trim_end_matches(')')
        .split(' ');
    let left_out: BTreeSet<String> = words
        .filter_map(|word| word.strip_prefix("lock::"))
        .map(str::to_owned)
        .collect();
    let mut own = BTreeSet::new();
    for entry in fs::read_dir(root.join("tests/it/lock")).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let text = fs::read_to_string(&path).expect("it is text");
        if text.contains("RedisServer") || text.contains("Proxy::start") {
            let name = path.file_stem().expect("it has a name");
            own.insert(name.to_string_lossy().into_owned());
        }
    }
    assert_eq!(own, left_out);
}

/// Whatever way it ends in.
#[test]
fn what_is_in_a_pool_ends_with_its_process() {
    const TEST: &str = "harness::deployments::what_is_in_a_pool_ends_with_its_process";
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
        child::tell(&format!("{} {}", first.0, first.1.display()));
        child::await_go_ahead();
        return;
    }
    for is_killed in [false, true] {
        let mut copy = Copy::run(TEST, "");
        let said = copy.hear();
        let (pid, folder) = said.split_once(' ').expect("both are told");
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
