//! The events.

use std::time::Duration;

use super::LockRef;
use crate::error::{Error, LostReason};

/// Something that happened in a client. A later version may have more events, and more fields.
///
/// A *call* acquires, and ends with one of `Acquired`, `Busy`, `Failed` and `Cancelled`. A *hold* begins with an
/// `Acquired` whose `how` is not [`How::Reentered`], and ends with one of `Released` and `Lost`. A call for
/// several permits with leases begins as many holds. If a call fails although the server granted a hold, the end
/// of that hold is an event too.
///
/// A [`MultiLock`](crate::MultiLock) reports its calls as one lock, to the observers of the client of its first
/// lock. Its locks report the ends of their holds by themselves. A [`RedLock`](crate::RedLock) reports all as one
/// lock, to the observers of the client of its first lock. The wait for a
/// [`CountDownLatch`](crate::CountDownLatch) is a call; it begins no hold.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// A call acquired what it asked for; or a latch opened.
    #[non_exhaustive]
    Acquired {
        /// What was acquired.
        lock: LockRef<'a>,
        /// In which way.
        how: How,
        /// How long the call took.
        waited: Duration,
    },
    /// Others had the lock until the end of the call's wait; or a latch stayed closed.
    #[non_exhaustive]
    Busy {
        /// What was not acquired.
        lock: LockRef<'a>,
        /// How long the call took.
        waited: Duration,
    },
    /// A call ended with an error.
    #[non_exhaustive]
    Failed {
        /// What was not acquired.
        lock: LockRef<'a>,
        /// How long the call took.
        waited: Duration,
        /// What the caller gets.
        error: &'a Error,
    },
    /// The future of a call was dropped before its end.
    #[non_exhaustive]
    Cancelled {
        /// What was not acquired.
        lock: LockRef<'a>,
        /// How long the call had taken.
        waited: Duration,
    },
    /// A hold ended by its owner's will.
    #[non_exhaustive]
    Released {
        /// What was released.
        lock: LockRef<'a>,
        /// The time from the acquire until the server confirmed the release, or until the client gave up.
        held: Duration,
        /// In which way.
        how: End,
        /// Whether the server confirmed it. If not, the lock may stay taken until its lease ends. Also true if the
        /// lock was left to its lease on purpose, and for a `RedLock` whose guard was dropped.
        confirmed: bool,
    },
    /// A hold ended against its owner's will.
    #[non_exhaustive]
    Lost {
        /// What was lost.
        lock: LockRef<'a>,
        /// Why.
        reason: LostReason,
        /// The time since the acquire.
        held: Duration,
        /// The time since the last acquire or renewal that succeeded was sent.
        since_renewal: Duration,
    },
    /// A renewal of this hold failed, the first one after a success. The client repeats it until the deadline.
    #[non_exhaustive]
    Jeopardy {
        /// What may get lost.
        lock: LockRef<'a>,
        /// The time until its deadline.
        remaining: Duration,
    },
    /// A renewal succeeded again after [`ClientEvent::Jeopardy`].
    #[non_exhaustive]
    Recovered {
        /// What is safe again.
        lock: LockRef<'a>,
    },
    /// The server answered a renewal of several holds. A `RedLock` renews by itself, and reports only the renewals that
    /// fail.
    #[non_exhaustive]
    Renewed {
        /// How many of them were renewed.
        holds: u32,
        /// How many of them the server did not have. Each of them is [`ClientEvent::Lost`], too.
        gone: u32,
        /// The time from the sending to the answer.
        took: Duration,
        /// How much later than planned the first of them was sent. The watchdog plans a renewal each third of
        /// the lease, and spreads many of them over an eighth of it.
        late: Duration,
    },
    /// A renewal of several holds has no answer, or the server refused it. For each lock of a `RedLock` that could not
    /// be extended, the observers of the client of that lock get one, also if a quorum was extended.
    #[non_exhaustive]
    RenewalFailed {
        /// How many holds.
        holds: u32,
        /// Why.
        error: &'a Error,
    },
    /// The client's thread woke up. Timers have a resolution of a millisecond.
    #[non_exhaustive]
    Late {
        /// How much later than planned. A busy machine, or a container without enough CPU, is visible here before
        /// it costs locks.
        by: Duration,
    },
    /// A call that had waited acquires its lock. Comes before its [`ClientEvent::Acquired`].
    #[non_exhaustive]
    Woken {
        /// What it waited for.
        lock: LockRef<'a>,
        /// What ended the wait.
        by: WokenBy,
    },
    /// The server answered a script, or did not.
    #[non_exhaustive]
    Command {
        /// What the script does.
        kind: CommandKind,
        /// From the first sending to the answer, including repetitions.
        took: Duration,
        /// There is no answer, or the server refused it.
        failed: bool,
    },
    /// A connection was opened, or closed, or could not be opened.
    #[non_exhaustive]
    Connection {
        /// What the connection is for.
        role: Role,
        /// Host and port, the path of a socket, or the name of the sentinels' master.
        server: &'a str,
        /// What happened to it.
        change: ConnectionChange,
    },
    /// Another server became a master, by a failover. The client checks its holds there.
    #[non_exhaustive]
    MasterSwitched {
        /// Host and port, the nodes of a cluster, or the name of the sentinels' master.
        server: &'a str,
    },
    /// The server at this address is another one than before, or was restarted. It may have lost its locks.
    #[non_exhaustive]
    ServerReborn {
        /// Host and port, the path of a socket, or the name of the sentinels' master.
        server: &'a str,
    },
    /// A [`RedLock`](crate::RedLock) asked all of its instances.
    #[non_exhaustive]
    Round {
        /// The lock.
        lock: LockRef<'a>,
        /// Whether a quorum of instances granted it.
        won: bool,
        /// How many instances answered, with a grant or without.
        answered: u32,
        /// How many of the granted instances may be lost without losing the lock; 0 if the round was not won.
        margin: u32,
    },
}

/// In which way a call acquired a lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum How {
    /// From the server.
    First,
    /// Its owner had the lock already, or a part of it.
    Reentered,
    /// Another owner of the same client handed it over.
    HandedOver,
}

/// In which way a hold ended by its owner's will.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// The last guard was unlocked.
    Unlocked,
    /// The last guard was dropped.
    Dropped,
    /// The last guard was unlocked, and another owner of the same client has the lock now.
    HandedOn,
    /// The client was shut down.
    ShutDown,
    /// Its lease ends it: a guard left it to that, or its guards were forgotten and had a fixed lease.
    Expired,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WokenBy {
    /// A message of the server: another client released the lock.
    Message,
    /// A timer, although a message was expected: the TTL of a holder that died was over, or the message did not
    /// arrive.
    Timer,
    /// Another owner of the same client handed the lock over.
    HandOver,
    /// Another call of the same client: it released the lock, or left the queue.
    Release,
    /// The end of a pause that the client chose: it polls, leaves the lock to other clients for a moment, or
    /// tries again after a failure.
    Pause,
}

/// What a script does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CommandKind {
    /// Acquires a lock, or permits; or queries the queue of a fair lock.
    Acquire,
    /// Releases.
    Unlock,
    /// Hands a lock over to another owner of the same client.
    Transfer,
    /// Completes the release of a dropped guard, or undoes a cancelled call.
    Settle,
    /// Renews leases.
    Renew,
    /// Confirms a grant for replicas.
    Touch,
    /// Reads, or changes a count.
    Query,
    /// Releases what others hold.
    Force,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The commands of callers.
    Commands,
    /// The renewals and settlements of the client's thread.
    Watchdog,
    /// The messages of locks that others release.
    Messages,
    /// The acknowledgements of replicas.
    Replicas,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ConnectionChange {
    /// It is open.
    Opened,
    /// It could not be opened.
    Failed,
    /// It broke, or did not answer, and the client closed it.
    Closed,
}
