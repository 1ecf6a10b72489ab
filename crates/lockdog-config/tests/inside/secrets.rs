//! No error, note or `Debug` shows a password.

use crate::{Reader, from_str};

/// A secret in each place that may have one.
const FILE: &str = "
username: ann
password: hunter2top
sslTruststorePassword: hunter2trust
sslKeystorePassword: hunter2key
sentinelServersConfig:
  masterName: orders
  sentinelAddresses:
  - redis://guard:hunter2first@s1:26379
  - redis://:hunter2second@s2:26379
  sentinelUsername: cleo
  sentinelPassword: hunter2sentinel
  password: hunter2section
  database: 0
lockWatchdogTimeout: 30000
";

fn shows_nothing(text: &str) -> bool {
    let shown = match from_str(text) {
        Ok(config) => {
            let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
            format!("{config:?} {notes:?}")
        }
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains("hunter2"), "{shown}\nof\n{text}");
    shown.contains("ConfigError")
}

#[test]
fn a_file_of_secrets_shows_none() {
    assert!(!shows_nothing(FILE), "it is read");
}

#[test]
fn an_error_in_each_line_shows_no_secret() {
    let lines: Vec<&str> = FILE.lines().collect();
    let mut errors = 0;
    for at in 0..lines.len() {
        let line = lines[at];
        let indent = &line[..line.len() - line.trim_start().len()];
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        for damaged in [
            format!("{line}: more"),
            format!("{line} # \n  {line}"),
            format!("{key}: [{value}"),
            format!("{key}: \"{value}"),
            format!("{key}: {{{value}: x}}"),
            format!("{key}: !tag {value}"),
            format!("{key}: [{value}]"),
            format!("{key}: {value} ${{"),
            format!("{key}: *{value}"),
            format!("{key}{value}"),
            format!("{key} {value}"),
            format!("\t{line}"),
            format!("{line}\n{line}"),
            format!("{line}\n{indent}unknown: {value}"),
            format!("{key}: redis://x:hunter2@{value}"),
        ] {
            // The name of a master is no secret, and is shown.
            if key.ends_with("masterName") && damaged.contains("hunter2") {
                continue;
            }
            let mut file = lines.clone();
            file[at] = &damaged;
            errors += usize::from(shows_nothing(&file.join("\n")));
        }
    }
    assert!(errors > 100, "only {errors} errors");
}

#[test]
fn values_of_variables_are_secret_too() {
    let reader = Reader::new().variables(|_| Some("hunter2".to_owned()));
    for key in ["address", "password", "timeout", "database", "clientName"] {
        let text = format!("singleServerConfig:\n  {key}: ${{X}}\n  sslProtocols: ${{X}}\n");
        let shown = match reader.parse(&text) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
