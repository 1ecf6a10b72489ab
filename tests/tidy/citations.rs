//! What is promised is shown by a test that says so: each invariant of the design, and each case of the catalogue.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::documents::exists;
use crate::{files, root};

#[test]
fn every_invariant_of_the_design_is_cited_by_a_test() {
    let design = read(&root().join("docs/design.md"));
    let invariants = invariants(&design);
    assert!(invariants.len() > 50, "only {} found", invariants.len());
    let mut cited = BTreeSet::new();
    for file in tests() {
        for comment in comments(&read(&file)) {
            cited.extend(ids(comment));
        }
    }
    let missing: Vec<_> = invariants.difference(&cited).collect();
    assert!(missing.is_empty(), "no test says that it shows {missing:?}");
}

#[test]
fn every_case_of_the_catalogue_names_a_test_that_exists() {
    let catalogue = read(&root().join("tests/catalogue.md"));
    let mut cases = BTreeSet::new();
    for row in catalogue.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [case, _, covered_by] = cells[..] else {
            panic!("{row} has other cells");
        };
        let case = case.trim();
        if ["case", "---"].contains(&case) {
            continue;
        }
        assert!(cases.insert(case), "{case} is there twice");
        let tests: Vec<&str> = covered_by.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{case} names no test");
        for test in tests {
            let is_there = match test.starts_with("src/") {
                true => root().join(test).exists(),
                false => exists(test),
            };
            assert!(is_there, "{case} names {test}");
        }
    }
    assert!(cases.len() >= 200, "only {} cases", cases.len());
}

/// What the first check relies on.
#[test]
fn ids_are_found_in_comments_and_in_the_design() {
    let design = "12. no\n## Invariants\n1. **One.** It.\n   - It is.\n- FA2. Two.\n- Three.\n## Layers\n3. no";
    assert_eq!(invariants(design), set(&["1", "FA2"]));
    let code =
        "//! FA1\nfn one() {} // FA2\n    /// FA3: it.\n// Invariants 4 and 5,\nlet x = \"FA6\";";
    let found: Vec<&str> = comments(code).collect();
    assert_eq!(found, [" FA2", " FA3: it.", " Invariants 4 and 5,"]);
    assert_eq!(ids("FA6 and LE4: those"), set(&["FA6", "LE4"]));
    assert_eq!(ids("of PE1 to PE3."), set(&["PE1", "PE2", "PE3"]));
    assert_eq!(
        ids("Design: invariants 3, 6 and 12. 4 of"),
        set(&["3", "6", "12"])
    );
    assert_eq!(ids("invariant 9, for 2 locks"), set(&["9"]));
}

/// The ids in the list of the invariants: `7`, `FA2`.
fn invariants(design: &str) -> BTreeSet<String> {
    let (_, section) = design
        .split_once("## Invariants\n")
        .expect("they are there");
    let section = section.split("\n## ").next().expect("a split has a part");
    let ids = section.lines().filter_map(|line| {
        let id = line.strip_prefix("- ").unwrap_or(line).split_once(". ")?.0;
        let is_listed = line.starts_with("- ") == is_named(id);
        (is_listed && (is_named(id) || is_number(id))).then(|| id.to_owned())
    });
    ids.collect()
}

/// The ids that a comment names. A range names all of its ids.
fn ids(comment: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let words: Vec<&str> = comment.split(|c: char| !c.is_alphanumeric()).collect();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is_named(word)) {
        found.insert((*word).to_owned());
        if let Some(["to", last]) = words.get(at + 1..at + 3)
            && is_named(last)
        {
            let number = |id: &str| id[2..].parse::<u32>().expect("it is a number");
            let range = number(word)..=number(last);
            found.extend(range.map(|n| format!("{}{n}", &word[..2])));
        }
    }
    for rest in comment.split("nvariant").skip(1) {
        // A list: `s 3, 6 and 12`.
        let mut rest = rest.trim_start_matches('s').trim_start();
        loop {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            let (number, behind) = rest.split_at(end.unwrap_or(rest.len()));
            if number.is_empty() {
                break;
            }
            found.insert(number.to_owned());
            let next = behind.strip_prefix(", ");
            let Some(next) = next.or_else(|| behind.strip_prefix(" and ")) else {
                break;
            };
            rest = next;
        }
    }
    found
}

/// Two letters and a number: `FA2`.
fn is_named(id: &str) -> bool {
    let (letters, number) = id.split_at_checked(2).unwrap_or_default();
    letters.chars().all(|c| c.is_ascii_uppercase()) && is_number(number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

/// The comments of code, those of whole modules apart: a module says what its subject is.
fn comments(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let (_, comment) = line.split_once("//")?;
        let comment = comment.strip_prefix('/').unwrap_or(comment);
        (!comment.starts_with('!')).then_some(comment)
    })
}

/// The files with tests. Those of single functions, in the source of the library, do not count.
fn tests() -> Vec<PathBuf> {
    let mut tests = files("tests/it", "rs");
    tests.extend(files("tests/simulation", "rs"));
    tests.extend(files("tests/on_servers", "rs"));
    for member in ["crates/lockdog-quorum/tests", "crates/lockdog-test/tests"] {
        tests.extend(files(member, "rs"));
    }
    tests
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it is text")
}
