//! The servers in a builder's debug output, and the settings that it refuses.

use lockdog::config::TlsSettings;
use lockdog::{Client, Error};

#[test]
fn debug_output_of_a_builder_has_addresses_and_no_password() {
    let sentinels = ["redis://:hunter2@s1:26379", "redis://:hunter2@s2:26379"];
    for (builder, shown) in [
        (
            Client::builder().url("redis://ann:hunter2@host:7/3"),
            "\"host:7\"",
        ),
        (
            Client::builder().url("rediss://:hunter2@host"),
            "\"host:6379\"",
        ),
        (
            Client::builder().url("unix:///run/redis?pass=hunter2"),
            "\"/run/redis\"",
        ),
        (
            Client::builder().url("redis+sentinel://:hunter2@a,b:5/orders"),
            "\"sentinel master orders at a:26379,b:5\"",
        ),
        (
            Client::builder()
                .sentinel("orders", sentinels)
                .password("hunter2"),
            "\"sentinel master orders at s1:26379,s2:26379\"",
        ),
        (
            Client::builder().url("redis+cluster://:hunter2@a,b:5"),
            "\"cluster a:6379,b:5\"",
        ),
        (
            Client::builder().url("hunter2://hunter2"),
            "\"an invalid url\"",
        ),
        (Client::builder(), "\"none\""),
    ] {
        let builder = builder
            .sentinel_password("hunter2")
            .tls(TlsSettings::new().client_certificate("hunter2", "hunter2"));
        let text = format!("{builder:?}");
        assert!(text.contains(&format!("deployment: {shown}")), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn settings_without_effect_are_refused() {
    let server = || Client::builder().url("redis://localhost:1").lazy(true);
    for (builder, what) in [
        (server().sentinel_username("ann"), "sentinel_username"),
        (server().sentinel_password("p"), "sentinel_username"),
        (server().master_tls(true), "master_tls"),
        (server().tls(TlsSettings::new()), "tls"),
    ] {
        let error = builder.build().await.unwrap_err();
        let named = matches!(&error, Error::Invalid { what: named, .. } if *named == what);
        assert!(named, "{what}: {error}");
    }
}
