//! Goes through the file, key by key.

use std::collections::{HashMap, HashSet};

use super::keys::find;
use super::rule::{Class, Key, Rule, Section, Setting, Usual};
use crate::document::{DocumentNode, Entry, NodeKind};
use crate::error::{ConfigError, ConfigErrorKind, Position};
use crate::nearest::nearest;
use crate::note::{Note, NoteKind};
use crate::value::{SettingValue, Variables};

/// What the file has.
pub(super) struct Found<'a> {
    pub(super) section: Section,
    pub(super) section_at: Position,
    pub(super) in_top: HashMap<Setting, SettingValue<'a>>,
    pub(super) in_section: HashMap<Setting, SettingValue<'a>>,
    pub(super) notes: Vec<Note>,
}

/// Applies the rule of each key, and keeps the values of those that are settings of lockdog.
pub(super) fn walk<'a>(
    root: &'a DocumentNode,
    variables: Variables<'a>,
    ignored: &HashSet<String>,
) -> Result<Found<'a>, ConfigError> {
    let NodeKind::Map(entries) = &root.kind else {
        let why = "a configuration is a map of keys: begin with singleServerConfig: or its like";
        return Err(ConfigError::syntax(root.at, why));
    };
    let mut notes = Vec::new();
    let mut in_top = HashMap::new();
    let mut section: Option<(Section, &Entry)> = None;
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        let key = find(&[Class::Config], &entry.key);
        if let Some(Key {
            rule: Rule::Section(found),
            ..
        }) = key
        {
            if let Some((first, _)) = section {
                let why = format!("{} is here, too: keep one of them", first.key());
                let error = ConfigError::new(ConfigErrorKind::Refused, why);
                return Err(error.at(entry.at).of_key(&entry.key));
            }
            section = Some((*found, entry));
            continue;
        }
        let value = value(None, entry, variables);
        let found = &mut in_top;
        apply(
            &[Class::Config],
            &entry.key,
            value,
            ignored,
            found,
            &mut notes,
        )?;
    }
    let Some((section, entry)) = section else {
        let why = "no servers: add singleServerConfig, sentinelServersConfig, clusterServersConfig, \
                   masterSlaveServersConfig or replicatedServersConfig";
        return Err(ConfigError::new(ConfigErrorKind::Value, why).at(root.at));
    };
    let NodeKind::Map(entries) = &entry.value.kind else {
        let why = "it must be a map of keys";
        let error = ConfigError::new(ConfigErrorKind::Value, why);
        return Err(error.at(entry.value.at).of_key(section.key()));
    };
    let mut in_section = HashMap::new();
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        let value = value(Some(section), entry, variables);
        let (classes, found) = (section.classes(), &mut in_section);
        apply(classes, &entry.key, value, ignored, found, &mut notes)?;
    }
    Ok(Found {
        section,
        section_at: entry.at,
        in_top,
        in_section,
        notes,
    })
}

fn value<'a>(
    section: Option<Section>,
    entry: &'a Entry,
    variables: Variables<'a>,
) -> SettingValue<'a> {
    SettingValue {
        key: match section {
            Some(section) => format!("{}.{}", section.key(), entry.key),
            None => entry.key.clone(),
        },
        key_at: entry.at,
        node: &entry.value,
        variables,
    }
}

fn apply<'a>(
    classes: &[Class],
    name: &str,
    value: SettingValue<'a>,
    ignored: &HashSet<String>,
    found: &mut HashMap<Setting, SettingValue<'a>>,
    notes: &mut Vec<Note>,
) -> Result<(), ConfigError> {
    let Some(key) = find(classes, name) else {
        if !ignored.contains(name) {
            return Err(unknown(classes, name, &value));
        }
        notes.push(value.ignored("the program ignores it"));
        return Ok(());
    };
    let mut note = |kind, text: &str| {
        notes.push(Note::new(value.key.clone(), value.key_at, kind, text));
    };
    match key.rule {
        Rule::Mapped(setting) => {
            found.insert(setting, value);
        }
        Rule::Ignored(why) => note(NoteKind::Ignored, why),
        // A section of the servers is no key of a section, and was taken before.
        Rule::Irrelevant | Rule::Section(_) => note(NoteKind::Irrelevant, UNNOTICED),
        Rule::Differs(usual, how) => {
            if is_usual(&value, usual)? {
                note(NoteKind::Ignored, "lockdog does this anyway");
            } else {
                note(NoteKind::Differs, how);
            }
        }
        Rule::Refused(usual, instead) => {
            if !is_usual(&value, usual)? {
                return Err(value.refused(instead));
            }
            note(
                NoteKind::Ignored,
                "Redisson's default, which lockdog has, too",
            );
        }
    }
    Ok(())
}

fn is_usual(value: &SettingValue<'_>, usual: Usual) -> Result<bool, ConfigError> {
    Ok(match usual {
        Usual::Nothing => false,
        Usual::Number(number) => value.number(0..=u64::MAX)?.is_none_or(|it| it == number),
        Usual::Boolean(usual) => value.boolean()?.is_none_or(|it| it == usual),
        Usual::Word(word) => value.text()?.is_none_or(|it| it == word),
        Usual::Class(class) => value.is_class(class),
    })
}

/// A key without a rule. Redisson refuses it, too, and it might change what a lock is.
fn unknown(classes: &[Class], name: &str, value: &SettingValue<'_>) -> ConfigError {
    let elsewhere = ALL.iter().find(|class| find(&[**class], name).is_some());
    let names = classes.iter().flat_map(|class| class.keys());
    let near = nearest(name, names.map(|key| key.name));
    let why = match (elsewhere, near) {
        (Some(Class::Config), _) => "it belongs to the top level of the file".to_owned(),
        (Some(_), _) => "it belongs to another section of servers".to_owned(),
        (None, Some(near)) => format!("no such key: did you mean {near}?"),
        (None, None) => {
            "no such key in Redisson 4.7.0: remove it, or name it to Reader::ignore_key".to_owned()
        }
    };
    // In a damaged file a password may be where a key belongs, so a key is shown only if it is one.
    let error = ConfigError::new(ConfigErrorKind::Unknown, why).at(value.key_at);
    match (elsewhere, value.key.strip_suffix(name)) {
        (Some(_), _) => error.of_key(&value.key),
        (None, Some(section)) if !section.is_empty() => error.of_key(section.trim_end_matches('.')),
        _ => error,
    }
}

const ALL: [Class; 8] = [
    Class::Config,
    Class::BaseConfig,
    Class::BaseMasterSlaveServersConfig,
    Class::SingleServerConfig,
    Class::SentinelServersConfig,
    Class::ClusterServersConfig,
    Class::MasterSlaveServersConfig,
    Class::ReplicatedServersConfig,
];
const UNNOTICED: &str = "locks do not depend on it";
