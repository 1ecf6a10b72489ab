//! The public items of each library, held against a list that a reviewer reads.
//!
//! The lint `unreachable_pub` allows `pub` only for items that a user of the crate reaches, so the items with
//! that word are the API. `cargo semver-checks` says of two versions whether a change is breaking; this list
//! needs neither an earlier version nor another tool, and shows every change in the diff.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::source::{code, sources, sources_of_members};
use crate::{files, root};

#[test]
fn the_public_items_are_those_of_the_reviewed_lists() {
    let written = root().join("target/api");
    fs::create_dir_all(&written).expect("target can be written");
    let mut changed = Vec::new();
    for (crate_name, sources) in libraries() {
        let items = public_items(&sources);
        assert!(items.len() > 5, "{crate_name} has only {items:?}");
        let text: String = items.iter().map(|item| format!("{item}\n")).collect();
        let name = format!("{crate_name}.txt");
        fs::write(written.join(&name), &text).expect("target can be written");
        let reviewed = root().join("tests/tidy/api").join(&name);
        let reviewed = fs::read_to_string(reviewed).unwrap_or_default();
        let reviewed: BTreeSet<String> = reviewed.lines().map(str::to_owned).collect();
        let gone = reviewed.difference(&items).map(|it| format!("- {it}"));
        let new = items.difference(&reviewed).map(|it| format!("+ {it}"));
        changed.extend(gone.chain(new).map(|line| format!("{crate_name}: {line}")));
    }
    assert!(
        changed.is_empty(),
        "the API changed:\n{}\nIf this is intended, say it in CHANGELOG.md and run: cp target/api/*.txt tests/tidy/api/",
        changed.join("\n")
    );
    for list in files("tests/tidy/api", "txt") {
        let name = list.file_name().expect("it is a file");
        assert!(
            written.join(name).exists(),
            "{} is of no crate",
            list.display()
        );
    }
}

/// What the list relies on.
#[test]
fn items_are_found_with_what_a_user_sees_of_them() {
    let code = r#"
pub use a::{B, C};
mod private {
    pub use d::D;
}

#[derive(
    Clone, Debug,
)]
#[non_exhaustive]
pub struct Report<'a> {
    pub lock: String,
    pub(crate) hidden: u8,
    secret: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a brace {0}")]
    #[non_exhaustive]
    Refused {
        code: String,
    },
    Closed,
}

pub struct Permit(pub(super) u8);

pub(crate) mod sealed {
    pub trait Sealed {}
}

enum Secret {
    Word,
}

impl<'a> Report<'a> {
    pub(crate) fn inner(&self) {}

    #[must_use]
    pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
    {
        let x = 1;
        pub_like(x)
    }

    options!();
}

impl Clone for Report<'_> {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl Clone for Private {}

any_lock!(Report, remote);

pub trait Acquire: Send {
    type Output;

    fn lock(&self) -> LockRequest;

    fn is_held(&self) -> bool {
        false
    }
}

#[cfg(feature = "tower")]
pub mod tower {
    pub use crate::Layer;
}
"#;
    let found = items(code);
    let expected = [
        "#[cfg(feature = \"tower\")] pub mod tower",
        "#[derive(Clone, Debug)] #[non_exhaustive] pub struct Report<'a>",
        "#[derive(Debug, thiserror::Error)] pub enum Error",
        "any_lock!(Report, remote)",
        "enum Error: #[non_exhaustive] Refused { code: String }",
        "enum Error: Closed",
        "impl Clone for Private",
        "impl Clone for Report<'_>",
        "impl<'a> Report<'a>: #[must_use] pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output> where F: FnOnce(Held) -> Fut",
        "impl<'a> Report<'a>: options!()",
        "mod private: pub use D",
        "mod tower: pub use Layer",
        "pub trait Acquire: Send",
        "pub struct Permit(..)",
        "pub use B",
        "pub use C",
        "struct Report<'a>: pub lock: String",
        "trait Acquire: fn is_held(&self) -> bool = provided",
        "trait Acquire: fn lock(&self) -> LockRequest",
        "trait Acquire: type Output",
    ];
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(found, expected);
    let public = of_public_types(found);
    assert!(!public.contains("impl Clone for Private"));
    assert!(public.contains("impl Clone for Report<'_>"));
}

/// Each library of the workspace, and its files.
fn libraries() -> Vec<(String, Vec<PathBuf>)> {
    let mut libraries = vec![("lockdog".to_owned(), sources())];
    let of_members = sources_of_members();
    let crates = fs::read_dir(root().join("crates")).expect("it is a folder");
    for folder in crates.map(|entry| entry.expect("it can be read").path()) {
        if folder.join("src/lib.rs").exists() {
            let name = folder.file_name().and_then(|name| name.to_str());
            let own = of_members.iter().filter(|file| file.starts_with(&folder));
            let name = name.expect("our names are plain").to_owned();
            libraries.push((name, own.cloned().collect()));
        }
    }
    libraries
}

fn public_items(sources: &[PathBuf]) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = sources.iter().flat_map(|file| items(&code(file))).collect();
    // What users import: the names that `lib.rs` and the public modules show.
    all.retain(|item| !is_import(item));
    let root = sources.iter().find(|file| file.ends_with("src/lib.rs"));
    let root = root.expect("it is a library");
    let of_root = items(&code(root));
    for module in of_root
        .iter()
        .filter_map(|item| item.split_once("pub mod "))
    {
        let module = module.1;
        let folder = root.with_file_name(module);
        let file = [folder.with_extension("rs"), folder.join("mod.rs")];
        if let Some(file) = file.iter().find(|file| file.exists()) {
            let own = items(&code(file)).into_iter();
            let own = own.filter(|item| is_import(item) && item.contains("pub use "));
            all.extend(own.map(|item| format!("mod {module}: {item}")));
        }
    }
    all.extend(of_root.into_iter().filter(|item| is_import(item)));
    of_public_types(all)
}

/// Whether this says only under which name an item is shown.
fn is_import(item: &str) -> bool {
    item.contains("pub use ") || item.starts_with("mod ")
}

/// Without the implementations of traits for types that no user sees.
fn of_public_types(items: BTreeSet<String>) -> BTreeSet<String> {
    let declared = items.iter().filter_map(|item| {
        let (_, rest) = ["pub struct ", "pub enum "]
            .iter()
            .find_map(|word| item.split_once(word))?;
        rest.split(|c: char| !c.is_alphanumeric()).next()
    });
    let public: BTreeSet<String> = declared.map(str::to_owned).collect();
    let is_seen = |item: &String| {
        // No other crate can name that trait.
        if item.contains("Sealed for ") {
            return false;
        }
        let Some((head, target)) = item.split_once(" for ") else {
            return true;
        };
        let target = target.split(['<', ' ']).next().unwrap_or_default();
        !head.starts_with("impl") || public.contains(target)
    };
    items.into_iter().filter(is_seen).collect()
}

/// The public items in formatted code without comments.
fn items(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = code.lines();
    let mut attributes: Vec<String> = Vec::new();
    // What the lines with a greater indentation are in.
    let mut outer = Outer::default();
    while let Some(line) = lines.next() {
        let (text, indent) = (line.trim(), line.len() - line.trim_start().len());
        if text.starts_with("#[") || text.starts_with("#![") {
            let mut attribute = text.to_owned();
            while attribute.matches('[').count() > attribute.matches(']').count() {
                let Some(more) = lines.next() else { break };
                attribute.push(' ');
                attribute.push_str(more.trim());
            }
            if SHOWN.iter().any(|shown| attribute.starts_with(shown)) {
                attributes.push(tidied(&attribute));
            }
            continue;
        }
        if indent == 0 && text.starts_with('}') {
            outer = Outer::default();
        }
        let wanted = match (indent, outer.kind) {
            (0, _) => {
                is_public(text)
                    || is_call(text)
                    || OUTERS.iter().any(|outer| text.starts_with(outer))
            }
            (4, Kind::Trait) => ["fn ", "async fn ", "type ", "const "]
                .iter()
                .any(|word| text.starts_with(word)),
            (4, Kind::Enum) => text.starts_with(|c: char| c.is_uppercase()),
            (4, Kind::Inherent) => is_public(text) || is_call(text),
            _ => is_public(text),
        };
        if !wanted {
            if !text.is_empty() {
                attributes.clear();
            }
            continue;
        }
        let mut item = text.to_owned();
        let is_variant = outer.kind == Kind::Enum && indent == 4;
        while !is_whole(&item, is_variant) {
            let Some(more) = lines.next() else { break };
            let more = more.trim();
            // Attributes of the fields of a variant.
            if !more.starts_with("#[") {
                item.push(' ');
                item.push_str(more);
            }
        }
        let opens = item.ends_with('{');
        let is_provided = outer.kind == Kind::Trait && indent == 4 && opens;
        let head = match is_variant || item.starts_with("pub use ") {
            true => item.trim_end_matches([',', ';']),
            false => item.trim_end_matches(['{', '}', ';', ',', ' ']),
        };
        let mut head = tidied(head);
        if is_provided {
            head.push_str(" = provided");
        }
        if indent == 0 && opens {
            outer = Outer::of(&head);
        }
        let is_shown = match indent {
            0 => {
                let of_trait = head.starts_with("impl") && head.contains(" for ");
                is_public(&head) || of_trait || is_call(text)
            }
            _ => !outer.name.is_empty(),
        };
        if is_shown {
            let attributes: String = attributes.iter().map(|it| format!("{it} ")).collect();
            let of = match indent {
                0 => String::new(),
                _ => format!("{}: ", outer.name),
            };
            let seen = seen(&head).into_iter();
            found.extend(seen.map(|head| format!("{of}{attributes}{head}")));
        }
        attributes.clear();
    }
    found
}

/// What a user sees of an item: not where an imported item is from, nor private fields.
fn seen(head: &str) -> Vec<String> {
    if let Some(path) = head.strip_prefix("pub use ") {
        let (_, names) = path.rsplit_once("::").unwrap_or(("", path));
        let (_, names) = path.split_once('{').unwrap_or(("", names));
        let names = names.trim_end_matches('}').split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        return names.map(|name| format!("pub use {name}")).collect();
    }
    match head.split_once('(') {
        Some((name, fields)) if name.starts_with("pub struct ") && !fields.contains("pub ") => {
            vec![format!("{name}(..)")]
        }
        _ => vec![head.replace("(mut self", "(self")],
    }
}

/// Whether it is the call of a macro, which may make items.
fn is_call(text: &str) -> bool {
    let name = text
        .strip_suffix(");")
        .and_then(|text| text.split_once("!("));
    name.is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

fn is_public(text: &str) -> bool {
    text.starts_with("pub ")
}

/// Whether the item is read up to its body, or to its end.
fn is_whole(item: &str, is_variant: bool) -> bool {
    let is_open = |open, close| item.matches(open).count() > item.matches(close).count();
    if is_variant {
        return !is_open('{', '}') && !is_open('(', ')');
    }
    if item.starts_with("pub use ") {
        return item.ends_with(';');
    }
    item.ends_with(['{', ';'])
        || item.ends_with("{}")
        || (item.ends_with(',') && !is_open('(', ')') && !item.contains(" where "))
}

/// One line, without the commas that only the formatter sets.
fn tidied(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    for (long, short) in [
        ("( ", "("),
        (", )", ")"),
        (", }", " }"),
        (" )", ")"),
        (", >", ">"),
        ("< ", "<"),
    ] {
        line = line.replace(long, short);
    }
    line.trim_end_matches(',').to_owned()
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Kind {
    #[default]
    None,
    Enum,
    Inherent,
    Trait,
}

/// A block at the outermost level.
#[derive(Default)]
struct Outer {
    kind: Kind,
    name: String,
}

impl Outer {
    fn of(head: &str) -> Self {
        let name = head.trim_start_matches("pub ").to_owned();
        let kind = match name.split([' ', '<']).next() {
            Some("enum") if is_public(head) => Kind::Enum,
            Some("trait") if is_public(head) => Kind::Trait,
            Some("impl") if !name.contains(" for ") => Kind::Inherent,
            _ => Kind::None,
        };
        // What a type is made of, without its bounds.
        let name = match kind {
            Kind::Trait => name.split(':').next().unwrap_or_default().to_owned(),
            _ => name,
        };
        Self { kind, name }
    }
}

/// Begin blocks whose items are shown.
const OUTERS: [&str; 4] = ["impl ", "impl<", "mod ", "macro_rules! "];

/// The attributes that change what a user may do.
const SHOWN: [&str; 6] = [
    "#[cfg(feature",
    "#[cfg(lockdog_bench)]",
    "#[derive(",
    "#[deprecated",
    "#[must_use",
    "#[non_exhaustive]",
];
