//! Which commands get a fault, and which fault.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::support::proxy::gate::Gate;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The server executes it. Its reply and all later data to the client on this connection are
    /// dropped, and the connection stays open. Later commands are still executed.
    DropReply,
    /// The server executes it; then the connection is closed and the client has no reply, also to no later
    /// command.
    ExecuteThenCut,
    /// The reply, and every later one on the connection, waits for the gate.
    HoldReply(Gate),
    /// The command, and every later one on the connection, waits for the gate. If the connection
    /// ends meanwhile, this command (not the later ones) is still delivered, on a connection of the
    /// proxy's own.
    HoldRequest(Gate),
    /// The server never sees it; the client gets this line, such as `-LOADING wait`.
    ReplyWith(String),
    /// The server gets it twice in a row, without a command of others between; the client gets the first reply.
    Twice,
    /// The client gets its reply; when the gate opens the server gets the same bytes again, on a
    /// connection of the proxy's own.
    TwiceLate(Gate),
}

/// Matches a command by its name, in whatever case.
pub(crate) fn named(name: &str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + use<> {
    let name = name.to_owned();
    move |args| {
        args.first()
            .is_some_and(|first| first.eq_ignore_ascii_case(&name))
    }
}

/// A handle to a rule. The rule stays active when the handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    entry: Arc<Entry>,
}

impl Rule {
    /// Applies to `n` commands instead of one.
    pub(crate) fn times(self, n: u64) -> Self {
        self.entry.left.lock().unwrap().set(Some(n));
        self
    }

    /// Applies to every command that matches, until `remove`.
    pub(crate) fn always(self) -> Self {
        self.entry.left.lock().unwrap().set(None);
        self
    }

    pub(crate) fn remove(&self) {
        self.entry.left.lock().unwrap().set(Some(0));
    }

    /// How often the fault has taken place in full: for `Twice`, when the second execution was
    /// answered.
    pub(crate) fn hits(&self) -> u64 {
        *self.entry.hits.borrow()
    }

    /// Waits until the fault has taken place `n` times; fails the test after thirty seconds.
    pub(crate) async fn wait_hits(&self, n: u64) {
        let mut hits = self.entry.hits.subscribe();
        let enough = hits.wait_for(|hits| *hits >= n);
        if tokio::time::timeout(HIT_WITHIN, enough).await.is_err() {
            let action = &self.entry.action;
            panic!("{action:?} took place {} of {n} times", self.hits());
        }
    }

    pub(super) fn hit(&self) {
        self.entry.hits.send_modify(|hits| *hits += 1);
    }

    pub(super) fn action(&self) -> Action {
        self.entry.action.clone()
    }
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Mutex<Vec<Rule>>,
}

impl Rules {
    pub(super) fn add(&self, matches: Matches, action: Action) -> Rule {
        let rule = Rule {
            entry: Arc::new(Entry {
                action,
                hits: watch::Sender::new(0),
                left: Mutex::default(),
                matches,
            }),
        };
        self.rules.lock().unwrap().push(rule.clone());
        rule
    }

    /// The oldest rule that matches and is not used up; this use counts.
    pub(super) fn apply(&self, args: &[String]) -> Option<Rule> {
        let rules = self.rules.lock().unwrap();
        let fits =
            |rule: &&Rule| (rule.entry.matches)(args) && rule.entry.left.lock().unwrap().take();
        rules.iter().find(fits).cloned()
    }
}

struct Entry {
    action: Action,
    hits: watch::Sender<u64>,
    left: Mutex<Left>,
    matches: Matches,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("action", &self.action)
            .field("hits", &*self.hits.borrow())
            .finish_non_exhaustive()
    }
}

/// The number of commands of a rule, `None` for all, and how many it has matched.
#[derive(Debug)]
struct Left {
    limit: Option<u64>,
    used: u64,
}

impl Left {
    fn set(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    fn take(&mut self) -> bool {
        let allowed = self.limit.is_none_or(|limit| self.used < limit);
        self.used += u64::from(allowed);
        allowed
    }
}

impl Default for Left {
    fn default() -> Self {
        Self {
            limit: Some(1),
            used: 0,
        }
    }
}

type Matches = Box<dyn Fn(&[String]) -> bool + Send + Sync>;

const HIT_WITHIN: Duration = Duration::from_secs(30);
