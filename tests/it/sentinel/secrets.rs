//! No error, log line or debug output contains the password of the sentinels or the master.

use lockdog::config::Protocol;
use lockdog::{Client, Owner};

use super::ms;
use crate::lock::secrets::{SECRET, all_outputs, no_secret_in, shown};
use crate::support::sentinels::MASTER;
use crate::support::{Action, Logs, Proxy, RedisServer, Sentinels, logs, named};
use crate::turn::answered;

/// A server repeats the first arguments of an unknown command in its error. For the master a real
/// server does that. A sentinel cannot disable a command, so a proxy answers in its place.
#[test]
fn no_password_is_in_errors_of_sentinels_and_masters_without_hello_or_auth() {
    logs::alone(
        "sentinel::secrets::no_password_is_in_errors_of_sentinels_and_masters_without_hello_or_auth",
        async {
            let logs = Logs::of_this_process();
            let mut texts = Vec::new();
            for missing in ["HELLO", "AUTH"] {
                let server = || RedisServer::builder().without_command(missing);
                let all = Sentinels::of_servers(server).await;
                let password = format!(">{SECRET}");
                for server in &all.servers {
                    let user = ["ACL", "SETUSER", USER, "on", &password, "~*", "&*", "+@all"];
                    server.redis().await.cmd(&user).await;
                }
                // The error of redis-rs for a refused AUTH does not contain the server's text.
                let expected = if missing == "AUTH" {
                    "WRONGPASS"
                } else {
                    missing
                };
                let outputs = of_master(&all, missing).await;
                let quoted = outputs.iter().filter(|it| it.contains(expected)).count();
                assert!(quoted >= 3, "{missing}: {outputs:#?}");
                texts.extend(outputs);
                let outputs = of_sentinels(&all, missing).await;
                let quoted = outputs.iter().filter(|it| it.contains(expected)).count();
                assert!(quoted >= 3, "{missing}: {outputs:#?}");
                texts.extend(outputs);
            }
            no_secret_in(&texts, &logs);
        },
    );
}

/// The errors of clients at a master without the login command, and at one with it, with right and
/// wrong passwords.
async fn of_master(all: &Sentinels, missing: &str) -> Vec<String> {
    let builder = || Client::builder().url(all.url()).command_timeout(ms(1_000));
    let mut outputs = Vec::new();
    for user in ["default", USER] {
        for wrong in ["", "x"] {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let password = format!("{SECRET}{wrong}");
                let builder = builder().username(user).password(password);
                outputs.extend(all_outputs(builder.protocol(protocol)).await);
            }
        }
    }
    if missing == "HELLO" {
        // The client is logged in and has a waiter that subscribes.
        let builder = Client::builder().url(all.url());
        let builder = builder.username(USER).password(SECRET);
        let client = builder.build().await.expect("RESP2 is there");
        let guard = client.lock("l").lock().await.expect("it is free");
        let waiting = answered(async || {
            let waiting = client.lock("l").try_lock().wait(ms(1_500));
            waiting.owner(&Owner::new()).await
        });
        assert!(waiting.await.is_none());
        outputs.push(format!("{client:#?} {guard:?}"));
        guard.unlock().await.expect("it was held");
        client.shutdown().await;
    }
    outputs
}

/// The errors of clients at sentinels without the command, with the texts of two server generations.
async fn of_sentinels(all: &Sentinels, missing: &str) -> Vec<String> {
    let mut outputs = Vec::new();
    let protocol = if missing == "HELLO" { "resp3" } else { "resp2" };
    for quote in ['\'', '`'] {
        let mut proxies = Vec::new();
        for sentinel in &all.sentinels {
            let proxy = Proxy::to_port(sentinel.port()).await;
            let words = Action::ReplyWith(without(missing, quote));
            proxy.on(named(missing), words).always();
            proxies.push(proxy);
        }
        let url = |it: &Proxy| {
            let port = it.port();
            format!("redis://:{SECRET}@127.0.0.1:{port}?protocol={protocol}")
        };
        let builder = Client::builder().sentinel(MASTER, proxies.iter().map(url));
        let builder = builder.command_timeout(ms(1_000));
        outputs.extend(all_outputs(builder.clone()).await);
        let by_setting = builder.sentinel_password(SECRET).password(SECRET);
        let refused = by_setting.build().await;
        outputs.push(shown(
            &refused.expect_err("the sentinels refuse every user"),
        ));
    }
    outputs
}

/// The error of servers for an unknown command, with the arguments that were sent.
fn without(command: &str, quote: char) -> String {
    let arguments = match command {
        "HELLO" => vec!["3", "AUTH", "default", SECRET],
        _ => vec![SECRET],
    };
    let quoted = arguments.iter().map(|it| format!("{quote}{it}{quote}"));
    let quoted: Vec<_> = quoted.collect();
    format!(
        "-ERR unknown command {quote}{command}{quote}, with args beginning with: {}",
        quoted.join(" ")
    )
}

const USER: &str = "ann";
