//! A real server to compare with, on a unix socket in a folder of its own.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use super::LONG;
use super::resp::Connection;

pub(crate) struct Redis {
    process: Child,
    folder: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let folder = TempDir::with_prefix("lockdog-test-").expect("a folder can be made");
        let socket = folder.path().join("socket");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--daemonize", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts; tests/setup installs it");
        let server = Self { process, folder };
        let began = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed() < LONG, "the server takes no connection");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let info = server.connect().send(&["INFO", "server"]).text();
        assert!(
            info.contains("redis_version:7.0."),
            "another version: {info}"
        );
        server
    }

    pub(crate) fn connect(&self) -> Connection {
        let socket = self.folder.path().join("socket");
        Connection::new(UnixStream::connect(socket).expect("the server listens"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
