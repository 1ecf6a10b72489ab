//! A service that takes the lock: five clients, and the one lock that their locks make.

use std::time::Duration;

use lockdog::error::{Instance, InstanceState};
use lockdog::{Client, Guard, RedLock};

use crate::Failure;
use crate::five::Five;

pub(crate) const NAME: &str = "redlock:report";

/// The watchdog's, short so that a loss is seen, and long for a busy machine; the default is 30 s.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// A server that came back without its data counts after this time: then every earlier lease is over,
/// with 1 % and 2 s for clocks.
pub(crate) const QUARANTINE: Duration = Duration::from_millis(6000 + 60 + 2000);

pub(crate) struct Service {
    clients: Vec<Client>,
    pub(crate) lock: RedLock,
}

impl Service {
    pub(crate) async fn start(five: &Five) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for url in five.urls() {
            let client = Client::builder().url(url).watchdog_lease(LEASE);
            clients.push(client.build().await?);
        }
        let locks = clients.iter().map(|client| client.lock(NAME));
        // No client takes the lock for longer, so a server that lost its data need not be left out for longer.
        let lock = RedLock::new(locks).max_lease(LEASE);
        Ok(Self { clients, lock })
    }

    /// The name of a hold in Redis begins with this, on each of the servers.
    pub(crate) fn id_on(&self, number: usize) -> String {
        self.clients[number - 1].id().to_string()
    }

    pub(crate) async fn shutdown(self) {
        for client in &self.clients {
            client.shutdown().await;
        }
    }
}

/// The servers in a report whose state is like this.
pub(crate) fn like(instances: &[Instance], is: fn(&InstanceState) -> bool) -> Vec<usize> {
    let numbered = (1..).zip(instances);
    let found = numbered.filter(|(_, instance)| is(&instance.state));
    found.map(|(number, _)| number).collect()
}

pub(crate) fn acquired(guard: &Guard) -> Vec<usize> {
    like(&guard.instances(), |state| {
        matches!(state, InstanceState::Acquired)
    })
}

pub(crate) fn quarantined(guard: &Guard) -> Vec<usize> {
    like(&guard.instances(), |state| {
        matches!(state, InstanceState::Quarantined { .. })
    })
}
