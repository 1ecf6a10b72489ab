//! A plain value outside the servers. Two holders at the same time lose an update.

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Cloning gives another handle to the same cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    state: Arc<Mutex<State>>,
}

impl Cell {
    pub(crate) fn new() -> Self {
        // `tests/run` looks for this line in the output of a test that failed, and does not repeat the test.
        println!("{CHECKS_EXCLUSION}");
        Self::default()
    }

    /// Reads, sleeps and writes one more, under a name made of the visit's number.
    pub(crate) async fn bump(&self, pause: Duration) {
        self.bump_as("", pause).await;
    }

    /// As `bump`, under a name that a failed `assert_exclusive` shows.
    pub(crate) async fn bump_as(&self, who: &str, pause: Duration) {
        let _visit = self.enter(who, Access::Alone);
        // The read and the write are two steps on purpose: together they would hide a missing lock.
        let read = self.value();
        tokio::time::sleep(pause).await;
        self.state.lock().unwrap().value = read + 1;
    }

    /// As `bump`, with nothing but a turn of the runtime between the read and the write: for tests
    /// that count what happens and not how long it takes.
    pub(crate) async fn bump_at_once(&self) {
        let _visit = self.enter("", Access::Alone);
        let read = self.value();
        tokio::task::yield_now().await;
        self.state.lock().unwrap().value = read + 1;
    }

    /// Reads, sleeps, and writes one more if the hold is still valid. Returns false if not. For leases
    /// that may end on a busy machine: a notified holder writes nothing, so the next one loses no
    /// update.
    pub(crate) async fn bump_while(&self, pause: Duration, is_valid: impl Fn() -> bool) -> bool {
        let read = self.value();
        tokio::time::sleep(pause).await;
        let mut state = self.state.lock().unwrap();
        let is_valid = is_valid();
        if is_valid {
            state.value = read + 1;
        }
        is_valid
    }

    /// Reads twice, with a pause. Returns false if the hold is not valid after that. A valid reader must have
    /// read the same value both times.
    pub(crate) async fn read_while(&self, pause: Duration, is_valid: impl Fn() -> bool) -> bool {
        let before = self.value();
        tokio::time::sleep(pause).await;
        let after = self.value();
        // The order matters: the reader still held the lock at its last read.
        let is_valid = is_valid();
        if is_valid {
            assert_eq!(before, after, "a writer wrote beside a reader");
        }
        is_valid
    }

    /// A visit of a reader, which may overlap with other readers but not with a `bump`.
    pub(crate) async fn read_as(&self, who: &str, pause: Duration) -> i64 {
        let _visit = self.enter(who, Access::Shared);
        tokio::time::sleep(pause).await;
        self.value()
    }

    pub(crate) fn value(&self) -> i64 {
        self.state.lock().unwrap().value
    }

    /// The largest number of overlapping readers.
    pub(crate) fn most_inside(&self) -> usize {
        self.state.lock().unwrap().most_inside
    }

    /// Checks that no two holders overlapped and no update was lost.
    pub(crate) fn assert_exclusive(&self, expected: i64) {
        let state = self.state.lock().unwrap();
        let overlaps = &state.overlaps;
        let value = state.value;
        assert!(
            overlaps.is_empty() && value == expected,
            "the cell is {value}, expected {expected}; overlaps: {overlaps:?}"
        );
    }

    fn enter(&self, who: &str, access: Access) -> Visit {
        let mut state = self.state.lock().unwrap();
        state.visits += 1;
        let number = state.visits;
        let who = if who.is_empty() {
            format!("visitor {number}")
        } else {
            who.to_owned()
        };
        let overlaps: Vec<_> = state
            .inside
            .iter()
            .filter(|other| access == Access::Alone || other.access == Access::Alone)
            .map(|other| format!("{who} came while {} was inside", other.who))
            .collect();
        state.overlaps.extend(overlaps);
        state.inside.push(Visitor {
            access,
            number,
            who,
        });
        state.most_inside = state.most_inside.max(state.inside.len());
        Visit {
            cell: self.clone(),
            number,
        }
    }
}

const CHECKS_EXCLUSION: &str = "this test checks exclusion";

#[derive(Debug, Default)]
struct State {
    inside: Vec<Visitor>,
    most_inside: usize,
    overlaps: Vec<String>,
    value: i64,
    visits: u64,
}

#[derive(Debug)]
struct Visitor {
    access: Access,
    number: u64,
    who: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Alone,
    Shared,
}

/// Ends the visit when it is dropped, so that the visit of an aborted task ends, too.
#[derive(Debug)]
struct Visit {
    cell: Cell,
    number: u64,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock().unwrap();
        state.inside.retain(|visitor| visitor.number != self.number);
    }
}
