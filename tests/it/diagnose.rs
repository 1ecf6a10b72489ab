//! What a client finds wrong with its server's configuration. Each finding has a server with that fault,
//! and a well-configured server has no finding.

mod clusters;
mod log;
mod permissions;
mod servers;

use lockdog::Client;
use lockdog::report::{Finding, FindingKind};

use crate::support::prelude::{SOON, ms};
use crate::support::server::ServerBuilder;
use crate::support::{Binary, RedisServer};

/// All server versions under test.
const SERVERS: [Binary; 3] = [Binary::Redis7, Binary::Redis62, Binary::Valkey9];

/// A server of this version without a fault.
fn well_set_up(binary: Binary) -> ServerBuilder {
    RedisServer::builder().binary(binary).persistent()
}

async fn findings(client: &Client) -> Vec<Finding> {
    let diagnosis = client.diagnose().await.expect("the server answers");
    diagnosis.findings().to_vec()
}

/// The findings of a new client of this server.
async fn kinds_at(url: &str) -> Vec<(FindingKind, bool)> {
    let client = Client::connect(url).await.expect("it runs");
    let found = findings(&client).await;
    client.shutdown().await;
    found.iter().map(|it| (it.kind, it.is_known)).collect()
}
