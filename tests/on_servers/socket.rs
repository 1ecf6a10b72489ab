//! Tests of sockets on a real server. In those of batches, callers poll in turn on one thread, so each test decides
//! what waits for a batch.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, RedisResult, Value};
use tokio::net::TcpStream;
use tokio_util::io::InspectWriter;

use super::Socket;
use crate::key::Script;
use crate::key::kind::{BATCH, PLAIN};
use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

/// A server, and a socket to it.
struct World {
    socket: Socket,
    /// Another connection.
    other: MultiplexedConnection,
    server: RedisServer,
}

impl World {
    /// The server knows the scripts of the callers, and that of a batch.
    async fn start() -> Self {
        let mut world = Self::without_batch_script().await;
        world.load(&BATCH).await;
        world
    }

    async fn without_batch_script() -> Self {
        let server = RedisServer::start().await;
        let client = redis::Client::open(server.url()).unwrap();
        // By default an answer has half a second, and a busy machine may need longer.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connect = || client.get_multiplexed_async_connection_with_config(&config);
        let mut world = Self {
            socket: Socket::batched(connect().await.unwrap()),
            other: connect().await.unwrap(),
            server,
        };
        for script in [
            PLAIN.scripts.acquire,
            PLAIN.scripts.unlock,
            PLAIN.scripts.settle,
        ] {
            world.load(script).await;
        }
        world
    }

    async fn load(&mut self, script: &Script) {
        let mut load = redis::cmd("SCRIPT");
        self.ask(load.arg("LOAD").arg(script.text())).await;
    }

    async fn ask(&mut self, command: &Cmd) -> Value {
        self.other.send_packed_command(command).await.unwrap()
    }

    async fn exists(&mut self, key: &str) -> bool {
        self.ask(redis::cmd("EXISTS").arg(key)).await == Value::Int(1)
    }

    /// How many `EVALSHA` the server got.
    async fn evalsha(&mut self) -> u64 {
        let info = self.ask(redis::cmd("INFO").arg("commandstats")).await;
        let info = super::super::wire::text(&info).unwrap().to_owned();
        let line = info
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"));
        line.map_or(0, |line| {
            let (_, calls) = line.split_once("calls=").unwrap();
            calls.split(',').next().unwrap().parse().unwrap()
        })
    }

    /// Futures that were polled once, and are not polled again here.
    fn begin<'a>(&'a self, commands: &'a [Cmd]) -> Vec<Sending<'a>> {
        let begin = |command| {
            let mut sending: Sending<'_> = Box::pin(self.socket.send(command));
            assert!((&mut sending).now_or_never().is_none());
            sending
        };
        commands.iter().map(begin).collect()
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + 'a>>;

fn call(script: &Script, key: &str, args: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.digest()).arg(1).arg(key).arg(args);
    command
}

fn acquire(key: &str) -> Cmd {
    call(PLAIN.scripts.acquire, key, &["me", "1", "60000"])
}

fn unlock(key: &str) -> Cmd {
    call(
        PLAIN.scripts.unlock,
        key,
        &["me", "0", "channel", "publish", ""],
    )
}

fn keys() -> Vec<String> {
    (0..CALLERS).map(|number| format!("l{number}")).collect()
}

fn acquires() -> Vec<Cmd> {
    keys().iter().map(|key| acquire(key)).collect()
}

/// Redis 6.2 wraps an error of a script.
fn assert_wrong_type(error: &redis::ServerError) {
    let text = format!("{error:?}");
    assert!(text.contains("WRONGTYPE"), "{text}");
}

/// More than two batches.
const CALLERS: usize = 150;

#[tokio::test]
async fn each_caller_of_a_batch_gets_the_answer_to_its_own_command() {
    let mut world = World::without_batch_script().await;
    world
        .ask(redis::cmd("HSET").arg("l100").arg("another").arg(1))
        .await;
    world
        .ask(redis::cmd("SET").arg("l101").arg("no lock"))
        .await;
    // In the first round the server does not know the script of a batch.
    for round in 0..3 {
        let before = world.evalsha().await;
        let commands = acquires();
        let answers = join_all(commands.iter().map(|it| world.socket.send(it))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match (at, answer.unwrap()) {
                (100, answer) => assert_eq!(answer, Value::Int(-1)),
                (101, Value::ServerError(error)) => assert_wrong_type(&error),
                (_, answer) => assert_eq!(answer, Value::Nil, "caller {at}"),
            }
        }
        let commands: Vec<Cmd> = keys().iter().map(|key| unlock(key)).collect();
        let answers = join_all(commands.iter().map(|it| world.socket.send(it))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match (at, answer.unwrap()) {
                (100, answer) => assert_eq!(answer, Value::Nil),
                (101, Value::ServerError(error)) => assert_wrong_type(&error),
                (_, answer) => assert_eq!(answer, Value::Int(1), "caller {at}"),
            }
        }
        let sent = world.evalsha().await - before;
        assert!(
            round == 0 || sent < 2 * CALLERS as u64 / 4,
            "{sent} commands"
        );
    }
}

#[tokio::test]
async fn a_settlement_does_not_overtake_the_commands_that_wait_for_a_batch() {
    let mut world = World::start().await;
    let (commands, keys) = (acquires(), keys());
    let sendings = world.begin(&commands);
    let last = keys.last().unwrap();
    let args = ["me", "0", "channel", "publish"];
    let settle = call(PLAIN.scripts.settle, last, &args);
    let settled = world.socket.send(&settle).await.unwrap();
    assert_eq!(settled, Value::Int(1), "the settlement came first");
    let answers = join_all(sendings).await;
    assert!(answers.into_iter().all(|it| it.unwrap() == Value::Nil));
    assert!(!world.exists(last).await);
}

#[tokio::test]
async fn a_command_whose_caller_left_before_its_batch_is_never_sent() {
    let mut world = World::start().await;
    let commands = acquires();
    let mut sendings = world.begin(&commands);
    drop(sendings.pop());
    let answers = join_all(sendings).await;
    assert!(answers.into_iter().all(|it| it.unwrap() == Value::Nil));
    let keys = keys();
    assert!(!world.exists(&keys[CALLERS - 1]).await);
    assert!(world.exists(&keys[CALLERS - 2]).await);
}

#[tokio::test]
async fn a_caller_that_is_polled_once_and_left_delays_no_other() {
    let world = World::start().await;
    let commands = acquires();
    let mut sendings = world.begin(&commands);
    let rest = sendings.split_off(CALLERS / 2);
    let answers = join_all(rest).await;
    assert!(answers.into_iter().all(|it| it.unwrap() == Value::Nil));
    drop(sendings);
}

#[tokio::test]
async fn callers_are_answered_when_no_caller_drives_the_batches() {
    let mut world = World::start().await;
    let commands = acquires();
    let sendings = world.begin(&commands);
    world.socket.batches.as_ref().unwrap().end();
    let answers = join_all(sendings).await;
    let failed = answers.iter().filter(|it| it.is_err()).count();
    assert!(failed > 0, "each command was sent by itself");
    // From now on each command is sent by itself.
    let answers = join_all(commands.iter().map(|it| world.socket.send(it))).await;
    assert!(answers.into_iter().all(|it| it.unwrap() == Value::Nil));
    assert!(world.exists(&keys()[CALLERS - 1]).await);
}

#[tokio::test]
async fn a_key_without_permission_ends_the_batches_and_harms_no_other_caller() {
    let mut world = World::start().await;
    let mut permit = redis::cmd("ACL");
    permit.arg("SETUSER").arg("default").arg("resetkeys");
    world.ask(permit.arg("~l*")).await;
    let mut commands = acquires();
    commands[100] = acquire("forbidden");
    for round in 0..2 {
        let before = world.evalsha().await;
        let answers = join_all(commands.iter().map(|it| world.socket.send(it))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match (at, answer.unwrap()) {
                (100, Value::ServerError(error)) => assert_eq!(error.code(), "NOPERM"),
                (_, answer) => assert_eq!(answer, Value::Nil, "caller {at}"),
            }
        }
        let sent = world.evalsha().await - before;
        // A refused command is not counted.
        assert!(round == 0 || sent == CALLERS as u64 - 1, "{sent} commands");
    }
}

#[tokio::test]
async fn callers_that_are_not_polled_any_more_do_not_cause_batches_forever() {
    let world = World::start().await;
    let commands = acquires();
    let _left = world.begin(&commands);
    let command = acquire("l");
    let waits_for_a_batch = || {
        let sending = world.begin(std::slice::from_ref(&command));
        let waits = world.socket.batches.as_ref().unwrap().has_waiting();
        drop(sending);
        waits
    };
    assert!(waits_for_a_batch(), "there are too few callers");
    for _ in 0..CALLERS {
        assert_eq!(world.socket.send(&command).await.unwrap(), Value::Nil);
    }
    assert!(!waits_for_a_batch());
}

/// A replica without a link to its master refuses every script. It becomes a master before the callers are polled.
#[tokio::test]
async fn the_callers_of_a_batch_see_that_the_server_may_have_lost_its_data() {
    let mut world = World::start().await;
    let mut stale = redis::cmd("CONFIG");
    stale.arg("SET").arg("replica-serve-stale-data").arg("no");
    world.ask(&stale).await;
    let mut follow = redis::cmd("REPLICAOF");
    // No server listens there.
    world.ask(follow.arg("127.0.0.1").arg(1)).await;
    let mut other = world.other.clone();
    let commands = acquires();
    let sendings = world.begin(&commands);
    // Its answer comes after those to the batches, which it sends.
    let settle = call(PLAIN.scripts.settle, "l0", &["me", "0", "", ""]);
    let is_refused = |answer: &Value| match answer {
        Value::ServerError(error) => error.code() == "MASTERDOWN",
        _ => false,
    };
    assert!(is_refused(&world.socket.send(&settle).await.unwrap()));
    let mut lead = redis::cmd("REPLICAOF");
    let lead = lead.arg("NO").arg("ONE");
    other.send_packed_command(lead).await.unwrap();
    let answers = join_all(sendings).await;
    assert!(answers.iter().all(|it| is_refused(it.as_ref().unwrap())));
    assert!(!world.exists(&keys()[CALLERS - 1]).await);
}

#[tokio::test]
async fn full_batches_do_not_wait_for_the_answers_to_earlier_ones() {
    let world = World::start().await;
    let keys: Vec<String> = (0..1_000).map(|number| format!("l{number}")).collect();
    let commands: Vec<Cmd> = keys.iter().map(|key| acquire(key)).collect();
    world.server.pause();
    let sendings = world.begin(&commands);
    let batches = world.socket.batches.as_ref().unwrap();
    // More than two batches, and less than one that may still wait.
    eventually(SOON, "full batches are sent", async || {
        batches.waiting() < 64
    })
    .await;
    assert!(batches.waiting() > 0, "the server answers");
    world.server.resume();
    let answers = join_all(sendings).await;
    assert!(answers.into_iter().all(|it| it.unwrap() == Value::Nil));
}

/// One worker, so that no other one takes the task of the connection while the callers run.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_are_ready_at_the_same_moment_share_a_write() {
    const READY: usize = 16;
    let server = RedisServer::start().await;
    let client = redis::Client::open(server.url()).unwrap();
    let ConnectionAddr::Tcp(host, port) = client.get_connection_info().addr() else {
        panic!("the server has no address of TCP")
    };
    let writes = Arc::new(AtomicUsize::new(0));
    let stream = TcpStream::connect((host.as_str(), *port)).await.unwrap();
    let counted = writes.clone();
    let stream = InspectWriter::new(stream, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let settings = client.get_connection_info().redis_settings();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let opened = MultiplexedConnection::new_with_config(settings, stream, config).await;
    let (multiplexed, driver) = opened.unwrap();
    let rounds = async move {
        tokio::spawn(driver);
        for socket in [
            Socket::unbatched(multiplexed.clone()),
            Socket::batched(multiplexed),
        ] {
            let socket = Arc::new(socket);
            let mut counts = Vec::new();
            for _ in 0..20 {
                let before = writes.load(Ordering::Relaxed);
                // The worker runs none of them before it waits here for the first.
                let ping = |_| {
                    let socket = socket.clone();
                    tokio::spawn(async move { socket.send(&redis::cmd("PING")).await.unwrap() })
                };
                let callers: Vec<_> = (0..READY).map(ping).collect();
                for caller in callers {
                    caller.await.unwrap();
                }
                counts.push(writes.load(Ordering::Relaxed) - before);
            }
            // The kernel may stop the callers in the middle of a round. The first round begins with a new task.
            let fewest = counts[1..].iter().min();
            assert!(
                fewest <= Some(&3),
                "the writes of {READY} callers: {counts:?}"
            );
        }
    };
    let rounds = tokio::time::timeout(SOON, tokio::spawn(rounds)).await;
    rounds.expect("each caller is answered").unwrap();
}
