//! What the documents point to is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{files, root};

#[test]
fn links_between_documents_have_targets() {
    let mut followed = 0;
    for page in pages(&["README.md", "CHANGELOG.md", "tests/README.md"]) {
        let text = read(&page);
        let folder = page.parent().expect("it is in a folder");
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.starts_with("https://") {
                continue;
            }
            followed += 1;
            let there = folder.join(target).exists();
            assert!(there, "{} links to {target}", page.display());
        }
    }
    assert!(followed > 5, "only {followed} links were found");
}

/// `make bench` writes the page anew and adds the notes. A text that is only on the page would be lost.
#[test]
fn the_page_of_benchmarks_ends_with_its_notes() {
    let page = read(&root().join("docs/benchmarks.md"));
    let notes = read(&root().join("docs/benchmarks/notes.md"));
    assert!(
        page.ends_with(notes.as_str()),
        "docs/benchmarks.md ends with another text than docs/benchmarks/notes.md"
    );
}

/// It is grouped by subject. The numbers have no gaps, so that a reader who looks for one finds it.
#[test]
fn the_index_of_decisions_lists_each_file_once() {
    let folder = root().join("docs/decisions");
    let index = read(&folder.join("README.md"));
    let listed = index.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" | [")?;
        let (title, rest) = rest.split_once("](")?;
        let (file, _) = rest.split_once(')')?;
        let number: usize = number.parse().ok()?;
        Some((number, title.to_owned(), file.to_owned()))
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    let mut names = files("docs/decisions", "md");
    names.retain(|path| !path.ends_with("README.md"));
    assert_eq!(listed.len(), names.len(), "rows and files");
    for (at, (number, title, file)) in listed.iter().enumerate() {
        assert_eq!(*number, at + 1, "{file}");
        assert!(file.starts_with(&format!("{number:04}-")), "{file}");
        let text = read(&folder.join(file));
        let heading = format!("# {number}. {title}\n");
        assert!(text.starts_with(&heading), "{file} has another title");
        for part in ["## Context", "## Decision", "## Evidence"] {
            assert!(
                text.contains(&format!("\n{part}\n")),
                "{file} has no {part}"
            );
        }
    }
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut named = 0;
    for page in pages(&["README.md", "tests/README.md"]) {
        let text = read(&page);
        for line in text.lines() {
            for name in line.split('`').skip(1).step_by(2) {
                if is_test(name) {
                    named += 1;
                    assert!(exists(name), "{} names {name}", page.display());
                }
            }
        }
    }
    assert!(named > 30, "only {named} tests were found");
}

#[test]
fn every_message_in_the_log_is_documented() {
    let documented = read(&root().join("docs/logs.md"));
    let mut found = 0;
    for file in files("src", "rs") {
        for (target, message) in events(&read(&file)) {
            found += 1;
            // Without a target of its own an event has its module's path, which a rename changes.
            let target = target.unwrap_or_else(|| panic!("{message:?} has no target"));
            let (begin, target) = (format!("| `{message}` | "), format!(" | `{target}` | "));
            let mut rows = documented.lines().filter(|row| row.starts_with(&begin));
            let there = rows.any(|row| row.contains(&target));
            assert!(there, "docs/logs.md has no {message:?} of {target}");
        }
    }
    assert!(found > 10, "only {found} messages were found");
}

#[test]
fn every_folder_of_tests_is_described() {
    let page = read(&root().join("tests/README.md"));
    let entries = fs::read_dir(root().join("tests/it")).expect("the folder is there");
    let folders = entries.map(|entry| entry.expect("it can be read").path());
    for folder in folders.filter(|path| path.is_dir()) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = name.expect("our names are plain");
        assert!(
            page.contains(&format!("`{name}`")),
            "tests/README.md has no {name}"
        );
    }
}

/// In both directions: a variable that is read and a variable that is documented.
#[test]
fn the_variables_of_the_tests_are_documented() {
    let page = read(&root().join("tests/README.md"));
    let mut read_by_tests = BTreeSet::new();
    for (folder, extension) in [
        ("src", "rs"),
        ("tests/it", "rs"),
        ("tests/mutants", "patch"),
        ("crates/lockdog-quorum", "rs"),
        ("crates/lockdog-test/tests", "rs"),
    ] {
        for file in files(folder, extension) {
            if file.ends_with("tidy/documents.rs") {
                continue;
            }
            let code = read(&file);
            let quoted = code.split('"').filter(|text| is_variable(text));
            read_by_tests.extend(quoted.map(str::to_owned));
        }
    }
    let script = read(&root().join("tests/run"));
    for expanded in script.split("${").skip(1) {
        let end = expanded.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let name = &expanded[..end.unwrap_or(expanded.len())];
        read_by_tests.extend(is_variable(name).then(|| name.to_owned()));
    }
    for internal in SET_BY_TESTS {
        assert!(read_by_tests.remove(internal), "no test reads {internal}");
    }
    let documented: BTreeSet<String> = page
        .split('`')
        .filter(|text| is_variable(text))
        .map(str::to_owned)
        .collect();
    assert_eq!(documented, read_by_tests);
}

/// What the check of messages relies on.
#[test]
fn events_are_read_to_their_end() {
    let code = "tracing::warn!(\n    a.b = %f(\"x\"),\n    \"one; \\\n     (two)\"\n);
        0 => tracing::debug!(target: \"t\", n, \"three\"),\n        _ => tracing::debug_span!(\"none\"),";
    let expected = [(None, "one; (two)"), (Some("t"), "three")];
    let expected = expected.map(|(target, it)| (target.map(str::to_owned), it.to_owned()));
    assert_eq!(events(code), expected);
}

/// Whether this is the path of a test or of a module with tests.
fn is_test(name: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut parts = name.split("::");
    let known = parts.next().is_some_and(|top| TOPS.contains(&top));
    known && name.contains("::") && parts.all(plain)
}

pub(crate) fn exists(name: &str) -> bool {
    let base = match name.split("::").next() {
        Some("on_servers" | "simulation") => "tests",
        Some("kit") => "crates/lockdog-test/tests",
        _ => "tests/it",
    };
    let has = |path: &str, found: fn(&str, &str) -> bool, what: &str| {
        let path = root().join(base).join(path.replace("::", "/"));
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        let mut there = files.iter().filter(|file| file.exists());
        there.any(|file| found(&read(file), what))
    };
    let (module, last) = name.rsplit_once("::").expect("it is a path");
    has(name, |_, _| true, "")
        || has(
            module,
            |code, name| code.contains(&format!("fn {name}(")),
            last,
        )
}

/// The events in a file: the target of each, and its message, which is its last literal, as it is logged.
fn events(code: &str) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    for call in code.split("tracing::").skip(1) {
        let Some((level, rest)) = call.split_once("!(") else {
            continue;
        };
        if !LEVELS.contains(&level) {
            continue;
        }
        let target = rest.trim_start().strip_prefix("target: \"");
        let target = target.and_then(|it| Some(it.split_once('"')?.0.to_owned()));
        let (mut depth, mut message, mut literal) = (1, None, None::<String>);
        let mut rest = rest.chars();
        while let Some(c) = rest.next() {
            match (&mut literal, c) {
                (Some(_), '"') => message = literal.take(),
                (Some(text), '\\') => match rest.next() {
                    // A line that continues behind the blanks of the next one.
                    Some('\n') => {
                        let more = rest.as_str().trim_start();
                        rest = more.chars();
                    }
                    escaped => text.extend(escaped),
                },
                (Some(text), c) => text.push(c),
                (None, '"') => literal = Some(String::new()),
                (None, '(') => depth += 1,
                (None, ')') => depth -= 1,
                (None, _) => {}
            }
            if depth == 0 {
                break;
            }
        }
        let message = message.unwrap_or_else(|| panic!("an event without a message: {call:.80}"));
        found.push((target, message));
    }
    found
}

/// The documents, and these files beside them.
fn pages(others: &[&str]) -> Vec<PathBuf> {
    let mut pages = files("docs", "md");
    pages.extend(others.iter().map(|other| root().join(other)));
    pages
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it is text")
}

fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("LOCKDOG_").unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// A test sets them for a process that it starts.
const SET_BY_TESTS: [&str; 2] = ["LOCKDOG_TEST_ALONE", "LOCKDOG_TEST_CHILD"];

/// The modules with tests.
const TOPS: [&str; 28] = [
    "abandoned",
    "cluster",
    "diagnose",
    "election",
    "examples",
    "fair",
    "faults",
    "group",
    "hand_over",
    "harness",
    "interop",
    "kit",
    "latch",
    "lock",
    "model",
    "multi_lock",
    "on_servers",
    "permits",
    "read_write",
    "red_lock",
    "regressions",
    "replicas",
    "runtimes",
    "semaphore",
    "sentinel",
    "settings",
    "simulation",
    "watchdog",
];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
