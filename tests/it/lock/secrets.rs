//! A password is in nothing that may be written down.

use lockdog::Client;

use super::ms;
use crate::support::{Data, Logs, RedisServer, eventually, logs};

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
            let client = Client::builder()
                .url(server.url())
                .command_timeout(ms(300))
                .watchdog_lease(ms(900))
                .build()
                .await
                .unwrap();
            let guard = client.lock("l").lock().await.unwrap();
            texts.push(format!(
                "{client:?} {guard:?} {:?}",
                client.lock("l").lock()
            ));
            // Every connection breaks, is opened again, and the data is gone.
            server.restart(Data::Lost).await;
            let told = tokio::time::timeout(super::SOON, guard.lost())
                .await
                .unwrap();
            texts.push(format!("{told} {told:?}"));
            server.kill();
            let error = client.lock("m").lock().await.unwrap_err();
            texts.push(format!("{error} {error:?}"));
            texts.push(format!("{:?}", client.shutdown().await));
            let troubled = async || {
                logs.lines()
                    .iter()
                    .any(|line| line.text.contains("failure="))
            };
            eventually(super::SOON, "the trouble was logged", troubled).await;
            texts.extend(logs.lines().into_iter().map(|line| line.text));
            assert!(texts.len() > 20, "{texts:?}");
            for text in texts {
                assert!(!text.contains(SECRET), "{text}");
            }
        },
    );
}

const SECRET: &str = "hunter2";
