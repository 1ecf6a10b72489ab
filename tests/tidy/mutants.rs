//! The patches of the mutants (`tests/mutants`) fit the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

/// What every mutant needs: the patch that adds the switch.
const SWITCH: &str = "_switch";

/// Each mutant must apply alone, and all together: one build has them all. Git takes a place that moved,
/// and no other context.
///
/// They are applied in one order and in the reverse. A patch that needs the lines of another one, or lines
/// that another one changes, comes after it and before it, and fails once. So all apply alone, and two
/// processes show it.
#[test]
fn the_patches_of_the_mutants_apply() {
    let copy = tempfile::tempdir().expect("a folder for the copy");
    let mutants = names();
    let patches = mutants.iter().map(String::as_str).chain([SWITCH]);
    for file in patches.flat_map(changed_by) {
        let from = root().join(&file);
        // If it is gone, git reports the patch that needs it.
        if from.exists() {
            let to = copy.path().join(&file);
            fs::create_dir_all(to.parent().expect("it is in the copy")).expect("a folder");
            fs::copy(from, to).expect("the file is copied");
        }
    }
    let mut all: Vec<&str> = mutants.iter().rev().map(String::as_str).collect();
    all.insert(0, SWITCH);
    let reversed = apply(copy.path(), &all, &["--check"]);
    all[1..].reverse();
    let applied = reversed.and_then(|()| apply(copy.path(), &all, &[]));
    if let Err(reason) = applied {
        let alone: String = mutants
            .iter()
            .filter_map(|name| apply(copy.path(), &[SWITCH, name], &["--check"]).err())
            .collect();
        assert!(
            alone.is_empty(),
            "these patches in tests/mutants/patches do not apply any more: write them again with \
             tests/mutants/refresh (tests/README.md)\n{alone}"
        );
        panic!("a mutant is too near to another one: move its change\n{reason}");
    }
    let switch = copy.path().join("crates/lockdog-quorum/src/mutant.rs");
    assert!(switch.exists(), "git applied nothing");
}

#[test]
fn each_mutant_says_what_it_is_and_has_its_own_switch() {
    let sources: Vec<String> = ["src", "tests", "crates"]
        .iter()
        .flat_map(|folder| texts(folder, "rs"))
        .collect();
    let functions = sources.iter().flat_map(|text| text.split("fn ").skip(1));
    let tests: BTreeSet<&str> = functions
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    for name in names() {
        let text = text(&name);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.ends_with('.'), "{name} begins with no description");
        // `tests/mutants/run` would not find another text.
        let above = text.lines().take_while(|line| !line.starts_with("diff "));
        let mut found_by = above.filter_map(|line| line.strip_prefix("Found by"));
        if let Some(found_by) = found_by.next() {
            let is_known = match found_by.rsplit_once("::") {
                Some((path, test)) => path.starts_with(": ") && tests.contains(test),
                None => [": no end", ": crash"].contains(&found_by),
            };
            assert!(
                is_known,
                "{name} is found by an unknown test or end{found_by}"
            );
        }
        assert_eq!(found_by.next(), None, "{name} has several lines `Found by`");
        let switches: BTreeSet<&str> = text
            .lines()
            .filter(|line| line.starts_with('+'))
            .flat_map(|line| line.split("is_wanted(\"").skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(switches, BTreeSet::from([&*name]), "the switches of {name}");
    }
}

/// Some mutants replace a text of a script when the program runs. A replacement that finds nothing would make
/// no defect, and the tests would seem to miss it.
#[test]
fn each_text_that_a_mutant_replaces_is_in_a_script() {
    let scripts = texts("lua", "lua");
    let mut replaced = 0;
    for name in names() {
        let added = text(&name);
        let added = added.lines().filter(|line| line.starts_with('+'));
        for rest in added.flat_map(|line| line.split("text.replace(").skip(1)) {
            let literal = rest
                .strip_prefix('"')
                .and_then(|rest| rest.split_once("\", "));
            let (literal, _) = literal.unwrap_or_else(|| panic!("{name} replaces no plain text"));
            let wanted = literal.replace("\\n", "\n");
            assert!(
                scripts.iter().any(|script| script.contains(&wanted)),
                "{name} replaces a text that no script has: {wanted}"
            );
            replaced += 1;
        }
    }
    assert!(replaced >= 10, "only {replaced} replacements were found");
}

/// The texts of all files in a folder with this extension.
fn texts(folder: &str, extension: &str) -> Vec<String> {
    let files = crate::files(folder, extension);
    let read = |file| fs::read_to_string(file).expect("it is text");
    files.into_iter().map(read).collect()
}

/// The mutants, without the patch of the switch.
fn names() -> Vec<String> {
    let files = crate::files("tests/mutants/patches", "patch");
    let names = files.iter().map(|file| {
        let name = file.file_stem().and_then(|name| name.to_str());
        name.expect("our names are plain").to_owned()
    });
    let mut names: Vec<String> = names.filter(|name| name != SWITCH).collect();
    names.sort();
    names
}

fn path(name: &str) -> PathBuf {
    root().join(format!("tests/mutants/patches/{name}.patch"))
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).expect("it is text")
}

/// The files that a patch changes and does not add.
fn changed_by(name: &str) -> Vec<String> {
    let text = text(name);
    let files = text.lines().filter_map(|line| line.strip_prefix("--- a/"));
    files.map(str::to_owned).collect()
}

/// Applies all of these patches in a folder, in this order, or none. Fails with the name of the last one and
/// what git says.
fn apply(folder: &Path, names: &[&str], options: &[&str]) -> Result<(), String> {
    let output = Command::new("git")
        .current_dir(folder)
        // Inside a repository git would read the paths from its root, and apply nothing without an error.
        .env("GIT_DIR", "/dev/null")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args(["apply", "--whitespace=nowarn"])
        .args(options)
        .args(names.iter().map(|name| path(name)))
        .output()
        .expect("git is installed");
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = names.last().expect("there is one");
    Err(format!("{last}:\n{errors}"))
}
