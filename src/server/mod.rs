//! One deployment of Redis: a standalone server, or a master that sentinels watch over.
//!
//! Everything above says what to run; only this module knows connections and their failures.

mod address;
mod connection;
mod failure;
mod health;
mod identity;
mod private;
mod sentinel;
mod source;

use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::{Clock, Moment};

pub(crate) use address::Address;
pub(crate) use connection::Connection;
use connection::Slot;
pub(crate) use failure::Failure;
use failure::Remedy;
use health::Health;
pub(crate) use private::Private;
pub(crate) use source::Source;

/// The server of one client, and the connection that its callers share.
pub(crate) struct Server {
    source: Source,
    clock: Clock,
    command_timeout: Duration,
    slot: Slot,
    health: Health,
}

/// When a call begins, and when it has to be over.
#[derive(Clone, Copy)]
pub(crate) struct Allotted {
    pub(crate) now: Moment,
    pub(crate) until: Moment,
}

/// What became of one call's sendings, kept outside the call so that it survives its cancellation.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    /// The moment before the first sending.
    pub(crate) first: Option<Moment>,
    /// The connection of the last sending.
    pub(crate) on: Option<Connection>,
    /// A sending is without an answer: it may have run, or may run yet.
    pub(crate) unanswered: bool,
    /// An earlier sending is without an answer, though the last one has one.
    pub(crate) repeated: bool,
}

impl Sent {
    /// The answer is that of the only sending: what it says is all that happened. A refused
    /// reconnect says nothing of the sending before it.
    pub(crate) fn is_answered(&self) -> bool {
        !self.repeated && !self.unanswered
    }
}

impl Server {
    pub(crate) fn new(source: Source, clock: Clock, command_timeout: Duration) -> Self {
        Self {
            source,
            clock,
            command_timeout,
            slot: Slot::default(),
            health: Health::default(),
        }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Host and port, a unix socket's path, or "pool"; never a user or password.
    pub(crate) fn address(&self) -> String {
        self.source.address()
    }

    /// Says that the server does not answer. Until it does, the client's own thread asks it one
    /// question at a time, and everybody else had better ask nothing.
    pub(crate) fn suspect(&self, failure: &Failure) {
        self.health.suspect(failure);
    }

    /// Why the server is thought not to answer, if it is.
    pub(crate) fn suspected(&self) -> Option<Failure> {
        self.health.suspected()
    }

    /// Waits until the server is under suspicion. For one caller: the client's own thread.
    pub(crate) async fn until_suspect(&self) {
        self.health.until_suspect().await;
    }

    /// The server answered a probe.
    pub(crate) fn answered(&self) {
        if self.health.answered() {
            tracing::debug!(server = self.address(), "the server answers again");
        }
    }

    /// When this client last saw that the server is another than before, and so may have come back
    /// without its data. Known before an answer of the new one is given.
    pub(crate) fn reborn(&self) -> Option<Moment> {
        self.source.identity().reborn()
    }

    /// When that was by the server's own clock, in milliseconds; 0 if it never was.
    pub(crate) fn reborn_since(&self) -> u64 {
        self.source.identity().reborn_since()
    }

    /// The server is this one, as it says itself, and its data is what it should be.
    pub(crate) fn trust(&self, who: String) {
        self.source.identity().trust(who);
    }

    /// Connects, so that a wrong address or password shows before the first lock.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        self.connection(self.command_timeout).await.map(drop)
    }

    /// Sends a script on the callers' connection until it is answered, cannot succeed, or `until`
    /// has come; an answer of a passing state is waited out.
    ///
    /// # Cancel safety
    ///
    /// `sent` tells what may have run.
    pub(crate) async fn call(
        &self,
        script: impl Fn(bool) -> Cmd,
        time: Allotted,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let Allotted { mut now, until } = time;
        let mut pause = SHORTEST_PAUSE;
        let mut whole = false;
        let mut refusal = None;
        loop {
            let failure = match self.call_once(&script(whole), now, until, sent).await {
                Ok(value) => return Ok(value),
                Err(Failure::Refused { code, .. }) if code == "NOSCRIPT" && !whole => {
                    whole = true;
                    now = self.clock.now();
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.remedy() {
                Remedy::GiveUp => return Err(failure),
                Remedy::Reconnect => {
                    if let Some(broken) = &sent.on {
                        self.slot.remove(broken);
                    }
                }
                Remedy::Wait => {}
            }
            let left = until.since(self.clock.now());
            // A sending without time for its answer would only hide why the others failed.
            if left <= pause * 2 {
                return Err(match (failure, refusal) {
                    (Failure::Unsent(_), Some(refusal)) => refusal,
                    (failure, _) => failure,
                });
            }
            tracing::debug!(?failure, "sending again");
            if matches!(failure, Failure::Refused { .. }) {
                refusal = Some(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            now = self.clock.now();
        }
    }

    async fn call_once(
        &self,
        command: &Cmd,
        mut now: Moment,
        until: Moment,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let connection = match self.slot.current() {
            Some(current) => current,
            None => {
                let opened = self.connection(self.limit(now, until)).await?;
                now = self.clock.now();
                opened
            }
        };
        let limit = self.limit(now, until);
        sent.repeated |= sent.unanswered;
        if mutant!("deadline_from_repetition") {
            sent.first = None;
        }
        sent.first = sent.first.or(Some(now));
        sent.unanswered = true;
        let answer = sent.on.insert(connection).send(command, limit).await;
        sent.unanswered = answer.as_ref().is_err_and(Failure::is_ambiguous);
        answer
    }

    /// The callers' connection, opened if there is none, within `limit`.
    pub(crate) async fn connection(&self, limit: Duration) -> Result<Connection, Failure> {
        if let Some(current) = self.slot.current() {
            return Ok(current);
        }
        // Boxed: what opens a connection is large, and part of every call otherwise.
        let opened = self.slot.get(Box::pin(self.source.open(limit)));
        tokio::time::timeout(limit, opened)
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("no connection in time".into())))
    }

    /// Gives up the connection of a call that was not answered and that nobody settles: it may be
    /// half open, and no later question would find out.
    pub(crate) fn abandon_silent(&self, answer: &Result<Value, Failure>, sent: &Sent) {
        if let (Err(Failure::Silent(_)), Some(silent)) = (answer, &sent.on) {
            self.abandon(silent);
        }
    }

    /// Gives up a connection that does not answer: the next call opens another.
    pub(crate) fn abandon(&self, connection: &Connection) {
        self.slot.remove(connection);
    }

    /// Closes the callers' connection once nobody waits for an answer on it.
    pub(crate) fn disconnect(&self) {
        self.slot.clear();
    }

    /// What one command may take that begins now.
    pub(crate) fn allot(&self, now: Moment) -> Allotted {
        Allotted {
            now,
            until: now + self.command_timeout,
        }
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// One sending may take the command timeout, and never longer than the whole call.
    fn limit(&self, now: Moment, until: Moment) -> Duration {
        let left = until.since(now);
        self.command_timeout.min(left).max(SHORTEST_PAUSE)
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
