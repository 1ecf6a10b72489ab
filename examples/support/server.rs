//! A private server, and what it says: redis-server, or the one of lockdog-test where that is missing.

use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue};
use tempfile::TempDir;

use crate::Failure;

/// Runs until the value is dropped; its data goes with it.
pub(crate) struct Server {
    child: Child,
    url: String,
    redis: MultiplexedConnection,
    _data: TempDir,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, Failure> {
        for _ in 0..ATTEMPTS {
            if let Some(server) = Self::start_on(free_port()?).await? {
                return Ok(server);
            }
        }
        Err("the server does not answer".into())
    }

    /// `None` if another process took the port between the check and the server's start.
    pub(crate) async fn start_on(port: u16) -> Result<Option<Self>, Failure> {
        let data = TempDir::with_prefix("lockdog-")?;
        let spawn = |program: PathBuf| {
            Command::new(program)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--dir"])
                .arg(data.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let mut child = spawn("redis-server".into()).or_else(|error| {
            let program = test_server(&error).ok_or_else(|| {
                format!("redis-server does not start ({error}); is it installed?")
            })?;
            Ok::<_, Failure>(spawn(program)?)
        })?;
        let url = format!("redis://127.0.0.1:{port}");
        let client = redis::Client::open(url.as_str())?;
        // By default an answer has half a second, which a busy machine exceeds.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if child.try_wait()?.is_some() {
                return Ok(None);
            }
            let connected = client.get_multiplexed_async_connection_with_config(&config);
            if let Ok(redis) = connected.await {
                let server = Self {
                    child,
                    url,
                    redis,
                    _data: data,
                };
                // The server that answers on this port must be the one that we started.
                let info: String = server.ask(&["INFO", "server"]).await?;
                let ours = format!("process_id:{}\r\n", server.process().id());
                return Ok(info.contains(&ours).then_some(server));
            }
            tokio::time::sleep(PAUSE).await;
        }
        child.kill()?;
        child.wait()?;
        Ok(None)
    }

    pub(crate) fn process(&self) -> &Child {
        &self.child
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, args: &[&str]) -> Result<T, Failure> {
        let mut command = redis::cmd(args[0]);
        command.arg(&args[1..]);
        Ok(command.query_async(&mut self.redis.clone()).await?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server of lockdog-test, in place of one that is not installed, if it was built beside this.
fn test_server(error: &Error) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("serve");
    (error.kind() == ErrorKind::NotFound && beside.exists()).then_some(beside)
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// How many ports are tried.
const ATTEMPTS: usize = 60;
/// For a server that starts, and for its answers.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
