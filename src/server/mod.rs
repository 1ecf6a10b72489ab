//! One deployment of Redis: a standalone server, a master that sentinels monitor, or a cluster.
//!
//! All layers above say what to run. Only this module knows connections and their failures.

mod access;
mod ack;
mod acknowledge;
mod address;
mod addressee;
mod background_connection;
mod call;
mod callers;
mod caught;
mod cluster;
mod connection;
mod connection_slot;
mod connector;
mod connector_calls;
mod context;
mod data_loss;
mod endpoint;
mod failure;
mod followers;
mod health;
mod identity;
mod judge;
mod login;
mod master_term;
mod membership;
mod node;
mod nodes;
mod observed;
mod opening;
mod peer;
mod permit;
mod pubsub;
mod replica_count;
mod route;
mod run_id;
mod sent;
mod sentinel;
mod shown;
mod single_flight;
mod socket;
mod subscriber;
mod suspicion;
#[cfg(test)]
mod testing;
mod tls;
mod user_connector;
mod user_pool;
mod wire;

pub use access::Protocol;
pub(crate) use ack::{PendingWrite, Unacknowledged};
pub use ack::{ReplicaAck, Replicas};
pub(crate) use address::Address;
pub(crate) use addressee::Addressee;
pub(crate) use connection::Connection;
pub use connector::{Connector, Time, Transport};
pub(crate) use context::Context;
pub(crate) use data_loss::DataLoss;
#[cfg(any(test, lockdog_bench))]
pub(crate) use endpoint::Endpoint;
pub(crate) use failure::Failure;
pub use login::Credentials;
pub(crate) use login::{CredentialSource, Logins};
pub(crate) use node::Node;
pub(crate) use nodes::Server;
pub(crate) use peer::Peer;
pub(crate) use permit::{Permits, SendingPermit};
pub(crate) use route::Route;
pub(crate) use sent::{Sent, TimeBox};
pub(crate) use subscriber::Subscriber;
pub use tls::TlsSettings;
pub(crate) use user_pool::UserPool;
