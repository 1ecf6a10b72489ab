//! A plain connection that shows the replies one by one.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::resp::Reply;

#[derive(Debug)]
pub(crate) struct Wire {
    buffer: Vec<u8>,
    stream: TcpStream,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            buffer: Vec::new(),
            stream,
        }
    }

    pub(crate) async fn write(&mut self, requests: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(requests).await
    }

    pub(crate) async fn next(&mut self) -> std::io::Result<Reply> {
        loop {
            if let Some(reply) = Reply::parse(&self.buffer) {
                self.buffer.drain(..reply.length);
                return Ok(reply);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
