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
    &["lock_request"],
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

/// Tests of everything above the connection, and what they rely on, so they are in no layer.
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

/// What the checks above rely on.
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

const REVIEWED: [(&str, &str); 56] = [
    (
        "lua/diagnosis/permitted.lua",
        "f33f88da2d23907b9f9d5ebb04d51cd39022bd1e",
    ),
    (
        "lua/election/acquire.lua",
        "3aa6a6f017ee4661284709929f739032e8d9c66f",
    ),
    (
        "lua/election/force_unlock.lua",
        "ca7ecc10fc0efc493f3212da92f5612013993b82",
    ),
    (
        "lua/election/leader.lua",
        "7402d5b5aa390587eb6cc761450f43b5e651ec46",
    ),
    (
        "lua/election/proclaim.lua",
        "823d88859a58d3b2fdbe9529392d9ea54bfd36c4",
    ),
    (
        "lua/election/renew.lua",
        "a162282f5ebc5a53832a321a12d8c1cb867597ea",
    ),
    (
        "lua/election/transfer.lua",
        "7135be36ee8855a4d3296105322cf6f1c54bc46e",
    ),
    (
        "lua/election/unlock.lua",
        "e1e8915d3548e5c88dc3ad8e1c6e38c240b92a45",
    ),
    (
        "lua/fair/acquire.lua",
        "dc82331f3463fe710815adfbccc546ae4a989011",
    ),
    (
        "lua/fair/force_unlock.lua",
        "ccd95c53f2bbc59a3495169a11b211739cb941ed",
    ),
    (
        "lua/fair/transfer.lua",
        "cc132d850d18c3118c3c9775dddc36d717f0ec0b",
    ),
    (
        "lua/fair/unlock.lua",
        "0340f36a289d78a334751ceca210b16faa38176d",
    ),
    (
        "lua/fenced/acquire.lua",
        "2a438f40cd0cdd487935c93338443d72da5100d4",
    ),
    (
        "lua/fenced/transfer.lua",
        "56b45a6351b90aaa595551c2c2faa2fc54bada99",
    ),
    (
        "lua/group/acquire.lua",
        "bfcc8aff519a6c28a87a08a3f04c65f130961683",
    ),
    (
        "lua/group/force_unlock.lua",
        "bfc83e5faf14cded5c747c5f32be8c7a305336ad",
    ),
    (
        "lua/group/holders.lua",
        "883eff8ae3a4e746b995c39aa717e7e4fb1bbf06",
    ),
    (
        "lua/group/renew.lua",
        "372884e830042da0f11d6b21c3f662aa6181411a",
    ),
    (
        "lua/group/touch.lua",
        "1e33e8a949a265f36111d0debdc9e5767ac49916",
    ),
    (
        "lua/group/unlock.lua",
        "259dfbc0a216b88fa921f2d425396e2b9faa994e",
    ),
    (
        "lua/latch/count_down.lua",
        "b42195fd40d1044921cb6b7b2d3f47a7438d0afc",
    ),
    (
        "lua/latch/delete.lua",
        "4429ec36063bfb819f55e457ce2132ef9cd48c18",
    ),
    (
        "lua/latch/try_set.lua",
        "59b18ae72bbc71efd2433c90bc59264876a62c50",
    ),
    (
        "lua/lock/acquire.lua",
        "2706258ce6a9b23828d3d6043dde3e7e495fa86e",
    ),
    (
        "lua/lock/batch.lua",
        "90677651e9413223175cac65e0cf8641c52b238d",
    ),
    (
        "lua/lock/contend.lua",
        "6bca3b7ebf87e092df4332b021ee3a42a44157ff",
    ),
    (
        "lua/lock/force_unlock.lua",
        "b91d01354b32773214f06a832779da77cc704ae3",
    ),
    (
        "lua/lock/linger.lua",
        "9951dbeaa5f424e111022dae8cad90dbb40ae210",
    ),
    (
        "lua/lock/renew.lua",
        "2144b9bb1bdcfcff20767f830175c513f6fdb3a8",
    ),
    (
        "lua/lock/settle.lua",
        "692f03776040ce59445ba02c5a753d7624e66284",
    ),
    (
        "lua/lock/touch.lua",
        "786ad5535919c066aad4129496ed35c17b950408",
    ),
    (
        "lua/lock/transfer.lua",
        "8559e78019b0f6ca9c72e6c44c54be2687ba807d",
    ),
    (
        "lua/lock/unlock.lua",
        "3f64a4b71284d3adf2b2aa45a34e98aa2bf9bd05",
    ),
    (
        "lua/multi_lock/acquire.lua",
        "44bb9f063213a96d4979c62447d713b42e9cca1d",
    ),
    (
        "lua/permit/acquire.lua",
        "284b3f354529e42daf9c4aeee094c61e75ab0443",
    ),
    (
        "lua/permit/add.lua",
        "fa47364dd0a98b6e755d304e20804225a2906816",
    ),
    (
        "lua/permit/give_back.lua",
        "d928c7331464fcd774fbd196bbf969c0b05b0a8c",
    ),
    (
        "lua/permit/release.lua",
        "323c860946c3d566ac1691c40675c6a2f1fb92dc",
    ),
    (
        "lua/permit/renew.lua",
        "be98b1fb3c21c6d847df839887e9a6c076d94f13",
    ),
    (
        "lua/permit/set.lua",
        "504266d63d54cc3c345322c21d78b02d3a026e97",
    ),
    (
        "lua/permit/state.lua",
        "3f81d8d462ea4d4d67181e321f8d339e51f268f7",
    ),
    (
        "lua/permit/touch.lua",
        "52b529d394f9c533c44097d1aeab302cfbc41782",
    ),
    (
        "lua/permit/update.lua",
        "cfae33b90e80ad2f8d52eb1996ab9e9d9631d487",
    ),
    (
        "lua/read_write/acquire.lua",
        "69875cd2611e24b5703a0fc7330d0a5ece8d772c",
    ),
    (
        "lua/read_write/readers.lua",
        "bf89f332c02fdfda25171f5e1c712883081044fb",
    ),
    (
        "lua/read_write/renew.lua",
        "78072e28f3c3ee5815f85a15f7cd537989622e01",
    ),
    (
        "lua/read_write/unlock.lua",
        "d655faf651e4889371d1f6e5711436626d2b574d",
    ),
    (
        "lua/red_lock/acquire.lua",
        "bab846c75adf69b8d224e31178c35eddf667bc9a",
    ),
    (
        "lua/red_lock/mark.lua",
        "374f8c56c940556401d991cf12e28d63ae63d627",
    ),
    (
        "lua/red_lock/provision.lua",
        "8d1a3008da5e5e361900f6c3d705ed1e03890d9d",
    ),
    (
        "lua/semaphore/acquire.lua",
        "e8e6e4394baf8f23e7e10e9e52000766b8da1eb5",
    ),
    (
        "lua/semaphore/reclaim.lua",
        "5fdd3bc64b9cd07cdcd63ccf258f6c73e6c14ad0",
    ),
    (
        "lua/semaphore/release.lua",
        "03af4dddb69e4e3cce39afa82d096f8f0ef9ca9d",
    ),
    (
        "lua/semaphore/state.lua",
        "bc84f46126d175f3e36848ef3708403b61f3441a",
    ),
    (
        "lua/semaphore/transfer.lua",
        "5fb1409d3827b6a89d0b4ec63035f46f24676b80",
    ),
    (
        "lua/semaphore/try_set.lua",
        "b65d71dcd77862db8555cafe36d48f7e5f28b8f5",
    ),
];
