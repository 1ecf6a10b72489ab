//! Certificates of the user's own, for servers and sentinels, and those that must be refused.

use std::fs::{self, File};
use std::future::IntoFuture;
use std::process::{Command, Stdio};

use lockdog::config::TlsSettings;
use lockdog::{Client, ClientBuilder, Error, Owner, Unlocked};
use tempfile::TempDir;

use super::{SOON, ms, works};
use crate::support::authority::Certified;
use crate::support::cluster::slot;
use crate::support::process::{self, Process};
use crate::support::{Authority, Binary, Cluster, RedisServer, eventually, free_port};

/// The client sends its certificate on the connections for commands, renewals and messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_requests_client_certificates_gets_one() {
    let authority = Authority::new();
    let (server, port) = start(&authority, "yes").await;
    let own = authority.certify(&["orders"]);
    let redis = server.redis().await;
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://{host}:{port}");
        works(
            &redis,
            &Client::builder().url(url).tls(both(&authority, &own)),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_the_right_certificates_fails() {
    let authority = Authority::new();
    let (server, port) = start(&authority, "yes").await;
    let (stranger, own) = (Authority::new(), authority.certify(&["orders"]));
    let trusting = || TlsSettings::new().root_certificates(authority.pem());
    let unknown = stranger.certify(&["orders"]);
    for (what, settings) in [
        ("no certificate", trusting()),
        ("one that no authority signed", both(&authority, &unknown)),
        ("a server that no authority signed", both(&stranger, &own)),
        (
            "the system's roots",
            TlsSettings::new().client_certificate(own.certificate.clone(), own.key.clone()),
        ),
    ] {
        let url = format!("rediss://localhost:{port}");
        let error = refused(Client::builder().url(url).tls(settings)).await;
        assert!(
            matches!(error, Error::Unavailable { .. }),
            "{what}: {error}"
        );
    }
    // The certificates are right, but the server has another name.
    let (_elsewhere, port) = start_as(&authority, "no", &authority.certify(&["example.com"])).await;
    let url = format!("rediss://localhost:{port}");
    let error = refused(Client::builder().url(url).tls(trusting())).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let redis = server.redis().await;
    assert!(!redis.commandstats().await.contains_key("evalsha"));
}

#[tokio::test]
async fn an_invalid_certificate_is_refused_at_once_and_not_shown() {
    let authority = Authority::new();
    let (own, other) = (authority.certify(&["a"]), authority.certify(&["b"]));
    let secret = own.key.lines().nth(1).expect("it has a body").to_owned();
    let cut = own.key.replace("-----END PRIVATE KEY-----", "");
    let encrypted = own.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let shows =
        |certificate: &str, key: &str| TlsSettings::new().client_certificate(certificate, key);
    for (what, settings, why) in [
        (
            "words",
            TlsSettings::new().root_certificates("words"),
            "root certificates hold no",
        ),
        (
            "a key",
            TlsSettings::new().root_certificates(own.key.clone()),
            "root certificates hold no",
        ),
        (
            "no certificate",
            shows("", &own.key),
            "client's certificate hold no",
        ),
        (
            "no key",
            shows(&own.certificate, ""),
            "must be an unencrypted private key",
        ),
        (
            "half a key",
            shows(&own.certificate, &cut),
            "must be an unencrypted private key",
        ),
        (
            "an encrypted key",
            shows(&own.certificate, &encrypted),
            "must be an unencrypted private key",
        ),
        (
            "another's key",
            shows(&own.certificate, &other.key),
            "does not match its certificate",
        ),
        (
            "swapped",
            shows(&own.key, &own.certificate),
            "hold no certificate",
        ),
    ] {
        let builder = Client::builder()
            .url("rediss://localhost:1")
            .lazy(true)
            .tls(settings.clone());
        let shown = format!("{settings:?} {builder:?}");
        let error = refused(builder).await;
        assert!(
            matches!(error, Error::Invalid { what: "tls", .. }),
            "{what}: {error}"
        );
        assert!(error.to_string().contains(why), "{what}: {error}");
        assert!(
            !format!("{shown} {error} {error:?}").contains(&secret),
            "{what}"
        );
    }
    // Certificates without TLS are refused.
    let plain = Client::builder().url("redis://localhost:1").lazy(true);
    let error = refused(plain.tls(both(&authority, &own))).await;
    assert!(error.to_string().contains("rediss://"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_master_use_tls_independently() {
    let authority = Authority::new();
    let (server, port) = start(&authority, "yes").await;
    let own = authority.certify(&["orders"]);
    let redis = server.redis().await;
    for (sentinel_speaks, master_speaks) in [(true, true), (true, false), (false, true)] {
        let master = if master_speaks { port } else { server.port() };
        let sentinel = Sentinel::start(&authority, sentinel_speaks, master_speaks, master).await;
        let scheme = if sentinel_speaks { "rediss" } else { "redis" };
        let host = format!("127.0.0.1:{}", sentinel.port);
        let by_url = Client::builder().url(format!("{scheme}+sentinel://{host}/orders"));
        let by_list = Client::builder().sentinel("orders", [format!("{scheme}://{host}")]);
        for mut builder in [by_url, by_list] {
            if sentinel_speaks != master_speaks {
                builder = builder.master_tls(master_speaks);
            }
            works(&redis, &builder.tls(both(&authority, &own))).await;
        }
    }
}

/// Including the connections for messages, and a node that takes over a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_cluster_uses_tls() {
    let authority = Authority::new();
    let own = authority.certify(&["orders"]);
    let cluster = Cluster::builder(3, 1).tls(authority.options());
    let cluster = cluster.start().await;
    // Woken by messages alone.
    let client = Client::builder().url(cluster.url()).poll_cap(SOON * 4);
    let client = client.tls(both(&authority, &own)).build().await.unwrap();
    let mut names = Vec::new();
    for master in &cluster.nodes[..3] {
        names.extend(cluster.names_at(master, "l", 1).await);
    }
    for moved in [false, true] {
        for (number, name) in names.iter().enumerate() {
            let lock = client.lock(name);
            let guard = lock.lock().await.unwrap();
            let waiting = tokio::spawn({
                let waiting = lock.lock().owner(&Owner::new()).into_future();
                async { tokio::time::timeout(SOON * 3, waiting).await }
            });
            if moved && number == 0 {
                cluster.fail_over(slot(name)).await;
            } else if moved {
                let to = cluster.owner_of(&names[0]).await;
                cluster.move_slot(slot(name), &to).await;
            }
            let redis = cluster.owner_of(name).await.redis().await;
            assert!(redis.exists(name).await && guard.is_valid());
            guard.unlock().await.unwrap();
            let next = waiting.await.unwrap().expect("it is woken").unwrap();
            assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
            assert!(!redis.exists(name).await);
        }
    }
    client.shutdown().await;
    // No client without a certificate gets the lock.
    let trusting = TlsSettings::new().root_certificates(authority.pem());
    let error = refused(Client::builder().url(cluster.url()).tls(trusting)).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

fn both(authority: &Authority, own: &Certified) -> TlsSettings {
    TlsSettings::new()
        .root_certificates(authority.pem())
        .client_certificate(own.certificate.clone(), own.key.clone())
}

async fn refused(builder: ClientBuilder) -> Error {
    let built = builder.command_timeout(ms(2_000)).build().await;
    built.expect_err("it may not connect")
}

/// A server with a certificate for this machine, and its port for TLS.
async fn start(authority: &Authority, asks: &str) -> (RedisServer, u16) {
    launch(authority, asks, Vec::new()).await
}

/// A server that shows this certificate.
async fn start_as(authority: &Authority, asks: &str, shown: &Certified) -> (RedisServer, u16) {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("certificate"), &shown.certificate).unwrap();
    fs::write(path("key"), &shown.key).unwrap();
    let others = vec![
        ("tls-cert-file", path("certificate")),
        ("tls-key-file", path("key")),
    ];
    // It reads them when it starts.
    launch(authority, asks, others).await
}

async fn launch(
    authority: &Authority,
    asks: &str,
    others: Vec<(&'static str, String)>,
) -> (RedisServer, u16) {
    let port = free_port();
    // Debian's server supports TLS. The one of the wheels may not.
    let mut server = RedisServer::builder()
        .binary(Binary::Redis7)
        .arg("--tls-port", &port.to_string())
        .arg("--tls-auth-clients", asks);
    for (option, value) in authority.options().into_iter().chain(others) {
        server = server.arg(&format!("--{option}"), &value);
    }
    (server.start().await, port)
}

/// One sentinel that alone watches over a master without replicas.
struct Sentinel {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

impl Sentinel {
    async fn start(authority: &Authority, speaks: bool, asks_by_tls: bool, master: u16) -> Self {
        let folder = process::folder();
        let port = free_port();
        let (plain, by_tls) = if speaks { (0, port) } else { (port, 0) };
        let mut config = format!(
            "port {plain}\ntls-port {by_tls}\nbind 127.0.0.1\ndir {}\ntls-auth-clients yes\n\
             tls-replication {}\nsentinel monitor orders 127.0.0.1 {master} 1\n",
            folder.path().display(),
            if asks_by_tls { "yes" } else { "no" },
        );
        for (option, value) in authority.options() {
            config += &format!("{option} {value}\n");
        }
        let path = folder.path().join("sentinel.conf");
        fs::write(&path, config).expect("the folder can be written to");
        let log = folder.path().join("log");
        let output = File::create(&log).expect("the folder can be written to");
        let child = Command::new(Binary::Redis7.path())
            .arg(&path)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()
            .expect("tests/setup installs it");
        let process = Process::default();
        process.set(child);
        eventually(SOON, "the sentinel watches", async || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            assert!(process.is_running(), "{log}");
            log.contains("+monitor master")
        })
        .await;
        Self {
            port,
            _process: process,
            _folder: folder,
        }
    }
}
