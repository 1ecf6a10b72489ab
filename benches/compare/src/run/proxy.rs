//! A proxy that lets every byte pass a millisecond late, in order: what is left of a figure when the
//! round trips are the only thing that counts.
//!
//! Threads, not tasks: the kernel wakes a thread within a tenth of a millisecond, a tokio timer within
//! one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Works until the process ends.
pub(crate) struct Proxy {
    port: u16,
}

impl Proxy {
    pub(crate) fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Err(failure) = connect(client, server) {
                    eprintln!("the proxy: {failure}");
                }
            }
        });
        Ok(Self { port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn connect(client: TcpStream, server: u16) -> Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    delay(client.try_clone()?, server.try_clone()?);
    delay(server, client);
    Ok(())
}

/// One direction; ends with either side.
fn delay(mut from: TcpStream, mut to: TcpStream) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender
                .send((Instant::now() + DELAY, buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // The other side may have gone already.
        let _ = to.shutdown(Shutdown::Both);
    });
}

const DELAY: Duration = Duration::from_millis(1);
