//! The order of the source, checked: layers, scripts, sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{files, root};

/// From the top; a module may use those of lower rows only. `docs/design.md` has the same table.
const LAYERS: [&[&str]; 16] = [
    &["client"],
    &["permit_semaphore", "read_write_lock"],
    &["multi_lock", "red_lock"],
    &["lock"],
    &["request"],
    &["guard"],
    &["watchdog"],
    &["contend"],
    &["session"],
    &["diagnosis"],
    &["wait", "script"],
    &["hold"],
    &["server"],
    &["key", "lease", "owner"],
    &["background", "clock", "slot"],
    &["error", "panics"],
];

/// Tests of everything above the connection, and what they stand on, so they stand in no layer.
const ABOVE_ALL: [&str; 3] = ["simulation", "support", "user_code"];

#[test]
fn modules_import_downward_only() {
    for file in sources() {
        let Some(own) = module(&file) else { continue };
        for used in used_modules(&code(&file)) {
            // Named by the seams that only tests have.
            if ABOVE_ALL.contains(&&*used) {
                continue;
            }
            assert!(
                used == own || layer(&used) > layer(&own),
                "{} uses crate::{used}, which is not below {own}",
                file.display()
            );
        }
    }
}

#[test]
fn the_layer_table_names_exactly_the_modules() {
    let modules: BTreeSet<String> = sources().iter().filter_map(|f| module(f)).collect();
    let named: BTreeSet<String> = LAYERS.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(modules, named);
    let design = fs::read_to_string(root().join("docs/design.md")).expect("the design is there");
    let (_, section) = design.split_once("## Layers").expect("it has layers");
    let table = section.split("```").nth(1).expect("the layers are a table");
    let rows: Vec<BTreeSet<String>> = table
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let names = line
                .split("  ")
                .next()
                .expect("a row begins with its modules");
            names.split(' ').map(str::to_owned).collect()
        })
        .collect();
    let layers = LAYERS.map(|row| row.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(rows, layers, "docs/design.md has another table");
}

#[test]
fn every_lua_file_is_included_once() {
    let code: String = files("src", "rs").iter().map(|file| code(file)).collect();
    for file in files("lua", "lua") {
        let path = relative(&file);
        let uses = code.matches(&format!("{path}\")")).count();
        assert_eq!(uses, 1, "{path} is included {uses} times");
    }
    assert_eq!(code.matches(".lua\")").count(), files("lua", "lua").len());
}

#[test]
fn every_lua_file_documents_its_purpose_arguments_and_result() {
    for file in files("lua", "lua") {
        let text = fs::read_to_string(&file).expect("it is text");
        let header: String = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .map(|line| format!("{line}\n"))
            .collect();
        let mut rest = header.as_str();
        for part in [
            "-- Purpose: ",
            "-- KEYS[",
            "-- ARGV[",
            "-- Returns",
            "-- Example: ",
        ] {
            let Some(found) = rest.find(part) else {
                panic!(
                    "{} has no {part:?}, or has it out of order",
                    relative(&file)
                );
            };
            rest = &rest[found..];
        }
    }
}

/// Services of two versions of this crate work on the same locks: whoever changes a script decides
/// here that the two get along.
#[test]
fn the_scripts_match_their_reviewed_versions() {
    let digests: BTreeMap<String, String> = files("lua", "lua")
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).expect("it is text");
            (
                relative(file),
                redis::Script::new(&text).get_hash().to_owned(),
            )
        })
        .collect();
    let reviewed = REVIEWED.map(|(path, digest)| (path.to_owned(), digest.to_owned()));
    assert_eq!(digests, BTreeMap::from(reviewed));
}

#[test]
fn source_files_are_within_the_size_limit() {
    let core = files("crates/lockdog-quorum/src", "rs");
    for file in sources().into_iter().chain(core) {
        let lines = without_tests(&file).lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", relative(&file));
    }
}

/// What the checks above stand on.
#[test]
fn paths_are_found_in_code_but_not_in_comments() {
    let code =
        "use crate::hold::Hold;\n  pub(crate) use crate::wait::Wake;\nlet x = crate::script::f();";
    let found = BTreeSet::from(["hold", "script", "wait"].map(str::to_owned));
    assert_eq!(used_modules(code), found);
    let grouped = "use crate::{clock, error::Error};";
    assert!(std::panic::catch_unwind(|| used_modules(grouped)).is_err());
}

/// The modules that a file names as `crate::module`, in imports and elsewhere.
fn used_modules(code: &str) -> BTreeSet<String> {
    let paths = code.split("crate::").skip(1);
    paths
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            assert!(
                !name.is_empty(),
                "write one `use crate::module::` a module: {rest:.40}"
            );
            name.to_owned()
        })
        .collect()
}

fn without_tests(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("it is text");
    // Those that need a server are named so, and `make check` leaves them out.
    let tests = ["tests", "on_servers"].map(|name| format!("#[cfg(test)]\nmod {name}"));
    let ends = tests.iter().filter_map(|start| text.find(start));
    text[..ends.min().unwrap_or(text.len())].to_owned()
}

/// A file without its tests and its comments.
pub(crate) fn code(file: &Path) -> String {
    let code = without_tests(file);
    let lines = code.lines();
    lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The top module that a file of `src` is in; none for `lib.rs`, which is above all.
fn module(file: &Path) -> Option<String> {
    let path = relative(file);
    let top = path.strip_prefix("src/")?.split('/').next()?;
    (top != "lib.rs").then(|| top.trim_end_matches(".rs").to_owned())
}

/// The files of `src` that are not all test.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut sources = files("src", "rs");
    sources.retain(|file| module(file).is_none_or(|module| !ABOVE_ALL.contains(&&*module)));
    sources
}

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|row| row.contains(&module));
    found.unwrap_or_else(|| panic!("{module} is in no layer"))
}

pub(crate) fn relative(file: &Path) -> String {
    let path = file.strip_prefix(root()).expect("it is ours");
    path.to_str().expect("our names are plain").to_owned()
}

/// About 350, so that a one-line fix splits no file.
const LONGEST: usize = 360;

const REVIEWED: [(&str, &str); 26] = [
    (
        "lua/diagnosis/permitted.lua",
        "522232903cdc35c8373b4f7d46761d070828d84a",
    ),
    (
        "lua/fenced/acquire.lua",
        "cc4a6c9de5f55ed66fd9189a27822545f805f27d",
    ),
    (
        "lua/fenced/transfer.lua",
        "b47942c07293176fef21972ac45428c7ce620319",
    ),
    (
        "lua/lock/acquire.lua",
        "ee3c7aecf58642d73cc0740b883676ba0bc28e82",
    ),
    (
        "lua/lock/force_unlock.lua",
        "7b86eb2bd1073bc81893a2fb7a828a5b0da97b88",
    ),
    (
        "lua/lock/renew.lua",
        "cc6a3a4ac16a41632901c5927e2a52a124044840",
    ),
    (
        "lua/lock/settle.lua",
        "3a15ba0e98140853f0fd7dad74fd3431b29db7f6",
    ),
    (
        "lua/lock/touch.lua",
        "fddd233ba37c3aab61cc3692f2a80271967a9c1d",
    ),
    (
        "lua/lock/transfer.lua",
        "44bf2ff31cc82203cd5b05837ace66cd4831a762",
    ),
    (
        "lua/lock/unlock.lua",
        "2d5aa19a0834855ea576c28a04cef475970ee058",
    ),
    (
        "lua/multi_lock/acquire.lua",
        "9deb596325f288c0bdab20e4873d5814e3bc4854",
    ),
    (
        "lua/permit/acquire.lua",
        "afbb398110dd73137e6cee61982689f74609e747",
    ),
    (
        "lua/permit/add.lua",
        "849eae3659fc41461f4b31363b7db061f9932b32",
    ),
    (
        "lua/permit/give_back.lua",
        "2767d5e2933acd1a1f6522108e7effd4fe2de141",
    ),
    (
        "lua/permit/release.lua",
        "ba308d76dd73e00d3e9c09ede5e866b08c688b10",
    ),
    (
        "lua/permit/renew.lua",
        "7f6477e9fc5982a4d489aad90768e5680fc223d4",
    ),
    (
        "lua/permit/set.lua",
        "c1b05b4d15f1f7e0711e4918b501eb1d3b971a32",
    ),
    (
        "lua/permit/state.lua",
        "f6794d9de96a6b81a3a1bec66471a4ea02b77e0c",
    ),
    (
        "lua/permit/touch.lua",
        "c70ddca6dfda8a884f995bc9be04e91f3998ab13",
    ),
    (
        "lua/permit/update.lua",
        "88179ed7f2a0d3ba8a54f5edf7d74deee6132289",
    ),
    (
        "lua/read_write/acquire.lua",
        "9616e4b020950e5b6a48eb015eb4c5f65d1ad207",
    ),
    (
        "lua/read_write/renew.lua",
        "9e24045066d3d8cd35c9a670cdfe11b9bcf63d2b",
    ),
    (
        "lua/read_write/unlock.lua",
        "cb895ea7dc03ae24197d6680930f2fdaae9ce526",
    ),
    (
        "lua/red_lock/acquire.lua",
        "2c3fd7ede567513bfac666ab588c20134787c6c0",
    ),
    (
        "lua/red_lock/mark.lua",
        "d82881cb83541f59120fe3ccf0d1630c875d5556",
    ),
    (
        "lua/red_lock/provision.lua",
        "2efa2b6c55766c0b713e0df4fd8f867141fd75af",
    ),
];
