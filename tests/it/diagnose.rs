//! What a client finds of how its server is set up: each finding by a server that is set up so, and
//! none by one that is well.

mod clusters;
mod log;
mod permissions;
mod servers;

use lockdog::Client;
use lockdog::report::{Finding, FindingKind};

use crate::support::prelude::{SOON, ms};
use crate::support::server::ServerBuilder;
use crate::support::{Binary, RedisServer};

/// Every server that is tested.
const SERVERS: [Binary; 3] = [Binary::Redis7, Binary::Redis62, Binary::Valkey9];

/// A server of this kind with which nothing is wrong.
fn well_set_up(binary: Binary) -> ServerBuilder {
    RedisServer::builder().binary(binary).persistent()
}

async fn findings(client: &Client) -> Vec<Finding> {
    let diagnosis = client.diagnose().await.expect("the server answers");
    diagnosis.findings().to_vec()
}

/// What a new client of this server finds wrong, or cannot find out.
async fn kinds_at(url: &str) -> Vec<(FindingKind, bool)> {
    let client = Client::connect(url).await.expect("it runs");
    let found = findings(&client).await;
    client.shutdown().await;
    found.iter().map(|it| (it.kind, it.is_known)).collect()
}
