//! One connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use super::failure::Failure;
use super::identity::Identity;
use super::user_connector::Driver;
use super::user_pool::PooledConnection;
use crate::clock::Moment;

/// A multiplexed connection: commands sent on it are executed in the order of their sending.
#[derive(Clone)]
pub(crate) struct Connection {
    // One count to raise for each clone: every command takes one.
    inner: Arc<Inner>,
    /// The server is told that it was named for the command by another one.
    asking: bool,
}

struct Inner {
    wire: Wire,
    /// Tells one connection of this process from the next.
    number: u64,
    /// The server's name for it, where the server tells.
    client_id: OnceLock<u64>,
    /// Of the server, as all connections of the client know it.
    identity: Arc<Identity>,
    /// Host and port, where a deployment has several servers.
    server: Option<Arc<str>>,
    /// The master that it leads to.
    term: u64,
    /// When the server was last seen to be another, up to its introduction.
    reborn: OnceLock<Option<Moment>>,
    _kept: ConnectionParts,
}

/// What has to stay as long as a connection.
pub(super) enum ConnectionParts {
    Nothing,
    /// Counts it as taken where a user's pool gave it.
    Pooled(
        #[cfg_attr(feature = "deadpool", expect(dead_code, reason = "it is kept"))]
        PooledConnection,
    ),
    /// Drives it where a user's connector opened it.
    Driver(#[expect(dead_code, reason = "it is kept")] Driver),
}

/// What carries a connection's commands.
enum Wire {
    Socket(MultiplexedConnection),
    #[cfg(test)]
    Simulated(crate::simulation::SimulatedWire),
}

impl Connection {
    /// `term` is which master was in use before it was asked where that is, and `server` is where.
    pub(super) fn new(
        multiplexed: MultiplexedConnection,
        identity: &Arc<Identity>,
        server: Option<Arc<str>>,
        term: u64,
        kept: ConnectionParts,
    ) -> Self {
        let wire = Wire::Socket(multiplexed);
        Self::over(wire, identity, server, term, kept)
    }

    #[cfg(test)]
    pub(super) fn simulated(
        wire: crate::simulation::SimulatedWire,
        identity: &Arc<Identity>,
    ) -> Self {
        let id = wire.client_id();
        let wire = Wire::Simulated(wire);
        let connection = Self::over(wire, identity, None, 0, ConnectionParts::Nothing);
        connection.inner.client_id.get_or_init(|| id);
        connection
    }

    fn over(
        wire: Wire,
        identity: &Arc<Identity>,
        server: Option<Arc<str>>,
        term: u64,
        kept: ConnectionParts,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                wire,
                number: next_number(),
                client_id: OnceLock::new(),
                identity: identity.clone(),
                server,
                term,
                reborn: OnceLock::new(),
                _kept: kept,
            }),
            asking: false,
        }
    }

    /// The same connection, for commands that another server sent here while a slot is being moved.
    pub(super) fn asking(self) -> Self {
        let asking = true;
        Self { asking, ..self }
    }

    /// The server's host and port, where a deployment has several servers.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        self.inner.server.as_ref()
    }

    /// The server's host.
    pub(super) fn host(&self) -> &str {
        let address = self.inner.identity.address();
        address.rsplit_once(':').map_or(address, |(host, _)| host)
    }

    /// Names the connection, learns its id and who the server is, as far as the server permits any
    /// of it, in one round trip that the caller limits. Fails where it may do nothing at all, since
    /// redis-rs connects without a password gladly, and where the connection breaks: nothing may be
    /// sent on it before it is known who would execute it.
    pub(super) async fn introduce(
        &self,
        name: Option<&str>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let mut id = redis::cmd("CLIENT");
        id.arg("ID");
        let ((), id, looked) = tokio::join!(
            self.set_name(name, limit),
            self.ask(&id, limit),
            self.look(limit)
        );
        match id {
            Ok(Value::Int(id)) => {
                let id = u64::try_from(id).ok();
                id.map(|id| self.inner.client_id.get_or_init(|| id));
            }
            Err(Failure::Refused { code, message }) if code == "NOAUTH" => {
                return Err(Failure::Refused { code, message });
            }
            _ => {}
        }
        self.inner
            .reborn
            .get_or_init(|| self.inner.identity.reborn());
        match looked {
            // It will tell when that state has passed.
            Err(failure) if failure.passes() => {
                self.inner.identity.doubt();
                Ok(())
            }
            // No command of a caller's was sent.
            Err(failure) => Err(Failure::Unsent(format!("{failure:?}").into())),
            Ok(()) => Ok(()),
        }
    }

    async fn set_name(&self, name: Option<&str>, limit: Duration) {
        let Some(name) = name else { return };
        let mut set_name = redis::cmd("CLIENT");
        set_name.arg("SETNAME").arg(name);
        if let Err(failure) = self.ask(&set_name, limit).await {
            tracing::debug!(target: "lockdog::server", ?failure, "the server keeps no client name");
        }
    }

    /// Learns who the server is.
    pub(super) async fn look(&self, limit: Duration) -> Result<(), Failure> {
        // Servers before 7.0 take one section at a time.
        let [server, replication] = ["server", "replication"].map(|section| {
            let mut info = redis::cmd("INFO");
            info.arg(section);
            info
        });
        let (server, replication) =
            tokio::join!(self.ask(&server, limit), self.ask(&replication, limit));
        self.inner.identity.hear(server, replication)
    }

    /// Sends one command and waits for its answer, `limit` at most.
    ///
    /// Where the server may have become another meanwhile, that is known when the answer is given:
    /// see [`Server::judge`](super::Server::judge).
    ///
    /// # Cancel safety
    ///
    /// Dropped before the command was written, it is never sent; after that it runs unseen.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        // A master of before must not be written to any more, nor believed: it may not know yet.
        if !self.is_current() {
            return Err(Failure::Unsent("the master was switched".into()));
        }
        let answer = async {
            let answer = if self.asking {
                // Boxed: it is rare, and part of every command otherwise.
                Box::pin(self.ask_asking(command, limit)).await
            } else {
                self.ask(command, limit).await
            };
            let identity = &self.inner.identity;
            match &answer {
                Err(failure) if failure.is_doubtful() => identity.doubt(),
                Ok(_) => {
                    if let Some(doubts) = identity.doubts() {
                        // Boxed: it is large, and part of every command otherwise.
                        Box::pin(self.clear_up(doubts, limit)).await?;
                    }
                }
                Err(_) => {}
            }
            answer
        };
        let answer = tokio::time::timeout(limit, answer);
        let identity = &self.inner.identity;
        let answer = if identity.is_elected() {
            // Boxed: it is large, and part of every command otherwise.
            let over = Box::pin(identity.until_over(self.inner.term));
            tokio::select! {
                answer = answer => Some(answer),
                () = over => None,
            }
        } else {
            Some(answer.await)
        };
        match answer {
            Some(answer) if self.is_current() => {
                answer.unwrap_or_else(|_| Err(Failure::silent(limit)))
            }
            _ => Err(Failure::Broken("the master was switched".into())),
        }
    }

    /// Of the server that it leads to.
    pub(super) fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Whether both lead to one start of one server, as far as is known.
    pub(super) fn leads_where(&self, other: &Self) -> bool {
        let (own, others) = (&self.inner, &other.inner);
        own.term == others.term && own.reborn.get() == others.reborn.get()
    }

    /// It leads to the server with this identity.
    pub(super) fn is_of(&self, identity: &Arc<Identity>) -> bool {
        Arc::ptr_eq(&self.inner.identity, identity)
    }

    /// Its command goes where the slot is being moved to.
    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    /// It leads to the server that is the master now, as far as is known.
    pub(crate) fn is_current(&self) -> bool {
        self.inner.term == self.inner.identity.term()
    }

    /// Learns who gave the answer that just came. Fails where that cannot be found out now, and the
    /// answer is as good as none.
    pub(super) async fn clear_up(&self, doubts: u64, limit: Duration) -> Result<(), Failure> {
        match self.look(limit).await {
            Ok(()) => {
                self.inner.identity.clear(doubts);
                Ok(())
            }
            Err(failure) if failure.is_ambiguous() => Err(failure),
            Err(failure) => {
                let cause = format!("the server does not tell who it is: {failure:?}");
                Err(Failure::Broken(cause.into()))
            }
        }
    }

    /// Sends one command and waits for its answer as long as it takes; `limit` is the caller's.
    pub(super) async fn ask(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        let answer = self.inner.wire.send(command).await;
        answer
            .and_then(Value::extract_error)
            .map_err(|error| Failure::of_command(error, limit))
    }

    /// As [`Connection::ask`], with the word that has to stand before the command.
    pub(super) async fn ask_asking(
        &self,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let answer = self.inner.wire.send_asking(command).await;
        answer
            .and_then(Value::extract_error)
            .map_err(|error| Failure::of_command(error, limit))
    }

    pub(crate) fn client_id(&self) -> Option<u64> {
        self.inner.client_id.get().copied()
    }

    /// Tells one connection of this process from the next.
    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.inner.number == other.inner.number
    }
}

impl Wire {
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Socket(multiplexed) => {
                // A clone is a handle on the same socket, and sending needs one of its own.
                multiplexed.clone().send_packed_command(command).await
            }
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }

    async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Socket(multiplexed) => {
                // Written in one go: nobody's command comes between them.
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                let answers = multiplexed
                    .clone()
                    .send_packed_commands(&both, 1, 1)
                    .await?;
                Ok(answers.into_iter().next().unwrap_or(Value::Nil))
            }
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
