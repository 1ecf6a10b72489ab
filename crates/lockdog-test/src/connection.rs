//! Serves one client over a byte stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::commands::{self, Outcome};
use crate::core::ServerState;
use crate::database::ClientConnection;
use crate::reply::Reply;
use crate::request;

type Outbox = Sender<(Instant, Vec<u8>)>;

/// The addresses of both ends of a connection.
pub(crate) struct Ends {
    pub(crate) client: String,
    pub(crate) server: String,
}

/// Serves a client until it disconnects or the server closes the connection. The client is connected when this
/// returns.
pub(crate) fn serve(
    core: Arc<ServerState>,
    stream: impl AsyncRead + AsyncWrite,
    ends: Ends,
) -> impl Future<Output = ()> {
    let (reader, writer) = tokio::io::split(stream);
    let (outbox, out) = channel(LONGEST_OUTBOX);
    let closing = core.ending.child_token();
    let id = register(&core, ends, outbox.clone(), &closing);
    let connected = Connected { core, id };
    async move {
        let reading = read(&connected.core, id, reader, outbox);
        let writing = write(out, writer);
        tokio::select! {
            biased;
            () = closing.cancelled() => {}
            // Replies that are already there are still written.
            () = async { tokio::join!(reading, writing); } => {}
        }
    }
}

/// A client is in the list of clients until this is dropped.
struct Connected {
    core: Arc<ServerState>,
    id: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.core.database.lock().clients.remove(&self.id);
    }
}

fn register(core: &ServerState, ends: Ends, outbox: Outbox, closing: &CancellationToken) -> u64 {
    let mut database = core.database.lock();
    let id = database.next_client;
    database.next_client += 1;
    let now = database.micros();
    let client = ClientConnection {
        address: ends.client,
        local: ends.server,
        is_let_in: database.password.is_empty(),
        name: String::new(),
        library: [String::new(), String::new()],
        is_resp3: false,
        database: 0,
        last_command: String::new(),
        created: now,
        active: now,
        is_monitor: false,
        channels: BTreeSet::new(),
        patterns: BTreeSet::new(),
        shard_channels: BTreeSet::new(),
        outbox,
        closing: closing.clone(),
    };
    database.clients.insert(id, client);
    id
}

/// Executes commands in order until the client disconnects.
async fn read(core: &ServerState, id: u64, mut reader: impl AsyncRead + Unpin, outbox: Outbox) {
    let mut input = Vec::new();
    loop {
        loop {
            // A frozen server does not read commands, because it would not execute them.
            core.until_thawed().await;
            match request::take(&mut input) {
                Ok(None) => break,
                Ok(Some(args)) => {
                    if !execute(core, id, &args, &outbox).await {
                        return core.forget(id);
                    }
                }
                Err(line) => {
                    let reply = Reply::Error(line.to_owned());
                    core.database.lock().send(id, &reply);
                    return core.forget(id);
                }
            }
        }
        match reader.read_buf(&mut input).await {
            Ok(0) | Err(_) => return core.forget(id),
            Ok(_) => {}
        }
    }
}

/// False if the connection accepts no more commands.
async fn execute(core: &ServerState, id: u64, args: &[Vec<u8>], outbox: &Outbox) -> bool {
    let (time, reply) = loop {
        core.until_thawed().await;
        let mut database = core.database.lock();
        // Another thread may have frozen the server meanwhile.
        if core.is_frozen() {
            continue;
        }
        let was_resp3 = database.clients.get(&id).is_some_and(|it| it.is_resp3);
        let outcome = commands::execute(&mut database, id, args);
        match outcome {
            Outcome::Reply(reply) => {
                database.send(id, &reply);
                return true;
            }
            Outcome::Silence => return true,
            Outcome::Cut => {
                if let Some(client) = database.clients.remove(&id) {
                    client.closing.cancel();
                }
                return false;
            }
            Outcome::Last(reply) => {
                let mut bytes = Vec::new();
                reply.write(was_resp3, &mut bytes);
                // If the outbox is full, the client does not read, so nothing is lost.
                let _ = outbox.try_send((Instant::now() + database.faults.delay, bytes));
                return false;
            }
            Outcome::Later(time, reply) => break (time, reply),
        }
    };
    tokio::time::sleep(time).await;
    core.until_thawed().await;
    core.database.lock().send(id, &reply);
    true
}

/// Writes each reply and message at its due time. Ends when no more can come.
async fn write(mut out: Receiver<(Instant, Vec<u8>)>, mut writer: impl AsyncWrite + Unpin) {
    while let Some((due, mut bytes)) = out.recv().await {
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        } else {
            // What is due already is written in one piece.
            while bytes.len() < PIECE
                && let Ok((due, more)) = out.try_recv()
            {
                if due > Instant::now() {
                    if writer.write_all(&bytes).await.is_err() {
                        return;
                    }
                    tokio::time::sleep_until(due).await;
                    bytes = more;
                } else {
                    bytes.extend_from_slice(&more);
                }
            }
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = tokio::time::timeout(GOOD_BYE, writer.shutdown()).await;
}

const PIECE: usize = 64 * 1024;
/// The limit of pending messages and replies; a client that exceeds it is disconnected.
const LONGEST_OUTBOX: usize = 100_000;
const GOOD_BYE: Duration = Duration::from_secs(1);
