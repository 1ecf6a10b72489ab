//! One word names one type.

use std::collections::BTreeMap;

use crate::files;
use crate::source::{code, relative, sources};

#[test]
fn no_two_visible_types_have_one_name() {
    let core = files("crates/lockdog-quorum/src", "rs");
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources().into_iter().chain(core) {
        for line in code(&file).lines() {
            if let Some(name) = declared(line) {
                named.entry(name).or_default().push(relative(&file));
            }
        }
    }
    named.retain(|_, files| files.len() > 1);
    assert!(
        named.is_empty(),
        "one of each needs a word of its own: {named:#?}"
    );
}

/// What the check above relies on.
#[test]
fn declarations_of_any_visibility_are_found() {
    assert_eq!(
        declared("pub(super) struct Streak {").as_deref(),
        Some("Streak")
    );
    assert_eq!(declared("pub enum Step<W> {").as_deref(), Some("Step"));
    assert_eq!(declared("struct Inner {"), None, "no other file sees it");
    assert_eq!(declared("    type Won: Send;"), None, "a trait's");
}

/// The type that a line declares for more than its own file.
fn declared(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.1,
        None => rest,
    };
    let (keyword, name) = rest.trim_start().split_once(' ')?;
    if !["struct", "enum", "trait", "type"].contains(&keyword) {
        return None;
    }
    let end = name.find(|c: char| !c.is_alphanumeric())?;
    Some(name[..end].to_owned())
}
