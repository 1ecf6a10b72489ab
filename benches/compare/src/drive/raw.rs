//! The bare protocol: what a lock must send, and no library around it.
//!
//! Two EVALSHA on one shared connection with TCP_NODELAY. Nothing waits and nothing is renewed.
//! With five servers all are asked at once, and all five answers are awaited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Value};

use crate::Result;
use crate::drive::bare_scripts::{Digests, Kind, Named};
use crate::drive::crew::{PERMITS, names};
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Raw {
    servers: Vec<Server>,
    kind: Kind,
    /// How many owners have a lock.
    owners: AtomicU64,
}

/// A server that knows the scripts.
#[derive(Clone)]
pub(crate) struct Server {
    connection: MultiplexedConnection,
    digests: Arc<Digests>,
}

pub(crate) struct Owned {
    servers: Vec<Server>,
    named: Named,
}

impl Library for Raw {
    type Lock = Arc<Owned>;
    type Held = Arc<Owned>;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "W2" | "W3" | "W4" | "W8a" | "W8b" | "W8d" | "W8w" | "W9b" | "W9c" | "W11a"
            | "W11b" | "W13" | "W16" => Some("it cannot wait"),
            "W7-local" => Some("it counts in Redis"),
            "W5" | "W12" | "W15r" | "W15k" => Some("it has no watchdog"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let kind = Kind::of(request);
        let servers = request.urls.iter().map(|url| Server::connect(url, kind));
        let servers = try_join_all(servers).await?;
        if let (Kind::Semaphore, Some(server)) = (kind, servers.first()) {
            for name in names(request) {
                let mut set = redis::cmd("SET");
                let set = set.arg(name).arg(PERMITS);
                set.query_async::<()>(&mut server.connection.clone())
                    .await?;
            }
        }
        Ok(Self {
            servers,
            kind,
            owners: AtomicU64::new(0),
        })
    }

    fn lock(&self, name: &str) -> Arc<Owned> {
        let number = self.owners.fetch_add(1, Ordering::Relaxed);
        Arc::new(Owned {
            servers: self.servers.clone(),
            named: Named::new(self.kind, name, number),
        })
    }

    async fn acquire(lock: &Arc<Owned>) -> Result<Arc<Owned>> {
        match &lock.servers[..] {
            [server] => server.acquire(&lock.named).await?,
            servers => {
                try_join_all(servers.iter().map(|server| server.acquire(&lock.named))).await?;
            }
        }
        Ok(lock.clone())
    }

    async fn unlock(held: Arc<Owned>) -> Result<()> {
        match &held.servers[..] {
            [server] => server.unlock(&held.named).await?,
            servers => {
                try_join_all(servers.iter().map(|server| server.unlock(&held.named))).await?;
            }
        }
        Ok(())
    }

    async fn close(self) {}
}

impl Server {
    async fn connect(url: &str, kind: Kind) -> Result<Self> {
        let mut connection = connect(url).await?;
        let [acquire, unlock] = kind.scripts();
        let acquire: String = load(acquire).query_async(&mut connection).await?;
        let unlock: String = load(unlock).query_async(&mut connection).await?;
        Ok(Self {
            connection,
            digests: Arc::new(Digests { acquire, unlock }),
        })
    }

    async fn acquire(&self, lock: &Named) -> Result<()> {
        let command = lock.acquire(&self.digests);
        let answer: Value = command.query_async(&mut self.connection.clone()).await?;
        match lock.refusal(&answer) {
            None => Ok(()),
            Some(why) => Err(why.into()),
        }
    }

    async fn unlock(&self, lock: &Named) -> Result<()> {
        let command = lock.unlock(&self.digests);
        let freed: Option<i64> = command.query_async(&mut self.connection.clone()).await?;
        match freed {
            Some(_) => Ok(()),
            None => Err(format!("{} is not held", lock.name).into()),
        }
    }
}

pub(crate) fn open(url: &str) -> Result<Client> {
    let settings = TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(settings);
    Ok(Client::open(info)?)
}

/// A connection that waits for its answers: a time limit is a lock library's business.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let client = open(url)?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    Ok(connection.await?)
}

pub(crate) fn load(script: &str) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    command
}
