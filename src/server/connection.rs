//! One connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use super::failure::Failure;
use super::identity::Identity;
use super::socket::Socket;
use super::user_connector::Driver;
use super::user_pool::PooledConnection;
use crate::clock::Moment;

/// A multiplexed connection. The server executes its commands in the order in which they were sent.
#[derive(Clone)]
pub(crate) struct Connection {
    // One `Arc`, so that a clone raises one counter: every command clones the connection.
    inner: Arc<Inner>,
    /// A redirection (`ASK`) named this server for one command, so `ASKING` goes before the
    /// command.
    asking: bool,
}

struct Inner {
    wire: Wire,
    /// Identifies the connection within this process.
    number: u64,
    /// The server's id for the connection, if the server reports it.
    client_id: OnceLock<u64>,
    /// The server's identity, shared by all connections of the client to it.
    identity: Arc<Identity>,
    /// Host and port, if the deployment has several servers.
    server: Option<Arc<str>>,
    /// The master's term to which it belongs.
    term: u64,
    /// When the server's identity last changed, as known at the introduction.
    reborn: OnceLock<Option<Moment>>,
    kept: ConnectionParts,
}

/// See [`Connection::server_run`].
pub(super) type ServerRun = (u64, Option<Moment>);

/// Values that must live as long as the connection.
pub(super) enum ConnectionParts {
    Nothing,
    /// A pool's connection. The pool counts it as used until this is dropped.
    Pooled(PooledConnection),
    /// Drives a connection that a user's connector opened.
    Driver(#[expect(dead_code, reason = "it is kept")] Driver),
}

/// The transport of a connection's commands.
pub(super) enum Wire {
    Socket(Socket),
    #[cfg(test)]
    Simulated(crate::simulation::SimulatedWire),
}

impl Connection {
    /// `term` is the term before the endpoint resolved the server's address. `server` is that
    /// address.
    pub(super) fn new(
        socket: Socket,
        identity: &Arc<Identity>,
        server: Option<Arc<str>>,
        term: u64,
        kept: ConnectionParts,
    ) -> Self {
        let wire = Wire::Socket(socket);
        Self::over(wire, identity, server, term, kept)
    }

    pub(super) fn over(
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
                kept,
            }),
            asking: false,
        }
    }

    /// The same connection, for commands that another server redirected here while a slot is being
    /// moved.
    pub(super) fn asking(self) -> Self {
        let asking = true;
        Self { asking, ..self }
    }

    /// The server's host and port, if the deployment has several servers.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        self.inner.server.as_ref()
    }

    /// The server's host.
    pub(super) fn host(&self) -> &str {
        let address = self.inner.identity.run.address();
        address.rsplit_once(':').map_or(address, |(host, _)| host)
    }

    /// Sets the connection's name, and reads its id and the server's identity, as far as the server
    /// permits. It takes one round trip, and the caller limits its time. It fails if the connection
    /// breaks, because no command may be sent before the client knows which server would execute
    /// it. It also fails if the server requires a password: redis-rs connects without one.
    pub(super) async fn handshake(
        &self,
        name: Option<&str>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let mut id = redis::cmd("CLIENT");
        id.arg("ID");
        let ((), id, identified) = tokio::join!(
            self.set_name(name, limit),
            self.ask(&id, limit),
            self.read_identity(limit)
        );
        match id {
            Ok(Value::Int(id)) => {
                if let Ok(id) = u64::try_from(id) {
                    self.has_id(id);
                }
            }
            Err(Failure::Refused { code, message }) if code == "NOAUTH" => {
                return Err(Failure::Refused { code, message });
            }
            _ => {}
        }
        self.inner
            .reborn
            .get_or_init(|| self.inner.identity.run.reborn());
        match identified {
            // The server is in a transient state, for example loading. It reports its identity after that.
            Err(failure) if failure.passes() => {
                self.inner.identity.run.doubt();
                Ok(())
            }
            // No caller's command was sent.
            Err(failure) => Err(Failure::Unsent(format!("{failure:?}").into())),
            Ok(()) => Ok(()),
        }
    }

    async fn set_name(&self, name: Option<&str>, limit: Duration) {
        let Some(name) = name else { return };
        let mut set_name = redis::cmd("CLIENT");
        set_name.arg("SETNAME").arg(name);
        if let Err(failure) = self.ask(&set_name, limit).await {
            tracing::debug!(target: "lockdog::server", %failure, "CLIENT SETNAME failed");
        }
    }

    /// Reads the server's identity.
    pub(super) async fn read_identity(&self, limit: Duration) -> Result<(), Failure> {
        // Servers before 7.0 accept one section at a time.
        let [server, replication] = ["server", "replication"].map(|section| {
            let mut info = redis::cmd("INFO");
            info.arg(section);
            info
        });
        let (server, replication) =
            tokio::join!(self.ask(&server, limit), self.ask(&replication, limit));
        self.inner.identity.update(server, replication)
    }

    /// Sends one command and waits for its answer for at most `limit`.
    ///
    /// If the server's identity may have changed meanwhile, this is known before the answer is
    /// returned: see [`Server::judge`](super::Server::judge).
    ///
    /// # Cancel safety
    ///
    /// If dropped before the command was written, the command is never sent. If dropped later, the
    /// command may run.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        // A replaced master must not get commands, and its answers do not count: it may not know
        // yet that it was replaced.
        if !self.is_current() {
            return Err(Failure::Unsent("the master was switched".into()));
        }
        let answer = async {
            let answer = if self.asking {
                // Boxed: it is rare, and would otherwise enlarge the future of every command.
                Box::pin(self.ask_with_asking(command, limit)).await
            } else {
                self.ask(command, limit).await
            };
            let identity = &self.inner.identity;
            match &answer {
                Err(failure) if failure.is_doubtful() => identity.run.doubt(),
                Ok(_) => {
                    if let Some(doubts) = identity.run.doubts() {
                        // Boxed: it is large, and would otherwise enlarge the future of every
                        // command.
                        Box::pin(self.clear_up(doubts, limit)).await?;
                    }
                }
                Err(_) => {}
            }
            answer
        };
        let answer = tokio::time::timeout(limit, answer);
        let identity = &self.inner.identity;
        let answer = if identity.term.is_elected() {
            // Boxed: it is large, and would otherwise enlarge the future of every command.
            let over = Box::pin(identity.term.until_over(self.inner.term));
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

    /// The identity of its server.
    pub(super) fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The master's term, and when the server's identity last changed before this connection. They are the same for all
    /// connections that lead to the same server if no restart is known in between.
    pub(super) fn server_run(&self) -> ServerRun {
        (self.inner.term, self.inner.reborn.get().copied().flatten())
    }

    /// Whether both lead to the same server and no restart is known in between.
    pub(super) fn leads_to_same_server(&self, other: &Self) -> bool {
        self.server_run() == other.server_run()
    }

    /// Whether it leads to the server with this identity.
    pub(super) fn is_of(&self, identity: &Arc<Identity>) -> bool {
        Arc::ptr_eq(&self.inner.identity, identity)
    }

    /// Whether its command goes to the server to which the slot is being moved.
    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    /// Whether it leads to the current master, as far as the client knows.
    pub(crate) fn is_current(&self) -> bool {
        self.inner.term == self.inner.identity.term.current()
    }

    /// Queries which server gave the latest answer. Fails if the server does not say it now; then the answer
    /// does not count.
    pub(super) async fn clear_up(&self, doubts: u64, limit: Duration) -> Result<(), Failure> {
        match self.read_identity(limit).await {
            Ok(()) => {
                self.inner.identity.run.clear(doubts);
                Ok(())
            }
            Err(failure) if failure.is_ambiguous() => Err(failure),
            Err(failure) => {
                let cause = format!("the server does not report its identity: {failure:?}");
                Err(Failure::Broken(cause.into()))
            }
        }
    }

    /// Sends one command and waits for its answer without a time limit. `limit` is the caller's,
    /// for the error.
    pub(super) async fn ask(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        let answer = self.inner.wire.send(command).await;
        answer
            .and_then(Value::extract_error)
            .map_err(|error| Failure::of_command(error, limit))
    }

    /// Like [`Connection::ask`], with `ASKING` before the command.
    pub(super) async fn ask_with_asking(
        &self,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let answer = self.inner.wire.send_asking(command).await;
        answer
            .and_then(Value::extract_error)
            .map_err(|error| Failure::of_command(error, limit))
    }

    /// Sets the server's id for the connection.
    pub(super) fn has_id(&self, id: u64) {
        self.inner.client_id.get_or_init(|| id);
    }

    pub(crate) fn client_id(&self) -> Option<u64> {
        self.inner.client_id.get().copied()
    }

    /// It is abandoned. If it is from a pool, the pool does not give it to another caller.
    pub(super) fn leave(&self) {
        if let ConnectionParts::Pooled(pooled) = &self.inner.kept {
            pooled.leave();
        }
    }

    /// Identifies the connection within this process.
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
            Self::Socket(socket) => socket.send(command).await,
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }

    async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Socket(socket) => socket.send_asking(command).await,
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
