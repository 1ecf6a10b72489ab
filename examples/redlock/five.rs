//! Five servers that have nothing to do with each other, and what is done to them.

use redis::FromRedisValue;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpSocket;

use crate::Failure;
use crate::server::Server;

/// They are called 1 to 5.
pub(crate) struct Five {
    servers: [Option<Server>; 5],
    /// The ports of those that were killed: no other program gets them meanwhile.
    kept: [Option<TcpSocket>; 5],
    urls: Vec<String>,
}

impl Five {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let (mut servers, mut urls) = ([const { None }; 5], Vec::new());
        for place in &mut servers {
            let server = Server::start().await?;
            urls.push(server.url().to_owned());
            *place = Some(server);
        }
        Ok(Self {
            servers,
            kept: [const { None }; 5],
            urls,
        })
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Ends one as a crash does. Its data goes with it.
    pub(crate) fn kill(&mut self, number: usize) -> Result<(), Failure> {
        self.servers[number - 1] = None;
        let socket = TcpSocket::new_v4()?;
        // The server shares its port in this way, too, so it can listen there again.
        socket.set_reuseaddr(true)?;
        socket.bind(([127, 0, 0, 1], self.port(number)?).into())?;
        self.kept[number - 1] = Some(socket);
        Ok(())
    }

    /// Starts one again that was killed, at the same address and without data.
    pub(crate) async fn start_again(&mut self, number: usize) -> Result<(), Failure> {
        let server = Server::start_on(self.port(number)?).await?;
        self.servers[number - 1] = Some(server.ok_or("its port was taken by another")?);
        self.kept[number - 1] = None;
        Ok(())
    }

    /// Stops one where it is: it keeps its connections and its data, and answers nothing.
    pub(crate) fn freeze(&self, number: usize) -> Result<(), Failure> {
        self.signal(number, Signal::STOP)
    }

    pub(crate) fn resume(&self, number: usize) -> Result<(), Failure> {
        self.signal(number, Signal::CONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<(), Failure> {
        let process = self.server(number)?.process();
        Ok(kill_process(Pid::from_child(process), signal)?)
    }

    /// Asks one of them on a connection that has nothing to do with lockdog.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        number: usize,
        args: &[&str],
    ) -> Result<T, Failure> {
        self.server(number)?.ask(args).await
    }

    fn port(&self, number: usize) -> Result<u16, Failure> {
        let (_, port) = self.urls[number - 1].rsplit_once(':').ok_or("no port")?;
        Ok(port.parse()?)
    }

    fn server(&self, number: usize) -> Result<&Server, Failure> {
        let server = self.servers[number - 1].as_ref();
        server.ok_or_else(|| format!("server {number} was killed").into())
    }
}
