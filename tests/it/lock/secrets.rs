//! No output contains a password.

use std::error::Error;

use lockdog::config::Protocol;
use lockdog::{Client, ClientBuilder, Owner};

use super::{SOON, ms};
use crate::support::cluster::names;
use crate::support::{Binary, Cluster, Data, Logs, RedisServer, eventually, logs, until_ok};

#[test]
fn no_password_is_in_any_debug_output_error_or_log_line() {
    logs::alone(
        "lock::secrets::no_password_is_in_any_debug_output_error_or_log_line",
        async {
            let logs = Logs::of_this_process();
            let server = RedisServer::builder().password(SECRET).start().await;
            let port = server.port();
            let mut texts = Vec::new();
            for url in [
                format!("redis://:{SECRET}x@127.0.0.1:{port}"),
                format!("redis://{SECRET}:{SECRET}@127.0.0.1:{port}"),
                format!("redis://:{SECRET}@127.0.0.1:1"),
                format!("redis://:{SECRET}@no.such.host.invalid:{port}"),
                format!("redis://:{SECRET}@127.0.0.1:{port}/{SECRET}"),
                format!("redis://:{SECRET}@127.0.0.1:noport"),
                format!("{SECRET}://127.0.0.1"),
            ] {
                let builder = Client::builder().url(&url).command_timeout(ms(500));
                texts.push(format!("{builder:?}"));
                let error = builder.build().await.unwrap_err();
                texts.push(format!("{error} {error:?}"));
            }
            let builder = Client::builder()
                .url(server.url())
                .command_timeout(ms(1_000))
                .watchdog_lease(ms(1_500));
            let client = until_ok(SOON, async || builder.clone().build().await).await;
            let guard = client.lock("l").try_lock().wait(SOON).await.unwrap();
            let guard = guard.expect("it is free");
            texts.push(format!(
                "{client:?} {guard:?} {:?}",
                client.lock("l").lock()
            ));
            // Every connection breaks and is opened again, and the data is lost.
            server.restart(Data::Lost).await;
            let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            texts.push(format!("{lost} {lost:?}"));
            server.kill();
            let error = client.lock("m").lock().await.unwrap_err();
            texts.push(format!("{error} {error:?}"));
            texts.push(format!("{:?}", client.shutdown().await));
            let troubled = async || {
                logs.lines()
                    .iter()
                    .any(|line| line.text.contains("failure="))
            };
            eventually(SOON, "the trouble was logged", troubled).await;
            texts.extend(logs.lines().into_iter().map(|line| line.text));
            assert!(texts.len() > 20, "{texts:?}");
            for text in texts {
                assert!(!text.contains(SECRET), "{text}");
            }
        },
    );
}

/// A server repeats the first arguments of an unknown command. Those of `HELLO` and `AUTH` contain a
/// password.
#[test]
fn no_password_is_in_errors_of_a_server_without_hello_or_auth() {
    logs::alone(
        "lock::secrets::no_password_is_in_errors_of_a_server_without_hello_or_auth",
        async {
            let logs = Logs::of_this_process();
            let mut texts = Vec::new();
            for binary in [Binary::Redis7, Binary::Redis62, Binary::Valkey9] {
                for missing in ["HELLO", "AUTH", "EVALSHA"] {
                    let server = RedisServer::builder().binary(binary).password(SECRET);
                    let server = match missing {
                        // The test has to authenticate, too.
                        "AUTH" => RedisServer::builder().binary(binary),
                        _ => server,
                    };
                    let server = server.without_command(missing).start().await;
                    let known = quotes(&mut texts, server.port()).await;
                    let expected = match missing {
                        // It refuses every command before it knows the user.
                        "HELLO" if binary == Binary::Valkey9 => "NOAUTH",
                        // redis-rs rewrites the error of 6.2, without "unknown command".
                        "HELLO" => "HELLO",
                        "AUTH" => "WRONGPASS",
                        _ => "EVALSHA",
                    };
                    let seen = known.iter().any(|text| text.contains(expected));
                    assert!(seen, "{binary:?} without {missing}: {known:?}");
                }
            }
            no_secret_in(&texts, &logs);
        },
    );
}

/// By default commands to a cluster use RESP2, and connections for messages use RESP3.
#[test]
fn no_password_is_in_errors_of_a_cluster_without_hello() {
    logs::alone(
        "lock::secrets::no_password_is_in_errors_of_a_cluster_without_hello",
        async {
            let logs = Logs::of_this_process();
            let mut texts = Vec::new();
            let cluster = Cluster::builder(3, 0)
                .password(SECRET)
                .without_command("HELLO")
                .start()
                .await;
            for node in &cluster.nodes {
                let user = format!("ACL SETUSER {USER} on >{SECRET} ~* &* +@all");
                node.cmd(&user).await;
            }
            let by_default = cluster.url();
            let by_user = by_default.replace(&format!(":{SECRET}@"), &format!("{USER}:{SECRET}@"));
            let name = &names("l", 1, |_| true)[0];
            for url in [&by_default, &by_user] {
                let builder = Client::builder().url(url);
                let refused = builder.clone().command_timeout(ms(1_000));
                let refused = refused.protocol(Protocol::Resp3).build().await;
                texts.push(shown(&refused.expect_err("there is no HELLO")));
                let client = builder.build().await.expect("RESP2 is there");
                let guard = client.lock(name).lock().await.expect("it is free");
                // A waiter subscribes to messages.
                let waiting = client.lock(name).lock().owner(&Owner::new());
                let waiting = tokio::spawn(async move { waiting.await });
                let refused = async || {
                    let lines = logs.lines();
                    // Each server has its own error text. Valkey asks for the password first.
                    let words = [
                        "unknown command",
                        "support HELLO",
                        "Authentication required",
                    ];
                    let of_hello = |text: &str| words.iter().any(|word| text.contains(word));
                    lines.iter().any(|line| of_hello(&line.text))
                };
                eventually(SOON, "the refusal was logged", refused).await;
                let report = client.diagnose().await.map_err(|error| shown(&error));
                texts.push(format!("{report:?}"));
                guard.unlock().await.expect("it was held");
                let guard = waiting.await.expect("no panic").expect("it is free");
                guard.unlock().await.expect("it was held");
                texts.push(format!("{client:#?}"));
                client.shutdown().await;
            }
            no_secret_in(&texts, &logs);
        },
    );
}

/// The errors of clients of a server with right and wrong passwords, by both protocols, with a pool, and of
/// a call.
async fn quotes(texts: &mut Vec<String>, port: u16) -> Vec<String> {
    let mut outputs = Vec::new();
    for user in ["", USER] {
        for wrong in ["", "x"] {
            for protocol in ["resp2", "resp3"] {
                let login = format!("{user}:{SECRET}{wrong}");
                let url = format!("redis://{login}@127.0.0.1:{port}?protocol={protocol}");
                let by_url = Client::builder().url(&url);
                let builders = [
                    by_url,
                    #[cfg(feature = "deadpool")]
                    by_pool(&url),
                ];
                for builder in builders {
                    outputs.extend(all_outputs(builder.command_timeout(ms(1_000))).await);
                }
            }
        }
    }
    texts.extend(outputs.iter().cloned());
    outputs
}

#[cfg(feature = "deadpool")]
fn by_pool(url: &str) -> ClientBuilder {
    let pool = deadpool_redis::Config::from_url(url);
    let pool = pool.builder().expect("it is a URL").max_size(4);
    let pool = pool.runtime(deadpool_redis::Runtime::Tokio1).build();
    Client::builder().pool(pool.expect("it has a runtime"))
}

/// All texts of one client.
pub(crate) async fn all_outputs(builder: ClientBuilder) -> Vec<String> {
    let mut outputs = vec![format!("{builder:?} {builder:#?}")];
    match builder.clone().build().await {
        Ok(client) => {
            let tried = client.lock("l").try_lock().await;
            outputs.extend(tried.map_err(|error| shown(&error)).err());
            let diagnosis = client.diagnose().await;
            outputs.push(diagnosis.map_or_else(|error| shown(&error), |all| all.to_string()));
            outputs.push(format!("{client:?} {client:#?}"));
            client.shutdown().await;
        }
        Err(error) => outputs.push(shown(&error)),
    }
    let lazy = builder.lazy(true).build().await.expect("it is lazy");
    let tried = lazy.lock("l").try_lock().await;
    outputs.extend(tried.map_err(|error| shown(&error)).err());
    lazy.shutdown().await;
    outputs
}

/// An error and its causes, by Display and Debug.
pub(crate) fn shown(error: &dyn Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(" {error} {error:?}");
        cause = error.source();
    }
    text
}

pub(crate) fn no_secret_in(texts: &[String], logs: &Logs) {
    let logged = logs.lines();
    assert!(logged.len() > 10, "{logged:?}");
    let logged = logged.iter().map(|line| &line.text);
    for text in texts.iter().chain(logged) {
        assert!(!text.contains(SECRET), "{text}");
    }
}

const USER: &str = "ann";
pub(crate) const SECRET: &str = "hunter2";
