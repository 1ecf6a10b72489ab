//! Private Redis servers.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use crate::Result;

/// A server with nothing on disk; ended when dropped.
pub(crate) struct Server {
    process: Child,
    port: u16,
    /// The core it is bound to.
    core: Option<usize>,
    options: &'static [&'static str],
    connection: Connection,
    /// Where it would write, if it did.
    folder: TempDir,
}

impl Server {
    pub(crate) fn start(core: Option<usize>) -> Result<Self> {
        Self::start_with(core, &[])
    }

    fn start_with(core: Option<usize>, options: &'static [&'static str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Free now, and another program is unlikely to take it.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (process, connection) = launch(port, core, &folder, options)?;
        Ok(Self {
            process,
            port,
            core,
            options,
            connection,
            folder,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query(&mut self.connection)?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        Ok(line.unwrap_or("unknown").to_owned())
    }

    pub(crate) fn clear(&mut self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").query(&mut self.connection)?)
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Undoes a fault: a frozen one continues, a killed one starts again, empty, on the same port.
    pub(crate) fn heal(&mut self) -> Result<()> {
        if self.process.try_wait()?.is_none() {
            return self.signal(Signal::CONT);
        }
        (self.process, self.connection) = launch(self.port, self.core, &self.folder, self.options)?;
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed before; it has nothing to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The masters of a new cluster. None has a replica.
pub(crate) fn cluster(masters: u16, core: Option<usize>) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..masters {
        servers.push(Server::start_with(core, &["--cluster-enabled", "yes"])?);
    }
    let first = servers.first().map(Server::port);
    let mut from = 0;
    for (i, server) in (1..).zip(&mut servers) {
        let end = SLOTS / masters * i + if i == masters { SLOTS % masters } else { 0 };
        let mut slots = redis::cmd("CLUSTER");
        let slots = slots.arg("ADDSLOTSRANGE").arg(from).arg(end - 1);
        slots.query::<()>(server.connection())?;
        from = end;
        let mut meet = redis::cmd("CLUSTER");
        let meet = meet.arg("MEET").arg("127.0.0.1").arg(first);
        meet.query::<()>(server.connection())?;
    }
    let patience = Instant::now() + Duration::from_secs(30);
    while !servers.iter_mut().all(|server| knows_all(server, masters)) {
        if Instant::now() > patience {
            return Err("the cluster was not complete in time".into());
        }
        sleep(Duration::from_millis(50));
    }
    Ok(servers)
}

fn knows_all(server: &mut Server, masters: u16) -> bool {
    let info: Option<String> = redis::cmd("CLUSTER")
        .arg("INFO")
        .query(server.connection())
        .ok();
    let size = format!("cluster_size:{masters}\r");
    info.is_some_and(|info| info.contains("cluster_state:ok") && info.contains(&size))
}

/// Of a cluster.
const SLOTS: u16 = 16_384;

fn launch(
    port: u16,
    core: Option<usize>,
    folder: &TempDir,
    options: &[&str],
) -> Result<(Child, Connection)> {
    let mut process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(folder.path())
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|failure| format!("redis-server: {failure}"))?;
    if let Some(core) = core {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(Some(Pid::from_child(&process)), &cores)?;
    }
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match client.get_connection() {
            Ok(connection) => return Ok((process, connection)),
            Err(failure) if Instant::now() > patience => {
                // A server that the client cannot reach must not keep running.
                let _ = process.kill();
                let _ = process.wait();
                return Err(failure.into());
            }
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
}
