//! Leases are renewed during faults, and a holder whose lease is not renewed is notified in time.

mod apart;
mod batches;
mod behind;
mod clean_end;
mod cycles;
mod drops;
mod exclusion;
mod frozen;
mod lost;
mod lost_in_time;
mod mixed;
mod network;
mod outages;
mod panics;
mod period;
mod slow_log;

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::join_all;
use lockdog::{Client, ClientBuilder, Guard};

use crate::fixture::connected;
use crate::support::{Proxy, Redis};

/// A hold outlasts a stall of three seconds before its first renewal, and a test sees several periods.
const LEASE: Duration = Duration::from_millis(4_800);

/// Renewals come once in this time.
const PERIOD: Duration = Duration::from_millis(1_600);

/// A hold that is still held after this time was renewed.
const OUTLAST: Duration = Duration::from_millis(4_800 + 1_600);

/// A step that takes this long hangs.
const SAFETY: Duration = Duration::from_secs(30);

fn builder(url: &str) -> ClientBuilder {
    Client::builder().url(url).watchdog_lease(LEASE)
}

async fn connect(url: &str) -> Client {
    connected(builder(url)).await
}

/// Holds `<prefix>:0` up to `<prefix>:<n - 1>`, all acquired at once.
async fn hold_many(client: &Client, prefix: &str, n: usize) -> Vec<Guard> {
    let acquires = (0..n).map(|i| client.lock(format!("{prefix}:{i}")).lock().into_future());
    let guards = join_all(acquires).await;
    guards
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("no other owner wants these locks")
}

/// Whether a command is a renewal, known by the digest or the text of its script.
fn is_renewal(args: &[String]) -> bool {
    is_script(args, &RENEW)
}

fn is_acquire(args: &[String]) -> bool {
    is_script(args, &ACQUIRE)
}

fn is_script(args: &[String], script: &(&'static str, String)) -> bool {
    args.get(1)
        .is_some_and(|arg| arg == script.0 || *arg == script.1)
}

fn renewals(proxy: &Proxy) -> usize {
    proxy.count(is_renewal)
}

/// How many scripts the server has run since its statistics were reset.
async fn scripts_run(redis: &Redis) -> u64 {
    let stats = redis.commandstats().await;
    let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
    calls("eval") + calls("evalsha")
}

/// The TTL of a key that has one.
async fn ttl(redis: &Redis, key: &str) -> Duration {
    let left = redis.pttl(key).await;
    Duration::from_millis(u64::try_from(left).expect("the key is there and expires"))
}

static RENEW: LazyLock<(&str, String)> =
    LazyLock::new(|| script(include_str!("../../lua/lock/renew.lua")));
static ACQUIRE: LazyLock<(&str, String)> =
    LazyLock::new(|| script(include_str!("../../lua/lock/acquire.lua")));

fn script(text: &'static str) -> (&'static str, String) {
    (text, redis::Script::new(text).get_hash().to_owned())
}
