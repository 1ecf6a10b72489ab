//! The events of connections, for observers.

use super::endpoint::Endpoint;
use super::failure::Failure;
use super::node::Node;
use super::nodes::Server;
use crate::clock::Clock;
use crate::observe::{ClientEvent, ConnectionChange, Observers, Role};

impl Endpoint {
    pub(super) fn notify(&self, role: Role, change: ConnectionChange) {
        let run = &self.identity().run;
        run.observers.notify(|| ClientEvent::Connection {
            role,
            server: run.address(),
            change,
        });
    }

    /// Reports an attempt to open a connection to the observers, and returns its result.
    pub(super) fn opened<T>(&self, role: Role, opened: Result<T, Failure>) -> Result<T, Failure> {
        self.notify(
            role,
            match &opened {
                Ok(_) => ConnectionChange::Opened,
                Err(_) => ConnectionChange::Failed,
            },
        );
        opened
    }
}

impl Node {
    /// Reports to the observers that the connection for messages is gone.
    pub(crate) fn notify_messages_gone(&self) {
        self.endpoint()
            .notify(Role::Messages, ConnectionChange::Closed);
    }
}

impl Server {
    /// They get the client's events.
    pub(crate) fn observers(&self) -> &Observers {
        &self.context.observers
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.context.clock
    }

    /// Reports to the observers that the connection for messages of the only server is gone.
    pub(crate) fn notify_messages_gone(&self) {
        if let [node] = &self.nodes()[..] {
            node.notify_messages_gone();
        }
    }
}
