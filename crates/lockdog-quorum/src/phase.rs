//! The phases of an acquisition.

/// The phase of an acquisition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// The first round is under way. Next: Marking, Held or Failed.
    Acquiring,
    /// A quorum granted it, and its fencing token is being written. Next: Held or Failed.
    Marking,
    /// Next: Jeopardy, Lost or Ended.
    Held,
    /// The last round of extension did not reach a quorum. A round that does leads back to Held.
    Jeopardy,
    /// Not acquired. Final.
    Failed,
    /// It ended before its owner released it. Final.
    Lost(LossCause),
    /// Released. Final.
    Ended,
}

/// Why it was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LossCause {
    /// Its lease ended, because no round of extension reached a quorum in time.
    Deadline,
    /// It was held until [`Rules::max_until`](crate::Rules::max_until).
    MaxHold,
    /// Fewer instances than a quorum hold it.
    NotOurs,
    /// Its driver ended it: [`Event::Lose`](crate::Event::Lose).
    Driver,
}
