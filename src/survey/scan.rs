//! Scans all keys.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::ask::{command, page};
use super::{LockInfo, LockKind, inspect};
use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::key::pattern_of_counters;
use crate::server::{Failure, Node};
use crate::session::Session;

/// The locks on the servers, one after the other, from [`Client::locks`](crate::Client::locks).
///
/// A lock that is acquired or released meanwhile may or may not be among them.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let mut locks = client.locks("orders:*");
/// while let Some(lock) = locks.next().await? {
///     println!("{} {:?}", lock.key, lock.holders);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "it reads nothing itself, use `.next()`"]
pub struct Locks {
    session: Arc<Session>,
    pattern: String,
    pause: Duration,
    max_keys: u64,
    with_semaphores: bool,
    with_counters: bool,
    at: Option<Position>,
    found: VecDeque<LockInfo>,
    seen: HashSet<String>,
    scanned: u64,
}

/// Where the scan is.
struct Position {
    /// The servers that are not done, the current one last.
    nodes: Vec<Arc<Node>>,
    /// The types and patterns of keys that are scanned on each server, the last ones first.
    passes: Vec<(&'static str, String)>,
    /// How many of them are not done on the current server.
    left: usize,
    cursor: u64,
}

impl Locks {
    pub(crate) fn new(session: Arc<Session>, pattern: &str) -> Self {
        Self {
            session,
            pattern: pattern.to_owned(),
            pause: Duration::ZERO,
            max_keys: u64::MAX,
            with_semaphores: false,
            with_counters: false,
            at: None,
            found: VecDeque::new(),
            seen: HashSet::new(),
            scanned: 0,
        }
    }

    /// Also finds semaphores, once they were used. Before that, and for latches, the key is a number like those of
    /// other programs, so it is not found.
    ///
    /// Defaults to locks only.
    pub fn with_semaphores(mut self) -> Self {
        self.with_semaphores = true;
        self
    }

    /// Also finds the counters of fencing tokens whose locks are free ([`LockKind::UnusedCounter`]). The pattern is
    /// then also that of their locks' names.
    ///
    /// Defaults to locks only.
    pub fn with_counters(mut self) -> Self {
        self.with_counters = true;
        self
    }

    /// The pause between two pages of keys, for a server that is busy.
    ///
    /// Defaults to none.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Ends the scan after about this many keys, in steps of 500. [`Locks::is_done`] says whether all keys were
    /// scanned. Keys that are scanned again, for semaphores or counters, count once.
    ///
    /// Defaults to no limit.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = keys;
        self
    }

    /// About how many keys the servers have scanned so far. Each key counts once.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Whether all keys have been inspected, and all locks returned.
    pub fn is_done(&self) -> bool {
        self.found.is_empty() && self.at.as_ref().is_some_and(|at| at.nodes.is_empty())
    }

    /// The next lock, or `None` if there is no other one, or if [`Locks::max_keys`] is reached. Each key comes at
    /// most once.
    ///
    /// # Errors
    ///
    /// - [`Error::Refused`] if the user may not use `SCAN`, or another command that it needs.
    /// - [`Error::Timeout`], [`Error::Unavailable`] if a server does not answer. The next call continues.
    /// - [`Error::Closed`] after a shutdown, [`Error::Invalid`] outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the next call continues at the same page of keys.
    pub async fn next(&mut self) -> Result<Option<LockInfo>> {
        ensure_runtime()?;
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            let is_counted = self.at.as_ref().is_none_or(Position::is_counted);
            if self.is_done() || is_counted && self.scanned >= self.max_keys {
                return Ok(None);
            }
            // Boxed, because the future of a whole page is large.
            Box::pin(self.scan_page()).await?;
        }
    }

    /// Inspects the next page of keys.
    async fn scan_page(&mut self) -> Result<()> {
        let core = self.session.core();
        core.ensure_open()?;
        let Some(at) = &self.at else {
            // After this the servers of a cluster are known.
            let of = |failure| Error::from(failure).of_server(&core.server.address());
            core.server.connect().await.map_err(of)?;
            let passes = self.passes();
            self.at = Some(Position {
                nodes: core.server.nodes(),
                left: passes.len(),
                passes,
                cursor: 0,
            });
            return Ok(());
        };
        let (Some(node), Some((kind, pattern))) = (at.nodes.last(), at.current()) else {
            return Ok(());
        };
        if self.scanned > 0 && !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        let (cursor, keys) = scan(
            node,
            at.cursor,
            pattern,
            kind,
            core.server.command_timeout(),
        )
        .await
        .map_err(|failure| Error::from(failure).of_server(&node.address()))?;
        let mut new = keys;
        new.retain(|key| !self.seen.contains(key));
        let mut found = Vec::new();
        for some in new.chunks(AT_ONCE) {
            for inspected in join_all(some.iter().map(|key| inspect(core, key))).await {
                let inspected = inspected?;
                let is_wanted = match inspected.kind {
                    LockKind::Foreign(_) | LockKind::Free => false,
                    LockKind::UnusedCounter => self.with_counters,
                    _ => true,
                };
                if is_wanted {
                    found.push(inspected);
                }
            }
        }
        // No await from here on, so a cancelled call repeats the whole page.
        for lock in found {
            if self.seen.insert(lock.key.clone()) {
                self.found.push_back(lock);
            }
        }
        if let Some(at) = &mut self.at {
            if at.is_counted() {
                self.scanned += PAGE;
            }
            at.go_on(cursor);
        }
        Ok(())
    }

    fn passes(&self) -> Vec<(&'static str, String)> {
        let mut passes = Vec::new();
        // Each pass goes through all keys. Where the pass for semaphores takes every string, it finds the counters.
        if self.with_counters && !(self.with_semaphores && self.pattern == "*") {
            passes.push(("string", pattern_of_counters(&self.pattern)));
        }
        if self.with_semaphores {
            passes.push(("string", self.pattern.clone()));
        }
        passes.push(("hash", self.pattern.clone()));
        passes
    }
}

impl Position {
    fn current(&self) -> Option<&(&'static str, String)> {
        self.passes.get(self.left.checked_sub(1)?)
    }

    /// Whether this is the first pass on the server. Each further one goes through the same keys.
    fn is_counted(&self) -> bool {
        self.left == self.passes.len()
    }

    /// A page of keys was read, and the next one begins here; at zero the pass is done.
    fn go_on(&mut self, cursor: u64) {
        self.cursor = cursor;
        if cursor > 0 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.nodes.pop();
            self.left = self.passes.len();
        }
    }
}

/// One page of the keys of one server.
async fn scan(
    node: &Node,
    cursor: u64,
    pattern: &str,
    kind: &str,
    limit: Duration,
) -> std::result::Result<(u64, Vec<String>), Failure> {
    let connection = node.connection(limit).await?;
    let (cursor, count) = (cursor.to_string(), PAGE.to_string());
    let query = command(&[
        "SCAN", &cursor, "MATCH", pattern, "COUNT", &count, "TYPE", kind,
    ]);
    let answer = connection.send(&query, limit).await;
    node.abandon_unanswered(&answer, &connection);
    page(&answer?).ok_or_else(|| Failure::Refused {
        code: "ERR".to_owned(),
        message: "the answer to SCAN cannot be read".to_owned(),
    })
}

/// Shows the pattern and the progress.
impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("pattern", &self.pattern)
            .field("scanned", &self.scanned)
            .finish_non_exhaustive()
    }
}

/// The keys that one command scans. It takes the server less than a millisecond.
const PAGE: u64 = 500;
/// The keys that are inspected together.
const AT_ONCE: usize = 50;
