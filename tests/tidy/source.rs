//! The order of the source, checked: layers, scripts, sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{files, root};

/// From the top; a module may use those of lower rows only. `docs/design.md` has the same table.
const LAYERS: [&[&str]; 19] = [
    &["client"],
    &[
        "election",
        "latch",
        "permit_semaphore",
        "read_write_lock",
        "semaphore",
        "survey",
    ],
    &["permits"],
    &["multi_lock", "red_lock"],
    &["lock"],
    &["object"],
    &["request"],
    &["guard"],
    &["watchdog"],
    &["contend"],
    &["session"],
    &["diagnosis"],
    &["wait", "script"],
    &["hold"],
    &["server"],
    &["observe"],
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

/// Services of two versions of this crate work on the same locks. A change of a script needs a new digest
/// here, and with it the decision that both versions are compatible.
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
    for file in sources().into_iter().chain(sources_of_members()) {
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
    let tests = ["tests", "on_servers"].map(|name| format!("#[cfg(test)]\nmod {name} {{"));
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

/// The files of the other crates that are not all test.
pub(crate) fn sources_of_members() -> Vec<PathBuf> {
    let mut sources = files("crates", "rs");
    sources.retain(|file| {
        let path = relative(file);
        let source = path.split_once("/src/").map(|(_, source)| source);
        source.is_some_and(|it| !it.starts_with("tests/") && it != "tests.rs")
    });
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

const REVIEWED: [(&str, &str); 55] = [
    (
        "lua/diagnosis/permitted.lua",
        "b72c8aa828d8427c3761c993391a90a0d40b375f",
    ),
    (
        "lua/election/acquire.lua",
        "6f1dbc86e2879902d1815d503cd6097160a5a7c6",
    ),
    (
        "lua/election/force_unlock.lua",
        "bad8f12b2d18a7cc9e96a9b4e8450a560f37d938",
    ),
    (
        "lua/election/leader.lua",
        "bda799f1aa8b299c9eb10dc4682ed6cf1586e4dd",
    ),
    (
        "lua/election/proclaim.lua",
        "31c1c660c04369428b2f7582c4787f55f9a867b8",
    ),
    (
        "lua/election/renew.lua",
        "a6986ef7b581184a25189410cb0d60ce42d306a4",
    ),
    (
        "lua/election/transfer.lua",
        "7c84d79f9ad383f3a53ed56094056806c18abe5c",
    ),
    (
        "lua/election/unlock.lua",
        "2f3730fe2b693c9f858016710eddcc54b3790c31",
    ),
    (
        "lua/fair/acquire.lua",
        "091dc6984e526bb97fa088d9c5539785c1a0d8fe",
    ),
    (
        "lua/fair/force_unlock.lua",
        "55b6b49301aff7f6e5285e04891fd75da1f652e9",
    ),
    (
        "lua/fair/transfer.lua",
        "0906700afb68822cc2395f9e09d3c328f27f8411",
    ),
    (
        "lua/fair/unlock.lua",
        "1c6e0a1324a92589e0ea5d054475cd9c2b62b76b",
    ),
    (
        "lua/fenced/acquire.lua",
        "2dede738c0c58da95b03092853bfec6433bb9e8f",
    ),
    (
        "lua/fenced/transfer.lua",
        "fd75834a4870bbf57d5824ca112d29f2d6feabdb",
    ),
    (
        "lua/group/acquire.lua",
        "ef4c57f3b0c5509e03c252d1b782f897c509bb3a",
    ),
    (
        "lua/group/force_unlock.lua",
        "f4b388360f4233be2b16985acc7cc8271f675da4",
    ),
    (
        "lua/group/holders.lua",
        "a77b50b1f3fe3d5657eb6b9072b789d34ff691d1",
    ),
    (
        "lua/group/renew.lua",
        "afbd898b6b20c280a692dcf4e23352ff9b32c22d",
    ),
    (
        "lua/group/touch.lua",
        "458829f796a0d050421bc7ba949f186ad374bf2e",
    ),
    (
        "lua/group/unlock.lua",
        "da3b5ead22e065f79b3a65325b04398acd22c6bd",
    ),
    (
        "lua/latch/count_down.lua",
        "80cff1e9f5201131e5d46101f1b88d9482cd1db7",
    ),
    (
        "lua/latch/delete.lua",
        "84377bef45c922a283de45df95efdf1607f2865f",
    ),
    (
        "lua/latch/try_set.lua",
        "652f928d215790a5af82fa7bb585b749278404d2",
    ),
    (
        "lua/lock/acquire.lua",
        "2706258ce6a9b23828d3d6043dde3e7e495fa86e",
    ),
    (
        "lua/lock/batch.lua",
        "aeb60798debbb0352f0a8c4675dde2c9e73e0f03",
    ),
    (
        "lua/lock/force_unlock.lua",
        "87d4ac9ff2a10d7a618495054fa1516d39afeaf8",
    ),
    (
        "lua/lock/linger.lua",
        "e6a09789dc37eb1274876e310a39be7187cb86ef",
    ),
    (
        "lua/lock/renew.lua",
        "0c1f5e413dfae4b3813b53e4805bb26f4d508881",
    ),
    (
        "lua/lock/settle.lua",
        "6bf8621a437b6903202f74db5d8b4ff8ce381a6c",
    ),
    (
        "lua/lock/touch.lua",
        "786ad5535919c066aad4129496ed35c17b950408",
    ),
    (
        "lua/lock/transfer.lua",
        "d582abdea606d05a65bf071317f006b6dbc30264",
    ),
    (
        "lua/lock/unlock.lua",
        "7e727ca19f90d75961929bdadaffb3c47ce3f4a3",
    ),
    (
        "lua/multi_lock/acquire.lua",
        "44bb9f063213a96d4979c62447d713b42e9cca1d",
    ),
    (
        "lua/permit/acquire.lua",
        "3edd394bbe15f04d62d7b9fcac1590db66529384",
    ),
    (
        "lua/permit/add.lua",
        "9b10dff220c73d25ef58fbbca0ba0d842c8a75ad",
    ),
    (
        "lua/permit/give_back.lua",
        "5d4789cf5f9ddf718beeec77921dfed28a384d87",
    ),
    (
        "lua/permit/release.lua",
        "82cacb4b7c99ee104e5995371b3962f2be9f3f98",
    ),
    (
        "lua/permit/renew.lua",
        "8938286de40dd94b24ee2cdcbcc93afc228b9e3c",
    ),
    (
        "lua/permit/set.lua",
        "1010b31612ff603f924fbf6b2212b3d3f4dbf3f9",
    ),
    (
        "lua/permit/state.lua",
        "fceb956c24051054fca228889aee27053cfd7727",
    ),
    (
        "lua/permit/touch.lua",
        "2bfa5b5a2dad03de39fd47db56d89aaaf081ec9c",
    ),
    (
        "lua/permit/update.lua",
        "78b2dbfe6797bb57df221fc992f7d69f5206f75d",
    ),
    (
        "lua/read_write/acquire.lua",
        "3424829fdc9c9bb6687bd04b26ac1dd1ef004a4f",
    ),
    (
        "lua/read_write/readers.lua",
        "93868bb00dea3b5796ec431153798850661583a5",
    ),
    (
        "lua/read_write/renew.lua",
        "9e24045066d3d8cd35c9a670cdfe11b9bcf63d2b",
    ),
    (
        "lua/read_write/unlock.lua",
        "d7cce8e0a83b1f53f16af9a7368174311c64b88f",
    ),
    (
        "lua/red_lock/acquire.lua",
        "623407e6ddbf972ef8ec225c219c1c80eead920a",
    ),
    (
        "lua/red_lock/mark.lua",
        "390c74419f3f62101584b978642b5b2dd00cef24",
    ),
    (
        "lua/red_lock/provision.lua",
        "336422d2941832fb475045b9b66432deb043125b",
    ),
    (
        "lua/semaphore/acquire.lua",
        "0e7daa3d3aebf12dead11e92bfe9659468e04013",
    ),
    (
        "lua/semaphore/reclaim.lua",
        "4edf834f56ce63002d7da1d275b5aeae34287cc3",
    ),
    (
        "lua/semaphore/release.lua",
        "56d7ce60251e37c653e6a509d0d70480135366c6",
    ),
    (
        "lua/semaphore/state.lua",
        "57a165b3602563351c9027aedc1ac4d9095bc4b2",
    ),
    (
        "lua/semaphore/transfer.lua",
        "77c37fb999ab46d71d9a4fe7b21e65435bba86b2",
    ),
    (
        "lua/semaphore/try_set.lua",
        "60fe4bcc9fc28342a94caa99014441359ec7ffc3",
    ),
];
