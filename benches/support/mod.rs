//! What the benchmarks share.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::IntoConnectionInfo;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;

/// A server of its own, on loopback and without files; ended when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    pub(crate) connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let url = format!("redis://127.0.0.1:{port}");
        let info = url.as_str().into_connection_info().expect("it is a URL");
        // As lockdog does: what is small leaves at once.
        let nodelay = TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(nodelay)).expect("it is a URL");
        let connection = loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => break connection,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        Self {
            process,
            url,
            connection,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
