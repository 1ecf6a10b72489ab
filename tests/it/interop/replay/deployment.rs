//! The servers that a recording was made on, and our clients of them.

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, ClientBuilder};

use super::facts::MASTER;
use super::recording::Scenario;
use crate::support::{Cluster, Redis, RedisServer, Replicated};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    One,
    /// Independent servers, and a client of ours for each client and server of the recording.
    Three,
    /// Three masters.
    Cluster,
    /// A master and a replica.
    Replicated,
}

impl Deployment {
    /// What the recordings call the servers. The recordings of one server do not name it.
    pub(super) fn servers(self) -> &'static [&'static str] {
        match self {
            Self::One => &[""],
            Self::Three | Self::Cluster => &["s1", "s2", "s3"],
            Self::Replicated => &[MASTER, "s2"],
        }
    }

    /// The clients that exist when a scenario begins, in the order of their numbers in the recording.
    pub(super) fn clients(self) -> &'static [&'static str] {
        match self {
            Self::Three => &["A1", "A2", "A3"],
            Self::One | Self::Cluster | Self::Replicated => &["A", "B"],
        }
    }
}

/// The running servers.
pub(super) enum Servers {
    Independent(Vec<RedisServer>),
    Cluster(Cluster),
    Replicated(Box<Replicated>),
}

impl Servers {
    pub(super) async fn start(deployment: Deployment) -> Self {
        match deployment {
            Deployment::One => Self::Independent(vec![RedisServer::start().await]),
            Deployment::Three => {
                let mut servers = Vec::new();
                for _ in 0..3 {
                    servers.push(RedisServer::start().await);
                }
                Self::Independent(servers)
            }
            Deployment::Cluster => Self::Cluster(Cluster::start(3, 0).await),
            Deployment::Replicated => Self::Replicated(Box::new(Replicated::start(1).await)),
        }
    }

    /// In the order of their names.
    pub(super) fn all(&self) -> Vec<&RedisServer> {
        match self {
            Self::Independent(servers) => servers.iter().collect(),
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.server).collect(),
            Self::Replicated(all) => std::iter::once(&all.master).chain(&all.replicas).collect(),
        }
    }

    /// The master that this server follows.
    pub(super) fn master_of(&self, server: usize) -> Option<Redis> {
        match self {
            Self::Replicated(all) if server > 0 => Some(all.redis.clone()),
            _ => None,
        }
    }

    /// `A2` is the client of the second server; `A` that of the only server or of the cluster.
    fn url_for(&self, client: &str) -> String {
        match (self, server_number(client)) {
            (Self::Independent(servers), number) => servers[number.unwrap_or(1) - 1].url(),
            (Self::Cluster(cluster), _) => cluster.url(),
            (Self::Replicated(all), _) => all.master.url(),
        }
    }

    pub(super) async fn client(&self, scenario: &Scenario, name: &str) -> Client {
        let mut builder = Client::builder()
            .url(self.url_for(name))
            .watchdog_lease(scenario.watchdog_lease())
            .fair_wait(scenario.fair_wait())
            .poll_cap(scenario.poll_cap());
        if scenario.name == "name_mapper" {
            builder = builder.name_mapper(|name| format!("app:{name}"));
        }
        if scenario.deployment == Deployment::Replicated {
            builder = waiting_for_replicas(builder, scenario);
        }
        builder.build().await.expect("the server is there")
    }
}

/// The settings that correspond to those of the recorded client. Redisson waits for one second.
fn waiting_for_replicas(builder: ClientBuilder, scenario: &Scenario) -> ClientBuilder {
    let timeout = Duration::from_secs(1) * scenario.slower();
    let ack = if scenario.shows.contains("useSingleServer") {
        ReplicaAck::Off
    } else if scenario.shows.contains("checkLockSyncedSlaves=false") {
        ReplicaAck::best_effort().timeout(timeout)
    } else {
        ReplicaAck::require(Replicas::Count(1)).timeout(timeout)
    };
    // A wait for replicas is never longer than this.
    builder.replica_ack(ack).command_timeout(timeout * 2)
}

/// The 2 of `A2`.
fn server_number(name: &str) -> Option<usize> {
    name.get(1..)?.parse().ok()
}
