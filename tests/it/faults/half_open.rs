//! Calls on a connection that became silent: the first one times out, and a later one uses another connection.

use lockdog::{Client, Error};

use crate::support::prelude::{SOON, ms};
use crate::support::{Action, Proxy, RedisServer, until_ok};

#[tokio::test]
async fn the_connections_are_listed_again_after_a_silent_connection() {
    let call = async |client: &Client| client.connections().await.map(drop);
    assert_recovers(&["CLIENT", "LIST"], call).await;
}

#[tokio::test]
async fn a_diagnosis_works_again_after_a_silent_connection() {
    let call = async |client: &Client| client.diagnose().await.map(drop);
    assert_recovers(&["INFO", "memory"], call).await;
}

#[tokio::test]
async fn a_server_is_provisioned_after_a_silent_connection() {
    let call = async |client: &Client| client.provision().await;
    assert_recovers(&["EVALSHA"], call).await;
}

/// The connection is silent from the command that begins with these words.
async fn assert_recovers(
    words: &'static [&'static str],
    call: impl AsyncFn(&Client) -> Result<(), Error>,
) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(ms(500));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let is_it = move |args: &[String]| {
        let same = |(arg, word): (&String, &&str)| arg.eq_ignore_ascii_case(word);
        args.len() >= words.len() && args.iter().zip(words).all(same)
    };
    let silence = proxy.on(is_it, Action::DropReply);
    // On a busy machine an earlier command of the call may have no answer in time.
    let mut failed = None;
    for _ in 0..50 {
        if silence.hits() > 0 {
            break;
        }
        failed = call(&client).await.err().or(failed);
    }
    silence.wait_hits(1).await;
    let error = failed.expect("a call has no answer");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    until_ok(SOON, async || call(&client).await).await;
}
