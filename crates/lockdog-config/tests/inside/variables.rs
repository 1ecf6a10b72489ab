//! Variables in a file.

use super::read_with;
use crate::error::ConfigErrorKind;
use crate::settings::Servers;

fn variable(name: &str) -> Option<String> {
    let value = match name {
        "PORT" => "7000",
        "NODES" => "redis://a:1, redis://b:2",
        "FLOW" => "[\"redis://a:1\", 'redis://b:2']",
        "ODD" => "a: #b, [c] \"d",
        "EMPTY" => "",
        "COMMA" => "p,q",
        "WORD" => "null",
        "LAZY" => "true",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn a_variable_is_read_as_the_type_of_its_key() {
    let text = "
singleServerConfig:
  address: redis://${HOST:-h}:${PORT}
  password: ${ODD}
  database: ${DATABASE:-3}
  clientName: $${NAME}
lazyInitialization: ${LAZY}
";
    let Ok((settings, _)) = read_with(text, &variable) else {
        panic!("it is not read")
    };
    assert!(settings.servers == Servers::One("redis://h:7000".to_owned()));
    // It cannot change the structure of the file, nor become a comment.
    assert_eq!(settings.password.as_deref(), Some("a: #b, [c] \"d"));
    assert_eq!(settings.database, Some(3));
    assert_eq!(settings.client_name.as_deref(), Some("${NAME}"));
    assert_eq!(settings.lazy, Some(true));
}

/// The error is about the whole address, and not about its parts between commas.
#[test]
fn a_variable_inside_an_item_of_a_list_is_no_list() {
    let text = "clusterServersConfig: {nodeAddresses: ['redis://:${COMMA}@a:1', redis://b:2]}";
    let Err(error) = read_with(text, &variable) else {
        panic!("passwords do not belong there")
    };
    let why = "one user and password for all nodes";
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_variable_may_be_a_list() {
    for list in [
        "${NODES}",
        "['${NODES}']",
        "[\"${FLOW}\"]",
        "${FLOW}",
        "[redis://a:1, '${B:-redis://b:2}']",
    ] {
        let text = format!("clusterServersConfig: {{nodeAddresses: {list}}}");
        let text = text
            .replace("{nodeAddresses: $", "{nodeAddresses: '$")
            .replace("}}", "}'}");
        let text = if list.starts_with('$') {
            text
        } else {
            format!("clusterServersConfig: {{nodeAddresses: {list}}}")
        };
        let (settings, _) =
            read_with(&text, &variable).unwrap_or_else(|error| panic!("{text}: {error}"));
        let urls = ["redis://a:1", "redis://b:2"].map(str::to_owned).to_vec();
        assert!(settings.servers == Servers::Cluster(urls), "{text}");
    }
}

#[test]
fn an_empty_password_is_none() {
    for password in [
        "${EMPTY}",
        "'${EMPTY}'",
        "${UNSET:-}",
        "${WORD}",
        "${UNSET:-~}",
    ] {
        let text = format!("singleServerConfig:\n  address: redis://a:1\n  password: {password}\n");
        let (settings, _) = read_with(&text, &variable).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(settings.password, None, "{password}");
    }
}

#[test]
fn a_variable_without_a_value_is_an_error_where_a_setting_needs_it() {
    let text = "singleServerConfig:\n  address: redis://a:1\n  threads: 3\n  password: ${REDIS_PASSWORD}\n";
    let text = text.replace("  threads: 3\n", "  retryAttempts: ${UNSET}\n");
    let error = read_with(&text, &variable).err().unwrap();
    assert_eq!(error.kind(), ConfigErrorKind::Variable);
    assert_eq!(
        error.to_string(),
        "line 4, column 13: singleServerConfig.password: the variable REDIS_PASSWORD is not set: set it, or \
         give a default as in ${REDIS_PASSWORD:-value}"
    );
}
