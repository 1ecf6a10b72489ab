//! Ports for servers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::TcpListener;
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

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
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
            let socket = TcpSocket::new_v4().expect("a socket can be made");
            let any = ([127, 0, 0, 1], 0).into();
            socket.bind(any).expect("some port is free");
            socket
        })
    });
    bound
        .each_ref()
        .map(|it| it.local_addr().expect("it is bound").port())
}

const FIRST_PORT: u16 = 10_240;
const PORTS: u16 = 22_000;
