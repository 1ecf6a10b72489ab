//! Files that Redisson and lockdog read with the same meaning.

use std::time::Duration;

use lockdog::config::{Protocol, ReplicaAck};
use serde_json::{Value, json};

use super::java::{ask, load};
use crate::settings::{Servers, Settings};
use crate::tests::{failure, meaning, read_with};

/// Files with a value in each place that matters, and with the examples of Redisson's documentation.
const FILES: [&str; 18] = [
    "singleServerConfig:\n  address: redis://127.0.0.1:6379\n",
    "{\"singleServerConfig\": {\"address\": \"redis://a:1\", \"password\": null, \"database\": 7}}",
    "
singleServerConfig:
  idleConnectionTimeout: 10000
  connectTimeout: 10000
  timeout: 2500
  retryAttempts: 4
  retryDelay: !<org.redisson.config.EqualJitterDelay> {baseDelay: PT1S, maxDelay: PT2S}
  reconnectionDelay: !<org.redisson.config.EqualJitterDelay> {baseDelay: PT0.1S, maxDelay: PT10S}
  subscriptionsPerConnection: 5
  clientName: null
  address: \"redis://127.0.0.1:6379\"
  subscriptionConnectionMinimumIdleSize: 1
  subscriptionConnectionPoolSize: 50
  connectionMinimumIdleSize: 24
  connectionPoolSize: 64
  database: 3
  dnsMonitoringInterval: 5000
username: null
password: null
threads: 16
nettyThreads: 32
codec: !<org.redisson.codec.Kryo5Codec> {}
transportMode: \"NIO\"
",
    "
clusterServersConfig:
  idleConnectionTimeout: 10000
  timeout: 3000
  failedSlaveReconnectionInterval: 3000
  failedSlaveNodeDetector: !<org.redisson.client.FailedConnectionDetector> {}
  loadBalancer: !<org.redisson.connection.balancer.RoundRobinLoadBalancer> {}
  readMode: \"SLAVE\"
  subscriptionMode: \"SLAVE\"
  nodeAddresses:
  - \"redis://127.0.0.1:7004\"
  - \"redis://127.0.0.1:7001\"
  - \"redis://127.0.0.1:7000\"
  scanInterval: 1000
  pingConnectionInterval: 30000
  keepAlive: false
  tcpNoDelay: true
password: 'of the top'
",
    "
sentinelServersConfig:
  timeout: 3000
  clientName: orders-1
  sentinelAddresses:
  - \"redis://127.0.0.1:26379\"
  - \"redis://127.0.0.1:26389\"
  masterName: \"mymaster\"
  database: 5
  sentinelUsername: guard
  sentinelPassword: s:e@c
  password: p
slavesSyncTimeout: 800
checkLockSyncedSlaves: false
",
    "
masterSlaveServersConfig:
  slaveAddresses:
  - \"redis://127.0.0.1:6381\"
  - \"redis://127.0.0.1:6380\"
  masterAddress: \"redis://127.0.0.1:6379\"
  database: 1
  timeout: 4000
checkLockSyncedSlaves: true
slavesSyncTimeout: 2000
",
    "replicatedServersConfig:\n  nodeAddresses: [\"redis://127.0.0.1:2812\"]\n  scanInterval: 1000\n  monitorIPChanges: false\n",
    "singleServerConfig: {address: 'redis://ann:p%40+w@[::1]:6379', username: bob, password: q}\n",
    "singleServerConfig: {address: 'redis://alone@h:6379/3', username: bob}\npassword: top\n",
    "singleServerConfig: {address: 'rediss://h:6379', username: bob, password: q}\nusername: top\n",
    "singleServerConfig: {address: 'redis://h:6379', username: bob, password: ~}\nusername: top\n",
    "singleServerConfig: {address: 'valkeys://::1:6379', password: 0123, clientName: yes}\n",
    "singleServerConfig: {address: 'redis://h:6379', password: 1e5, username: ~, timeout: 3_000}\n",
    "singleServerConfig: {address: 'redis://h:6379', timeout: '2000'}\nlazyInitialization: on\nprotocol: RESP3\n",
    "singleServerConfig:\n  address: redis://h:6379\nlockWatchdogTimeout: 12000\nfairLockWaitTimeout: 90000\nlazyInitialization: 'no'\n",
    "singleServerConfig: &s\n  address: redis://${HOST}:${PORT:-6379}\n  password: ${PASSWORD}\n  clientName: ${NAME:-the-default}\n  database: ${DATABASE:-2}\n",
    "singleServerConfig:\n  <<: {timeout: 1000, database: 3}\n  timeout: 2000\n  address: >\n    redis://h:6379\n",
    "clusterServersConfig: {nodeAddresses: ['redis://:x@a:1', 'redis://:x@b:2'], username: u, shardedSubscriptionMode: OFF, checkSlotsCoverage: false}\n",
];

fn variable(name: &str) -> Option<String> {
    let value = match name {
        "HOST" => "redis-7",
        "PASSWORD" => "hunter2",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn redisson_reads_the_same_from_a_file() {
    let properties = json!({ "HOST": "redis-7", "PASSWORD": "hunter2" });
    for text in FILES {
        let java = load(text, &properties);
        assert!(java.get("error").is_none(), "{java}\n{text}");
        let settings = match read_with(text, &variable) {
            Ok((settings, _)) => settings,
            Err(error) => panic!("{error}\n{text}"),
        };
        compare(&java, settings, text);
    }
}

#[test]
fn what_redisson_writes_is_read() {
    for (section, address) in [
        ("singleServerConfig", "redis://a:1"),
        ("sentinelServersConfig", "redis://a:1"),
        ("clusterServersConfig", "rediss://a:1"),
        ("masterSlaveServersConfig", "redis://a:1"),
        ("replicatedServersConfig", "redis://a:1"),
    ] {
        let written = ask(&json!({ "write": section, "address": address }));
        let yaml = written["yaml"]
            .as_str()
            .unwrap_or_else(|| panic!("{written}"));
        assert!(yaml.len() > 1000, "{yaml}");
        compare(&load(yaml, &json!({})), meaning(yaml), yaml);
    }
}

/// Redisson refuses these files, too.
#[test]
fn what_redisson_refuses_is_refused() {
    let single = "singleServerConfig:\n  address: redis://a:1\n";
    for more in [
        "  timeot: 3\n",
        "  timeout: 3.0\n",
        "  timeout: 3s\n",
        "  timeout: [3]\n",
        "  database: one\n",
        "timeout: 3\n",
        "  lockWatchdogTimeout: 3000\n",
        "protocol: resp3\n",
        "protocol: RESP4\n",
        "what: 3\n",
        "sslVerificationMode: SOME\n",
        " x: 1\n",
        "  password: 'a\n",
        "---\nthreads: 3\n",
        "  codec: *a\n",
    ] {
        let text = format!("{}{more}", single.replace("redis:", "rediss:"));
        let java = load(&text, &json!({}));
        assert!(java.get("error").is_some(), "Redisson reads\n{text}");
        failure(&text);
    }
    for address in [
        "redis://a",
        "http://a:1",
        "a:1",
        "redis://",
        "redis://:p@:1",
        "redis://u@p@a:1",
        "redis://:%zz@a:1",
    ] {
        let java = ask(&json!({ "address": address }));
        assert!(
            java.get("error").is_some(),
            "Redisson reads {address}: {java}"
        );
        failure(&format!("singleServerConfig: {{address: '{address}'}}"));
    }
}

/// Redisson reads these values in a way that the author of the file hardly expects.
#[test]
fn what_surprises_in_redisson_is_refused() {
    let single = "singleServerConfig:\n  address: redis://a:1\n";
    for (more, section, key, value) in [
        (
            "  database: 010\n",
            "singleServerConfig",
            "database",
            json!(8),
        ),
        (
            "  timeout: 1:40\n",
            "singleServerConfig",
            "timeout",
            json!(100),
        ),
        (
            "  timeout: 0x100\n",
            "singleServerConfig",
            "timeout",
            json!(256),
        ),
        (
            "  timeout: 100\n  timeout: 200\n",
            "singleServerConfig",
            "timeout",
            json!(200),
        ),
        (
            "  password: ${UNSET}\n",
            "singleServerConfig",
            "password",
            json!("${UNSET}"),
        ),
        (
            "clusterServersConfig: {nodeAddresses: ['redis://b:1']}\n",
            "clusterServersConfig",
            "nodeAddresses",
            json!(["redis://b:1"]),
        ),
    ] {
        let text = format!("{single}{more}");
        let java = load(&text, &json!({}));
        assert_eq!(java[section][key], value, "{text}");
        failure(&text);
    }
}

fn compare(java: &Value, settings: Settings, text: &str) {
    let (top, mut sections) = (&java["top"], java.as_object().expect("a map").iter());
    let (section, values) = sections
        .find(|(name, _)| *name != "top")
        .expect("a section");
    let addresses = match section.as_str() {
        "singleServerConfig" => vec![values["address"].clone()],
        "masterSlaveServersConfig" => vec![values["masterAddress"].clone()],
        "sentinelServersConfig" => values["sentinelAddresses"].as_array().unwrap().clone(),
        _ => values["nodeAddresses"].as_array().unwrap().clone(),
    };
    let addresses: Vec<Value> = addresses
        .iter()
        .map(|it| ask(&json!({ "address": it })))
        .collect();
    let url = |address: &Value, login: &str| {
        let scheme = if address["ssl"] == true {
            "rediss"
        } else {
            "redis"
        };
        format!(
            "{scheme}://{login}{}:{}",
            address["host"].as_str().unwrap(),
            address["port"]
        )
    };
    let plain: Vec<String> = addresses.iter().map(|address| url(address, "")).collect();
    let servers = match section.as_str() {
        "clusterServersConfig" => Servers::Cluster(plain),
        "sentinelServersConfig" => {
            let login = match values["sentinelPassword"].as_str() {
                Some("s:e@c") => "guard:s%3Ae%40c@",
                _ => "",
            };
            Servers::Sentinels {
                master: values["masterName"].as_str().unwrap().to_owned(),
                urls: addresses
                    .iter()
                    .map(|address| url(address, login))
                    .collect(),
            }
        }
        _ => Servers::One(plain[0].clone()),
    };
    assert!(settings.servers == servers, "{text}");
    // As Redisson's connection manager and its handler of connections choose them.
    let at_address = section.as_str() != "sentinelServersConfig";
    let login = |key: &str| {
        let own = at_address.then(|| addresses[0][key].as_str()).flatten();
        let found = own
            .or_else(|| top[key].as_str())
            .or_else(|| values[key].as_str());
        found.map(str::to_owned)
    };
    let password = login("password");
    let username = password.as_ref().and_then(|_| login("username"));
    assert_eq!(
        (settings.username, settings.password),
        (username, password),
        "{text}"
    );
    // A key that the file does not have has the same default on both sides.
    let ms = |value: &Value| Duration::from_millis(value.as_u64().unwrap());
    let (three, thirty) = (Duration::from_secs(3), Duration::from_secs(30));
    assert_eq!(
        settings.command_timeout.unwrap_or(three),
        ms(&values["timeout"]),
        "{text}"
    );
    let lease = settings.watchdog_lease.unwrap_or(thirty);
    assert_eq!(lease, ms(&top["lockWatchdogTimeout"]), "{text}");
    let wait = settings.fair_wait.unwrap_or(10 * thirty);
    assert_eq!(wait, ms(&top["fairLockWaitTimeout"]), "{text}");
    assert_eq!(
        json!(settings.database.unwrap_or(0)),
        values["database"],
        "{text}"
    );
    assert_eq!(json!(settings.client_name), values["clientName"], "{text}");
    assert_eq!(
        json!(settings.lazy.unwrap_or(false)),
        top["lazyInitialization"],
        "{text}"
    );
    let protocol = match settings.protocol {
        Some(Protocol::Resp3) => "RESP3",
        _ => "RESP2",
    };
    assert_eq!(top["protocol"], protocol, "{text}");
    match settings.replica_ack {
        None => {}
        Some(ReplicaAck::BestEffort { timeout, .. }) => {
            assert_eq!(
                (timeout, &json!(false)),
                (ms(&top["slavesSyncTimeout"]), &top["checkLockSyncedSlaves"]),
                "{text}"
            );
        }
        Some(ReplicaAck::Require { timeout, .. }) => {
            assert_eq!(
                (timeout, &json!(true)),
                (ms(&top["slavesSyncTimeout"]), &top["checkLockSyncedSlaves"]),
                "{text}"
            );
        }
        Some(other) => panic!("{other:?} of\n{text}"),
    }
    let is_waited_for = text.contains("checkLockSyncedSlaves") && section != "singleServerConfig";
    assert_eq!(settings.replica_ack.is_some(), is_waited_for, "{text}");
}
