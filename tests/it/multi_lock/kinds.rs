//! Members of other kinds than the plain lock. Each acquires by the command of its kind.

mod basics;
mod cancelled;
mod exclusion;
mod fair;
mod interop;
mod lost;

use lockdog::{Client, Lock, MultiLock, Value};

use super::Fixture;

/// A kind of lock that a multi lock may have as a member.
#[derive(Clone, Copy)]
struct MemberKind {
    name: &'static str,
    /// The member of this name.
    lock: fn(&Client, &str) -> Lock,
    /// A lock of this name that makes the member busy.
    conflicting: fn(&Client, &str) -> Lock,
}

impl MemberKind {
    /// A multi lock of a plain lock, a member of this kind, and a plain lock of another server.
    fn among_others(&self, clients: &[Client]) -> MultiLock {
        MultiLock::new([
            clients[0].lock("a"),
            (self.lock)(&clients[0], MEMBER),
            clients[1].lock("z"),
        ])
    }
}

const KINDS: [MemberKind; 7] = [
    MemberKind {
        name: "fair",
        lock: |client, name| client.fair_lock(name),
        conflicting: |client, name| client.fair_lock(name),
    },
    MemberKind {
        name: "non-reentrant fair",
        lock: |client, name| client.non_reentrant_fair_lock(name),
        conflicting: |client, name| client.fair_lock(name),
    },
    MemberKind {
        name: "fenced",
        lock: fenced,
        conflicting: |client, name| client.lock(name),
    },
    MemberKind {
        name: "read",
        lock: read,
        conflicting: write,
    },
    MemberKind {
        name: "write",
        lock: write,
        conflicting: read,
    },
    MemberKind {
        name: "group",
        lock: values,
        conflicting: values,
    },
    MemberKind {
        name: "non-reentrant",
        lock: |client, name| client.non_reentrant_lock(name),
        conflicting: |client, name| client.lock(name),
    },
];

fn fenced(client: &Client, name: &str) -> Lock {
    client.fenced_lock(name)
}

fn read(client: &Client, name: &str) -> Lock {
    client.read_write_lock(name).read().into()
}

fn write(client: &Client, name: &str) -> Lock {
    client.read_write_lock(name).write().into()
}

/// Two values of a group of this name.
fn values(client: &Client, name: &str) -> Lock {
    let values = ["Jack", "Mary"].map(|value| Value::kryo5(value).expect("it is short"));
    client.group_lock(name, values)
}

/// One member of each kind, on two servers.
fn mixed(clients: &[Client]) -> Vec<Lock> {
    vec![
        clients[0].fair_lock("fair"),
        clients[1].fair_lock("fair"),
        clients[0].lock("plain"),
        clients[0].lock("plain2"),
        clients[1].spin_lock("spin"),
        clients[0].fenced_lock("fenced"),
        read(&clients[1], "read"),
        write(&clients[0], "write"),
        values(&clients[1], "group"),
    ]
}

/// The member whose kind differs.
const MEMBER: &str = "m";
