//! One word names one type.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{code, relative, sources, sources_of_members};

/// The code of a crate also uses the types of the library, and the public types of the other crates. So no type of
/// the crate has one of their names. `lockdog-quorum` is the core of the library.
#[test]
fn no_two_visible_types_have_one_name() {
    let mut crates: BTreeMap<String, Vec<Type>> = BTreeMap::new();
    for file in sources_of_members() {
        crates
            .entry(member(&file))
            .or_default()
            .extend(types(&file));
    }
    let core = crates.remove("lockdog-quorum").expect("it is a member");
    let mut library: Vec<Type> = sources().iter().flat_map(|file| types(file)).collect();
    library.extend(core);
    assert!(!crates.is_empty() && !library.is_empty());
    for (name, own) in &crates {
        let others = crates.iter().filter(|(other, _)| *other != name);
        let public = others
            .flat_map(|(_, types)| types)
            .filter(|it| it.is_public);
        let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for it in library.iter().chain(own).chain(public) {
            named.entry(&it.name).or_default().push(&it.file);
        }
        named.retain(|name, files| files.len() > 1 && !TWO_TYPES.contains(name));
        assert!(
            named.is_empty(),
            "{name}: one of each needs a word of its own: {named:#?}"
        );
    }
}

/// `lockdog_test::Server` is one server, and its users call it so. The library's private type has all servers of a
/// client.
const TWO_TYPES: [&str; 1] = ["Server"];

/// A type that more than its own file sees.
struct Type {
    name: String,
    file: String,
    is_public: bool,
}

fn types(file: &Path) -> Vec<Type> {
    let code = code(file);
    let lines = code.lines();
    lines
        .filter_map(|line| {
            Some(Type {
                name: declared(line)?,
                file: relative(file),
                is_public: line.starts_with("pub "),
            })
        })
        .collect()
}

/// The crate that has this file.
fn member(file: &Path) -> String {
    let path = relative(file);
    let member = path
        .strip_prefix("crates/")
        .and_then(|it| it.split('/').next());
    member.expect("it is below crates").to_owned()
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
