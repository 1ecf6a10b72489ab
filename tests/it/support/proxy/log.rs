//! Every command the proxy has read from a client.

use std::time::{Duration, Instant};

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Counted from 1 in the order of connecting.
    pub(crate) connection: u64,
    pub(crate) at: Instant,
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    seen: watch::Sender<Vec<Seen>>,
}

impl Log {
    pub(super) fn add(&self, connection: u64, args: &[String]) {
        let seen = Seen {
            connection,
            at: Instant::now(),
            args: args.to_vec(),
        };
        self.seen.send_modify(|all| all.push(seen));
    }

    pub(super) fn commands(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(super) fn count(&self, matches: &impl Fn(&[String]) -> bool) -> usize {
        count(&self.seen.borrow(), matches)
    }

    pub(super) async fn wait_for(&self, matches: &impl Fn(&[String]) -> bool, n: usize) {
        let mut seen = self.seen.subscribe();
        let enough = seen.wait_for(|all| count(all, matches) >= n);
        if tokio::time::timeout(SEEN_WITHIN, enough).await.is_err() {
            let all = self.commands();
            let listing: Vec<_> = all.iter().map(|seen| seen.args.join(" ")).collect();
            panic!(
                "{} of {n} commands came in {SEEN_WITHIN:?}; seen: {listing:#?}",
                count(&all, matches)
            );
        }
    }
}

fn count(all: &[Seen], matches: &impl Fn(&[String]) -> bool) -> usize {
    all.iter().filter(|seen| matches(&seen.args)).count()
}

const SEEN_WITHIN: Duration = Duration::from_secs(30);
