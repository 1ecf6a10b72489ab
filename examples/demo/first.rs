//! The process that shows the story, act by act.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockdog::{Client, Lock};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::sleep;

use crate::Failure;
use crate::server::Server;
use crate::stage::{Stage, check, ms};

pub(crate) const LOCK: &str = "demo:report";

/// The watchdog's, short so that it is seen at work; the default is 30 s.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

pub(crate) async fn play(stage: &Stage) -> Result<(), Failure> {
    let server = Server::start().await?;
    let info: String = server.ask(&["INFO", "server"]).await?;
    let version = info.lines().find_map(|l| l.strip_prefix("redis_version:"));
    let version = version.ok_or("a server without a version")?;
    let name = match info.contains("server_name:lockdog-test") {
        true => "lockdog-test (no redis-server here)",
        false => "redis-server",
    };
    stage.redis(&format!("{name}, version {version}, at {}", server.url()));

    let client = Client::builder()
        .url(server.url())
        .watchdog_lease(LEASE)
        .build()
        .await?;
    let lock = client.lock(LOCK);

    stage.title("A lock, and the same task again");
    reentry(stage, &server, &lock).await?;
    stage.title("The watchdog keeps it");
    renewal(stage, &server, &lock).await?;
    stage.title("A second process waits, and is handed the lock by a message");
    let mut second = hand_over(stage, &server, &client, &lock).await?;
    stage.title("A lost lock is noticed");
    loss(stage, &server, &lock, &mut second).await?;
    stage.title("A clean end");
    end(stage, &server, client, second).await
}

async fn reentry(stage: &Stage, server: &Server, lock: &Lock) -> Result<(), Failure> {
    let guard = lock.lock().await?;
    stage.first(&format!("acquired {LOCK}"));
    show_count(stage, server, Some(1)).await?;

    let again = nested(lock).await?;
    stage.first("acquired it again, in a nested call of the same task");
    show_count(stage, server, Some(2)).await?;

    again.unlock().await?;
    stage.first("unlocked the inner one");
    show_count(stage, server, Some(1)).await?;

    guard.unlock().await?;
    stage.first("unlocked the outer one");
    show_count(stage, server, None).await
}

/// Knows nothing of its caller's guard.
async fn nested(lock: &Lock) -> lockdog::Result<lockdog::Guard> {
    lock.lock().await
}

async fn renewal(stage: &Stage, server: &Server, lock: &Lock) -> Result<(), Failure> {
    let guard = lock.lock().await?;
    stage.first(&format!("acquired {LOCK} without a lease of its own"));
    let full = ttl(server).await?;
    stage.redis(&format!(
        "it lives for {full} ms: the lease of this demo (30 s by default)"
    ));

    let mut lowest = full;
    let renewed = loop {
        sleep(Duration::from_millis(10)).await;
        let now = ttl(server).await?;
        if now > lowest {
            break now;
        }
        lowest = now;
    };
    stage.redis(&format!("it lives for {lowest} ms more, time runs"));
    check(lowest > 0, "the lock was gone before it was renewed")?;
    stage.redis(&format!("it lives for {renewed} ms again: renewed"));
    check(guard.is_valid(), "the guard does not know of the renewal")?;
    guard.unlock().await?;
    stage.first("unlocked");
    show_count(stage, server, None).await
}

async fn hand_over(
    stage: &Stage,
    server: &Server,
    client: &Client,
    lock: &Lock,
) -> Result<Second, Failure> {
    // With a lease of a minute nothing but our unlock can free the lock in time.
    let guard = lock.lock().lease(Duration::from_secs(60)).await?;
    stage.first("acquired with a lease of 60 s");

    let _: String = server.ask(&["CONFIG", "RESETSTAT"]).await?;
    let mut second = Second::start(server.url())?;
    second.expect("busy").await?;
    stage.second("tried it: busy, another owner has it");
    let channel = format!("redisson_lock__channel:{{{LOCK}}}");
    // Its try, and one before and one after it subscribed; then it asks no more.
    while subscribers(server, &channel).await? == 0 || calls(server, "evalsha").await? < 3 {
        sleep(Duration::from_millis(5)).await;
    }
    stage.second("waits");
    stage.redis(&format!("1 subscriber of {channel}"));
    check(calls(server, "publish").await? == 0, "a message too early")?;

    let before = Instant::now();
    guard.unlock().await?;
    let id = second.expect("acquired ").await?;
    let took = before.elapsed();
    stage.first("unlocked");
    stage.second(&format!("acquired, {} after the unlock began", ms(took)));
    let messages = calls(server, "publish").await?;
    check(
        messages == 1,
        &format!("{messages} messages handed it over"),
    )?;
    show_count(stage, server, Some(1)).await?;

    let busy = lock.try_lock().await?.is_none();
    check(busy, "both have the lock")?;
    let holder = lock.holder().await?.ok_or("no owner has the lock")?;
    let holds = holder
        .client_id()
        .is_some_and(|holder| holder.to_string() == id);
    let theirs = !holder.ours && holds;
    check(theirs && id != client.id().to_string(), "another has it")?;
    stage.first(&format!("tried it: busy, client {} has it", &id[..8]));
    Ok(second)
}

async fn loss(
    stage: &Stage,
    server: &Server,
    lock: &Lock,
    second: &mut Second,
) -> Result<(), Failure> {
    let before = Instant::now();
    let deleted: u64 = server.ask(&["DEL", LOCK]).await?;
    check(deleted == 1, "there was no key to delete")?;
    stage.redis(&format!("a client deleted the key {LOCK}"));
    let reason = second.expect("lost ").await?;
    let took = before.elapsed();
    second.expect("valid false").await?;
    stage.second(&format!("lost it: {reason}; notified after {}", ms(took)));

    let guard = lock.lock().await?;
    stage.first("acquired");
    show_count(stage, server, Some(1)).await?;
    guard.unlock().await?;
    stage.first("unlocked");
    Ok(())
}

async fn end(
    stage: &Stage,
    server: &Server,
    client: Client,
    mut second: Second,
) -> Result<(), Failure> {
    second.expect("ended").await?;
    let status = second.child.wait().await?;
    check(status.success(), &format!("the second ended with {status}"))?;
    stage.second(&format!("ended with {status}"));

    let guard = client.lock("demo:left").lock().await?;
    let report = client.shutdown().await;
    check(report.released == 1, "the shutdown left a lock behind")?;
    drop(guard);
    stage.first("shut down, and gave back the one lock that it still held");

    let keys: u64 = server.ask(&["DBSIZE"]).await?;
    let channels: Vec<String> = server.ask(&["PUBSUB", "CHANNELS"]).await?;
    // The server sees the end of a connection a moment later than the one who ended it.
    while clients(server).await? > 1 {
        sleep(Duration::from_millis(5)).await;
    }
    check(keys == 0 && channels.is_empty(), "something was left")?;
    stage.redis("no key, no channel, no connection but this one");
    Ok(())
}

/// What the server has for the lock: one field with this count and a TTL, or nothing.
async fn show_count(stage: &Stage, server: &Server, wanted: Option<u64>) -> Result<(), Failure> {
    let hash: BTreeMap<String, u64> = server.ask(&["HGETALL", LOCK]).await?;
    match (wanted, hash.first_key_value()) {
        (None, None) => stage.redis("no such key: free"),
        (Some(wanted), Some((field, count))) => {
            check(hash.len() == 1, "the lock has two holders")?;
            check(*count == wanted, &format!("{count}, not {wanted} holds"))?;
            stage.redis(&format!("{LOCK} = {{ {field}: {count} }}"));
            check(ttl(server).await? > 0, "the key has no TTL")?;
        }
        (wanted, is) => return Err(format!("{is:?} in place of count {wanted:?}").into()),
    }
    Ok(())
}

async fn ttl(server: &Server) -> Result<i64, Failure> {
    server.ask(&["PTTL", LOCK]).await
}

async fn subscribers(server: &Server, channel: &str) -> Result<u64, Failure> {
    let (_, count): (String, u64) = server.ask(&["PUBSUB", "NUMSUB", channel]).await?;
    Ok(count)
}

/// How often a command was called since the statistics were reset.
async fn calls(server: &Server, command: &str) -> Result<u64, Failure> {
    let info: String = server.ask(&["INFO", "commandstats"]).await?;
    let line = format!("cmdstat_{command}:calls=");
    let calls = info
        .lines()
        .find_map(|l| l.strip_prefix(&line)?.split(',').next());
    Ok(calls.map_or(Ok(0), str::parse)?)
}

async fn clients(server: &Server) -> Result<usize, Failure> {
    let list: String = server.ask(&["CLIENT", "LIST"]).await?;
    Ok(list.lines().count())
}

/// The other process and what it says.
struct Second {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Second {
    fn start(url: &str) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("it has no output")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self { child, lines })
    }

    /// Its next line must begin with this; answers the rest.
    async fn expect(&mut self, wanted: &str) -> Result<String, Failure> {
        let line = self.lines.next_line().await?;
        let line = line.ok_or_else(|| format!("the second ended before it said {wanted:?}"))?;
        let rest = line.strip_prefix(wanted);
        let rest = rest.ok_or_else(|| format!("the second said {line:?}, not {wanted:?}"))?;
        Ok(rest.to_owned())
    }
}
