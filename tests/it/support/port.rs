//! Ports for servers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// Below the range the kernel gives to outgoing connections, so that a server's port stays free
/// while it is down.
/// Each call within this process gives another port; a random start keeps parallel processes apart.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = RandomState::new().hash_one(std::process::id()) as u16;
    let _ = NEXT.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + step % PORTS;
        if is_free(port) {
            return port;
        }
    }
}

/// Whether no server listens at the port, and none is to be started there again (`keep`).
pub(crate) fn is_free(port: u16) -> bool {
    // A socket without SO_REUSEADDR can be bound only where no other socket is.
    socket().bind(address(port)).is_ok()
}

/// Keeps the port of a server that was killed: no other server of a test takes it. The server itself can listen
/// there again, because it shares the port as this socket does. `None` if it is in use.
pub(crate) fn keep(port: u16) -> Option<TcpSocket> {
    let socket = socket();
    let shared = socket.set_reuseaddr(true);
    shared.expect("a socket can share its port");
    socket.bind(address(port)).ok()?;
    Some(socket)
}

/// A port without a listener at which no other test can start a server.
pub(crate) fn dead_port() -> u16 {
    dead_ports()[0]
}

pub(crate) fn dead_ports() -> [u16; 2] {
    static BOUND: OnceLock<[TcpSocket; 2]> = OnceLock::new();
    let bound = BOUND.get_or_init(|| {
        [(); 2].map(|()| {
            // It is bound and does not listen, so the kernel refuses connections.
            let socket = socket();
            socket.bind(address(0)).expect("some port is free");
            socket
        })
    });
    bound
        .each_ref()
        .map(|it| it.local_addr().expect("it is bound").port())
}

fn socket() -> TcpSocket {
    TcpSocket::new_v4().expect("a socket can be made")
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

const FIRST_PORT: u16 = 10_240;
const PORTS: u16 = 22_000;
