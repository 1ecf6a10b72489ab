//! How it stands with an acquisition.

/// How it stands with the whole.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// The first round is under way. Left to Marking, Held or Failed.
    Acquiring,
    /// It has a quorum, and its fencing token is being written. Left to Held or Failed.
    Marking,
    /// Left to Jeopardy, Lost or Ended.
    Held,
    /// The last round of extension did not reach a quorum. Left to Held by one that does.
    Jeopardy,
    /// Not acquired. Never left.
    Failed,
    /// Gone against its owner's will. Never left.
    Lost(LossCause),
    /// Given back. Never left.
    Ended,
}

/// Why it was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LossCause {
    /// Its lease ran out, as no round of extension reached a quorum in time.
    Deadline,
    /// It was as long as [`Rules::max_until`](crate::Rules::max_until) allows.
    MaxHold,
    /// Fewer instances than a quorum have it.
    NotOurs,
    /// Its driver said so: [`Event::Lose`](crate::Event::Lose).
    Driver,
}
