//! Each key has a rule, and the rule is applied where the file says.

use super::{failure, is, meaning, note, read};
use crate::error::ConfigErrorKind;
use crate::note::NoteKind;
use crate::redisson::rule::{Class, Key, Rule, Section, Usual};

const SECTIONS: [Section; 5] = [
    Section::Single,
    Section::Sentinel,
    Section::Cluster,
    Section::MasterSlave,
    Section::Replicated,
];

/// A file of the section with one more key, in line 4.
fn with(section: Section, key: &str, value: &str) -> String {
    format!("{}\n  {key}: {value}\n", begin(section))
}

/// Three lines that say which servers there are.
fn begin(section: Section) -> String {
    let address = match section {
        Section::Single => "  # one\n  address: rediss://a:1",
        Section::Sentinel => "  sentinelAddresses: ['rediss://a:1']\n  masterName: orders",
        Section::Cluster | Section::Replicated => "  # one\n  nodeAddresses: ['rediss://a:1']",
        Section::MasterSlave => "  # one\n  masterAddress: rediss://a:1",
    };
    format!("{}:\n{address}", section.key())
}

/// Visits each key in each section that may contain it, with the file's text for a value and the
/// displayed key.
fn all(mut visit: impl FnMut(&'static Key, &dyn Fn(&str) -> String, &str, usize)) {
    for key in Class::Config.keys() {
        let file = |value: &str| format!("{}\n{}: {value}\n", begin(Section::Single), key.name);
        visit(key, &file, key.name, 1);
    }
    for section in SECTIONS {
        for class in section.classes() {
            for key in class.keys() {
                let file = |value: &str| with(section, key.name, value);
                visit(key, &file, &format!("{}.{}", section.key(), key.name), 3);
            }
        }
    }
}

#[test]
fn each_key_is_once_in_the_classes_of_a_section() {
    let mut seen = std::collections::HashSet::new();
    all(|_, _, shown, _| assert!(seen.insert(shown.to_owned()), "{shown} has two rules"));
    assert!(seen.len() > 250, "only {} keys", seen.len());
}

#[test]
fn ignored_and_irrelevant_keys_leave_a_note() {
    let mut found = 0;
    all(|key, file, shown, column| {
        let (kind, word) = match key.rule {
            Rule::Ignored(why) => (NoteKind::Ignored, why),
            Rule::Irrelevant => (NoteKind::Irrelevant, "do not depend"),
            _ => return,
        };
        found += 1;
        // Any value, because nothing reads it.
        for value in ["17", "[a, {b: c}]", "!<a.B> {c: d}", "${UNSET}"] {
            let text = file(value);
            let (_, notes) = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let (is_kind, reason) = note(&notes, shown);
            assert_eq!(is_kind, kind, "{shown}");
            assert!(reason.contains(word), "{shown}: {reason}");
            let note = notes.iter().find(|note| note.key == shown).unwrap();
            assert_eq!((note.line, note.column), (4, column), "{shown}");
        }
    });
    assert!(found > 100, "only {found} keys");
}

#[test]
fn refused_keys_say_what_to_do_instead() {
    let mut found = 0;
    all(|key, file, shown, column| {
        let Rule::Refused(usual, instead) = key.rule else {
            return;
        };
        found += 1;
        let column = column + key.name.len() + 2;
        let is_refused = |class: &str| {
            let error = failure(&file(&format!("!<{class}> {{}}")));
            is(&error, ConfigErrorKind::Refused, shown, 4, column, instead);
        };
        is_refused("com.example.Own");
        if let Usual::Class(default) = usual {
            // The name alone does not make it Redisson's.
            is_refused(&format!("com.example.{default}"));
            let text = file(&format!("!<org.redisson.config.{default}> {{}}"));
            assert!(read(&text).is_ok(), "{text}");
        }
        assert!(read(&file("~")).is_ok(), "{shown}: no value is no key");
    });
    assert!(found > 20, "only {found} keys");
}

#[test]
fn a_value_that_lockdog_does_not_follow_is_noted() {
    let mut found = 0;
    all(|key, file, shown, _| {
        let Rule::Differs(_, how) = key.rule else {
            return;
        };
        found += 1;
        let value = match key.name {
            "checkSlotsCoverage" => "true",
            "lockWatchdogBatchSize" | "tcpUserTimeout" => "7",
            "shardedSubscriptionMode" => "OFF",
            "sslCiphers" => "[A]",
            _ => "SLAVE",
        };
        let text = file(value);
        let (_, notes) = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(
            note(&notes, shown),
            (NoteKind::Differs, how.to_owned()),
            "{text}"
        );
    });
    assert!(found > 10, "only {found} keys");
}

#[test]
fn a_value_of_another_type_is_an_error_at_the_value() {
    let mut found = 0;
    all(|key, file, shown, column| {
        let Rule::Mapped(_) = key.rule else { return };
        if [
            "address",
            "masterAddress",
            "masterName",
            "nodeAddresses",
            "sentinelAddresses",
        ]
        .contains(&key.name)
        {
            return; // They would be there twice.
        }
        found += 1;
        let error = failure(&file("{a: b}"));
        let kind = match key.name {
            "nameMapper" => ConfigErrorKind::Refused,
            _ => ConfigErrorKind::Value,
        };
        is(&error, kind, shown, 4, column + key.name.len() + 2, "");
    });
    assert!(found > 50, "only {found} keys");
}

#[test]
fn numbers_and_words_are_checked() {
    let single = "singleServerConfig:\n  address: redis://a:1\n";
    let value = ConfigErrorKind::Value;
    for (key, wrong, word) in [
        ("timeout", "3s", "whole number"),
        ("timeout", "-1", "whole number"),
        ("timeout", "3.5", "whole number"),
        ("timeout", "1e5", "whole number"),
        ("timeout", "0x10", "whole number"),
        ("timeout", "010", "without a leading zero"),
        ("timeout", "1:40", "whole number"),
        ("timeout", "9", "from 10 to 86400000"),
        ("timeout", "99999999999999999999", "from 10"),
        ("database", "zero", "from 0"),
        ("clientName", "a b", "without spaces"),
        ("password", "!vault x", "without a tag"),
        ("address2", "x", ""),
    ] {
        if key == "address2" {
            let error = failure(&format!("{single}  {key}: {wrong}\n"));
            assert!(
                error.to_string().contains("did you mean address?"),
                "{error}"
            );
            continue;
        }
        let error = failure(&format!("{single}  {key}: {wrong}\n"));
        let shown = format!("singleServerConfig.{key}");
        is(&error, value, &shown, 3, key.len() + 5, word);
    }
    for (key, wrong, word) in [
        ("protocol", "resp3", "one of RESP2, RESP3"),
        ("lazyInitialization", "1", "true or false"),
        ("lockWatchdogTimeout", "5", "from 10"),
    ] {
        let error = failure(&format!("{single}{key}: {wrong}\n"));
        is(&error, value, key, 3, key.len() + 3, word);
    }
    for (written, millis) in [
        ("3000", 3000),
        ("'3000'", 3000),
        ("3_000", 3000),
        ("+3000", 3000),
    ] {
        let settings = meaning(&format!("{single}  timeout: {written}\n"));
        assert_eq!(
            settings.command_timeout.unwrap().as_millis(),
            millis,
            "{written}"
        );
    }
    for (written, is_lazy) in [
        ("true", true),
        ("On", true),
        ("'yes'", true),
        ("off", false),
    ] {
        let settings = meaning(&format!("{single}lazyInitialization: {written}\n"));
        assert_eq!(settings.lazy, Some(is_lazy), "{written}");
    }
}

#[test]
fn an_unknown_key_names_the_nearest_or_its_place() {
    let single = "singleServerConfig:\n  address: redis://a:1\n";
    let unknown = ConfigErrorKind::Unknown;
    // The key is not shown: in a damaged file it may be a password.
    let error = failure(&format!("{single}lockWatchDogTimeout: 3\n"));
    let expected = "line 3, column 1: no such key: did you mean lockWatchdogTimeout?";
    assert_eq!((error.kind(), &*error.to_string()), (unknown, expected));
    let error = failure(&format!("{single}timeout: 3\n"));
    is(
        &error,
        unknown,
        "timeout",
        3,
        1,
        "belongs to another section",
    );
    let error = failure(&format!("{single}  lockWatchdogTimeout: 3\n"));
    is(
        &error,
        unknown,
        "singleServerConfig.lockWatchdogTimeout",
        3,
        3,
        "belongs to the top level",
    );
    let error = failure(&format!("{single}  masterName: orders\n"));
    is(
        &error,
        unknown,
        "singleServerConfig.masterName",
        3,
        3,
        "belongs to another section",
    );
}

/// The table in the README is for readers; it must not miss a key.
#[test]
fn the_readme_has_each_key() {
    let readme = include_str!("../../README.md");
    all(|key, _, shown, _| {
        let named = format!("`{}`", key.name);
        assert!(
            readme.contains(&named),
            "the README has no {named} ({shown})"
        );
    });
}
