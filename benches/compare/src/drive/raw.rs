//! The bare protocol: what a re-entrant lock in a hash must send, and no library around it.
//!
//! Two EVALSHA on one shared connection with TCP_NODELAY. The scripts make the calls that Redisson's
//! make (its latch apart) in the same order: seven in a pair. Nothing waits and nothing is renewed.
//! With five servers all are asked at once, and all five answers are awaited.

use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo};

use crate::Result;
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Raw {
    servers: Vec<Server>,
}

/// A server that knows the scripts.
#[derive(Clone)]
pub(crate) struct Server {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    unlock: Arc<str>,
}

pub(crate) struct Named {
    servers: Vec<Server>,
    name: String,
    channel: String,
    owner: String,
}

impl Library for Raw {
    type Lock = Arc<Named>;
    type Held = Arc<Named>;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "W2" | "W3" | "W4" => Some("it cannot wait"),
            "W7-local" => Some("it counts in Redis"),
            "W5" | "W12" | "W15r" | "W15k" => Some("it has no watchdog"),
            "W8a" | "W8b" | "W8c" | "W8w" | "W9a" | "W9b" | "W9c" | "W11a" | "W11b" | "W11c"
            | "W13" => Some("it has no such kind"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let servers = try_join_all(request.urls.iter().map(|url| Server::connect(url))).await?;
        Ok(Self { servers })
    }

    fn lock(&self, name: &str) -> Arc<Named> {
        Arc::new(Named {
            servers: self.servers.clone(),
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            owner: format!("5e7a9f3c-26d1-4b8e-9c40-d1f6a83b2e75:{name}"),
        })
    }

    async fn acquire(lock: &Arc<Named>) -> Result<Arc<Named>> {
        match &lock.servers[..] {
            [server] => server.acquire(lock).await?,
            servers => {
                try_join_all(servers.iter().map(|server| server.acquire(lock))).await?;
            }
        }
        Ok(lock.clone())
    }

    async fn unlock(held: Arc<Named>) -> Result<()> {
        match &held.servers[..] {
            [server] => server.unlock(&held).await?,
            servers => {
                try_join_all(servers.iter().map(|server| server.unlock(&held))).await?;
            }
        }
        Ok(())
    }

    async fn close(self) {}
}

impl Server {
    async fn connect(url: &str) -> Result<Self> {
        let mut connection = connect(url).await?;
        let acquire: String = load(ACQUIRE).query_async(&mut connection).await?;
        let unlock: String = load(UNLOCK).query_async(&mut connection).await?;
        Ok(Self {
            connection,
            acquire: acquire.into(),
            unlock: unlock.into(),
        })
    }

    async fn acquire(&self, lock: &Named) -> Result<()> {
        let mut command = evaluate(&self.acquire, 1);
        command.arg(&lock.name).arg(LEASE_MS).arg(&lock.owner);
        let ttl: Option<i64> = command.query_async(&mut self.connection.clone()).await?;
        match ttl {
            None => Ok(()),
            Some(ttl) => Err(format!("{} is held for {ttl} ms more", lock.name).into()),
        }
    }

    async fn unlock(&self, lock: &Named) -> Result<()> {
        let mut command = evaluate(&self.unlock, 2);
        command.arg(&lock.name).arg(&lock.channel);
        command.arg("0").arg(LEASE_MS).arg(&lock.owner);
        let freed: Option<i64> = command.query_async(&mut self.connection.clone()).await?;
        match freed {
            Some(_) => Ok(()),
            None => Err(format!("{} is not held", lock.name).into()),
        }
    }
}

/// A connection that waits for its answers: a time limit is a lock library's business.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let settings = TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(settings);
    let client = Client::open(info)?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    Ok(connection.await?)
}

pub(crate) fn load(script: &str) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    command
}

pub(crate) fn evaluate(digest: &str, keys: usize) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(keys);
    command
}

const LEASE_MS: u32 = 30_000;

const ACQUIRE: &str = r"
local ours = redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1
if not ours then
    return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
";

const UNLOCK: &str = r"
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1
";
