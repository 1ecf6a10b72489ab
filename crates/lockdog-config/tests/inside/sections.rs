//! Examples of each section.

use std::time::Duration;

use lockdog::config::{Protocol, ReplicaAck, Replicas};

use super::{failure, is, meaning, note, read};
use crate::error::ConfigErrorKind;
use crate::note::NoteKind;
use crate::settings::Servers;
use crate::{Format, from_str};

#[test]
fn a_single_server_has_its_settings() {
    let settings = meaning(
        "
lockWatchdogTimeout: 12_000
fairLockWaitTimeout: 60000
lazyInitialization: yes
protocol: RESP3
singleServerConfig:
  address: 'redis://10.0.0.7:6379'
  username: ann
  password: 1e5
  database: 3
  clientName: orders
  timeout: 1500
",
    );
    assert!(settings.servers == Servers::One("redis://10.0.0.7:6379".to_owned()));
    assert_eq!(settings.username.as_deref(), Some("ann"));
    // Another reader of YAML would make it 100000.
    assert_eq!(settings.password.as_deref(), Some("1e5"));
    assert_eq!(settings.database, Some(3));
    assert_eq!(settings.client_name.as_deref(), Some("orders"));
    assert_eq!(settings.command_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(settings.watchdog_lease, Some(Duration::from_secs(12)));
    assert_eq!(settings.fair_wait, Some(Duration::from_secs(60)));
    assert_eq!(settings.lazy, Some(true));
    assert_eq!(settings.protocol, Some(Protocol::Resp3));
    assert_eq!(settings.replica_ack, None);
}

#[test]
fn json_is_read_as_yaml() {
    let json = "{\n\t\"singleServerConfig\": {\n\t\t\"address\": \"redis:\\/\\/a:1\",\n\t\t\"password\": \"a\\\"b\",\n\t\t\"clientName\": null\n\t},\n\t\"codec\": {\"class\": \"org.redisson.codec.Kryo5Codec\"}\n}";
    let settings = meaning(json);
    assert!(settings.servers == Servers::One("redis://a:1".to_owned()));
    assert_eq!(settings.password.as_deref(), Some("a\"b"));
    assert_eq!(settings.client_name, None);
    let error = failure(&json.replace("null", "{}"));
    is(
        &error,
        ConfigErrorKind::Value,
        "singleServerConfig.clientName",
        5,
        17,
        "text",
    );
}

#[test]
fn the_address_comes_before_the_top_level_and_that_before_the_section() {
    let file = |address: &str, top: &str| {
        meaning(&format!(
            "{top}\nsingleServerConfig: {{address: '{address}', username: carl, password: c}}"
        ))
    };
    let login = |settings: crate::settings::Settings| {
        (settings.username.unwrap(), settings.password.unwrap())
    };
    let of = |user: &str, password: &str| (user.to_owned(), password.to_owned());
    let top = "{username: bob, password: b}"
        .replace(['{', '}'], "")
        .replace(", ", "\n");
    assert_eq!(login(file("redis://ann:a@h:1", &top)), of("ann", "a"));
    assert_eq!(login(file("redis://a@h:1", &top)), of("bob", "a"));
    assert_eq!(login(file("redis://h:1", &top)), of("bob", "b"));
    assert_eq!(login(file("redis://h:1", "password: b")), of("carl", "b"));
    assert_eq!(login(file("redis://h:1", "")), of("carl", "c"));
}

#[test]
fn a_user_without_a_password_sends_no_login() {
    for password in ["", "password: ''", "password: ~", "password:"] {
        let text =
            format!("singleServerConfig:\n  address: redis://a:1\n  username: ann\n  {password}");
        let (settings, notes) = read(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (settings.username, settings.password),
            (None, None),
            "{text}"
        );
        let (kind, _) = note(&notes, "singleServerConfig.username");
        assert_eq!(kind, NoteKind::Ignored);
    }
}

#[test]
fn a_key_without_a_value_has_a_note_too() {
    let text = "
slavesSyncTimeout: ''
singleServerConfig:
  address: redis://a:1
  password: ${UNSET:-}
  clientName: ''
  timeout: \"\"
";
    let (_, notes) = read(text).unwrap_or_else(|error| panic!("{error}"));
    for key in [
        "slavesSyncTimeout",
        "singleServerConfig.password",
        "singleServerConfig.clientName",
        "singleServerConfig.timeout",
    ] {
        let expected = (NoteKind::Ignored, "it has no value".to_owned());
        assert_eq!(note(&notes, key), expected, "{key}");
    }
}

#[test]
fn sentinels_have_a_master_and_their_own_login() {
    let text = "
sentinelServersConfig:
  masterName: orders
  sentinelAddresses: ['redis://s1:26379', 'redis://cleo:x%2Fy@s2:26379', 'redis://s1:26379/']
  sentinelUsername: guard
  sentinelPassword: 'p@ss'
  password: secret
  database: 2
";
    let settings = meaning(text);
    let urls = [
        "redis://guard:p%40ss@s1:26379",
        "redis://cleo:x%2Fy@s2:26379",
    ];
    let expected = Servers::Sentinels {
        master: "orders".to_owned(),
        urls: urls.map(str::to_owned).to_vec(),
    };
    assert!(settings.servers == expected);
    assert_eq!(settings.password.as_deref(), Some("secret"));
    assert_eq!(settings.database, Some(2));

    let plain = |text: &str| match meaning(text).servers {
        Servers::Sentinels { urls, .. } => urls[0].clone(),
        _ => panic!("no sentinels"),
    };
    let without = text.replace("  sentinelPassword: 'p@ss'\n", "");
    assert_eq!(
        plain(&without),
        "redis://guard:secret@s1:26379",
        "the server's password"
    );
    let without = without.replace("  sentinelUsername: guard\n", "");
    assert_eq!(
        plain(&without),
        "redis://s1:26379",
        "no login that the file does not have"
    );
    let (_, notes) = read(&without).unwrap_or_else(|error| panic!("{error}"));
    let (_, reason) = note(&notes, "sentinelServersConfig.sentinelAddresses");
    assert!(reason.contains("gets the servers'"), "{reason}");
}

#[test]
fn a_cluster_has_nodes_and_one_login() {
    let text =
        "clusterServersConfig:\n  nodeAddresses:\n  - rediss://u:p@a:1\n  - rediss://u:p@b:2\n";
    let settings = meaning(text);
    let urls = ["rediss://a:1", "rediss://b:2"].map(str::to_owned).to_vec();
    assert!(settings.servers == Servers::Cluster(urls));
    assert_eq!(settings.username.as_deref(), Some("u"));
    assert_eq!(settings.password.as_deref(), Some("p"));
    let refused = ConfigErrorKind::Refused;
    let key = "clusterServersConfig.nodeAddresses";
    let error = failure(&text.replace("u:p@b", "u:q@b"));
    is(&error, refused, key, 3, 5, "one user and password");
    let error = failure(&text.replace("rediss://u:p@b", "redis://u:p@b"));
    is(&error, refused, key, 3, 5, "some addresses use TLS");
    let error = failure(&format!("{text}  database: 1\n"));
    is(
        &error,
        refused,
        "clusterServersConfig.database",
        5,
        13,
        "database 0",
    );
    assert_eq!(meaning(&format!("{text}  database: 0\n")).database, Some(0));
}

#[test]
fn a_master_with_slaves_is_one_server() {
    let text =
        "masterSlaveServersConfig: {masterAddress: 'redis://a:1', slaveAddresses: ['redis://b:1']}";
    let (settings, notes) = read(text).unwrap_or_else(|error| panic!("{error}"));
    assert!(settings.servers == Servers::One("redis://a:1".to_owned()));
    let (kind, reason) = note(&notes, "masterSlaveServersConfig.slaveAddresses");
    assert_eq!(kind, NoteKind::Ignored);
    assert!(reason.contains("not replaced when it fails"), "{reason}");
}

#[test]
fn replicated_servers_are_one_address_or_refused() {
    let text = "replicatedServersConfig:\n  nodeAddresses: ['redis://a:1']";
    assert!(meaning(text).servers == Servers::One("redis://a:1".to_owned()));
    let error = failure(&text.replace("]", ", 'redis://b:1']"));
    let key = "replicatedServersConfig.nodeAddresses";
    is(
        &error,
        ConfigErrorKind::Refused,
        key,
        2,
        18,
        "the one address",
    );
}

#[test]
fn waiting_for_replicas_follows_redisson() {
    let ms = Duration::from_millis;
    let cluster = "clusterServersConfig: {nodeAddresses: ['redis://a:1'], timeout: 2000}\n";
    let required = ReplicaAck::require(Replicas::Count(1));
    for (keys, expected) in [
        ("", None),
        (
            "slavesSyncTimeout: 700",
            Some(ReplicaAck::best_effort().timeout(ms(700))),
        ),
        (
            "checkLockSyncedSlaves: false",
            Some(ReplicaAck::best_effort()),
        ),
        ("checkLockSyncedSlaves: true", Some(required)),
        (
            "checkLockSyncedSlaves: true\nslavesSyncTimeout: 9000",
            Some(required.timeout(ms(2000))),
        ),
    ] {
        assert_eq!(
            meaning(&format!("{cluster}{keys}")).replica_ack,
            expected,
            "{keys}"
        );
        let single = "singleServerConfig: {address: 'redis://a:1'}\n";
        assert_eq!(
            meaning(&format!("{single}{keys}")).replica_ack,
            None,
            "{keys}"
        );
    }
    let text = format!("{cluster}checkLockSyncedSlaves: true\nslavesSyncTimeout: 9000");
    let (_, notes) = read(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(note(&notes, "checkLockSyncedSlaves").0, NoteKind::Differs);
    assert_eq!(note(&notes, "slavesSyncTimeout").0, NoteKind::Differs);
}

#[test]
fn the_servers_must_be_there_once() {
    let value = ConfigErrorKind::Value;
    let error = failure("threads: 3\n");
    assert_eq!((error.kind(), error.line()), (value, Some(1)));
    assert!(
        error
            .to_string()
            .contains("no servers: add singleServerConfig"),
        "{error}"
    );
    let two = "singleServerConfig: {address: 'redis://a:1'}\nclusterServersConfig: {nodeAddresses: ['redis://a:1']}";
    let error = failure(two);
    is(
        &error,
        ConfigErrorKind::Refused,
        "clusterServersConfig",
        2,
        1,
        "keep one",
    );
    for (text, key) in [
        ("\nsingleServerConfig: {timeout: 3000}", "address"),
        ("\nsingleServerConfig: {address: ''}", "address"),
        (
            "\nclusterServersConfig: {nodeAddresses: []}",
            "nodeAddresses",
        ),
        (
            "\nsentinelServersConfig: {sentinelAddresses: ['redis://a:1']}",
            "masterName",
        ),
        (
            "\nsentinelServersConfig: {masterName: orders}",
            "sentinelAddresses",
        ),
    ] {
        let error = failure(text);
        assert_eq!((error.kind(), error.line()), (value, Some(2)), "{text}");
        assert!(
            error.to_string().contains(&format!("it needs {key}")),
            "{error}"
        );
    }
    let error = failure("singleServerConfig: redis://a:1");
    is(&error, value, "singleServerConfig", 1, 21, "map of keys");
}

#[test]
fn merged_keys_count_where_the_section_has_none_of_its_own() {
    let text = "
singleServerConfig:
  <<: &common {timeout: 1000, database: 4}
  address: redis://a:1
  timeout: 2000
  retryDelay: *common
";
    let settings = meaning(text);
    assert_eq!(settings.command_timeout, Some(Duration::from_secs(2)));
    assert_eq!(settings.database, Some(4));
}

#[test]
fn an_error_names_the_file_the_place_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redisson.yaml");
    std::fs::write(
        &path,
        "singleServerConfig:\n  address: redis://a:1\n  timeot: 3\n",
    )
    .unwrap();
    let error = crate::from_file(&path).unwrap_err();
    let expected = format!(
        "{}:3:3: singleServerConfig: no such key: did you mean timeout?",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    std::fs::write(
        &path,
        b"singleServerConfig:\n  address: redis://a:1\n  x\xff: 1\n",
    )
    .unwrap();
    let error = crate::from_file(&path).unwrap_err();
    assert_eq!(
        (error.line(), error.column()),
        (Some(3), Some(4)),
        "{error}"
    );
    // It is not read to its end, which is in the middle of a character.
    std::fs::write(&path, "#ä".repeat(1 << 20)).unwrap();
    let error = crate::from_file(&path).unwrap_err().to_string();
    assert!(
        error.ends_with(":1:1: a configuration has at most 1 MiB"),
        "{error}"
    );
    let error = crate::from_file(folder.path().join("none.yaml")).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Read);
    assert!(
        error
            .to_string()
            .contains("none.yaml: the file cannot be read"),
        "{error}"
    );
}

#[test]
fn the_keys_show_whose_file_it_is() {
    let format = |text: &str| from_str(text).unwrap().format;
    assert_eq!(
        format("singleServerConfig: {address: 'redis://a:1'}"),
        Format::Redisson
    );
    assert_eq!(format("url: redis://a:1"), Format::Lockdog);
    let both = "url: redis://a:1\nsingleServerConfig: {address: 'redis://a:1'}";
    let error = from_str(both).unwrap_err();
    assert_eq!(
        (error.kind(), error.line()),
        (ConfigErrorKind::Unknown, Some(1))
    );
}

#[test]
fn a_name_mapper_needs_one_in_code() {
    let text = "singleServerConfig: {address: 'redis://a:1'}\nnameMapper: !<com.example.Names> {prefix: x}";
    let error = failure(text);
    is(
        &error,
        ConfigErrorKind::Refused,
        "nameMapper",
        2,
        13,
        "Reader::name_mapper",
    );
    let config = crate::Reader::new()
        .name_mapper(|name| format!("x:{name}"))
        .parse(text);
    assert_eq!(
        note(&config.unwrap().notes, "nameMapper").0,
        NoteKind::Mapped
    );
    let same_name = text.replace("com.example.Names", "com.example.DefaultNameMapper");
    assert_eq!(failure(&same_name).kind(), ConfigErrorKind::Refused);
    let default = text.replace("com.example.Names", "org.redisson.config.DefaultNameMapper");
    assert!(read(&default).is_ok(), "the names themselves");
}

#[test]
fn an_unknown_key_can_be_ignored_by_its_name() {
    let text = "singleServerConfig: {address: 'redis://a:1', newKey: 1}";
    let error = failure(text);
    is(
        &error,
        ConfigErrorKind::Unknown,
        "singleServerConfig",
        1,
        46,
        "Reader::ignore_key",
    );
    let config = crate::Reader::new()
        .ignore_key("newKey")
        .parse(text)
        .unwrap();
    assert_eq!(
        note(&config.notes, "singleServerConfig.newKey").0,
        NoteKind::Ignored
    );
}

#[tokio::test]
async fn a_client_of_a_file_logs_in_and_locks() {
    let server = lockdog_test::Server::new();
    server.require_password("hunter2");
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let text = format!(
        "singleServerConfig:\n  address: redis://{address}\n  password: ${{PASSWORD}}\nnameMapper: !<a.B> {{}}"
    );
    let config = crate::Reader::new()
        .variables(|name| (name == "PASSWORD").then(|| "hunter2".to_owned()))
        .name_mapper(|name| format!("billing:{name}"))
        .parse(&text)
        .unwrap();
    let client = config.builder.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    assert!(server.holder("billing:orders").is_some());
    guard.unlock().await.unwrap();
    client.shutdown().await;
}
