//! What `cargo publish` would upload.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

#[test]
fn the_packages_are_small_and_hold_no_test_recording_or_benchmark() {
    for folder in packages() {
        let listed = Command::new(env!("CARGO"))
            .args([
                "package",
                "--list",
                "--allow-dirty",
                "--locked",
                "--offline",
            ])
            // The workspace has more default members than this.
            .args(["--package", &name(&folder)])
            .current_dir(&folder)
            .output()
            .expect("cargo runs");
        let why = String::from_utf8_lossy(&listed.stderr);
        assert!(listed.status.success(), "{}: {why}", folder.display());
        let listed = String::from_utf8(listed.stdout).expect("our names are plain");
        let mut bytes = 0;
        for file in listed.lines() {
            let parts: BTreeSet<&str> = file.split(['/', '.']).collect();
            let wrong = LEFT_OUT.iter().find(|part| parts.contains(*part));
            assert!(wrong.is_none(), "{}: {file}", folder.display());
            let there = match file {
                // cargo makes it of that of the workspace.
                "Cargo.lock" => root().join(file),
                "Cargo.toml.orig" => folder.join("Cargo.toml"),
                _ => folder.join(file),
            };
            bytes += fs::metadata(there).map_or(0, |file| file.len());
        }
        for needed in [
            "Cargo.toml",
            "README.md",
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "src/",
        ] {
            assert!(listed.contains(needed), "{}: {needed}", folder.display());
        }
        assert!(bytes <= LARGEST, "{} has {bytes} bytes", folder.display());
        assert!(bytes > 20_000, "{} has {bytes} bytes", folder.display());
    }
}

#[test]
fn each_package_says_what_crates_io_shows() {
    let mut with_an_address = Vec::new();
    for folder in packages() {
        let text = fs::read_to_string(folder.join("Cargo.toml")).expect("it is there");
        let (_, text) = text.split_once("[package]").expect("it is a package");
        let text = text.split("\n[").next().unwrap_or_default();
        let keys: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split_once(['=', '.']))
            .map(|(key, _)| key.trim())
            .collect();
        for key in [
            "categories",
            "description",
            "documentation",
            "edition",
            "include",
            "keywords",
            "license",
            "readme",
            "rust-version",
            "version",
        ] {
            assert!(keys.contains(key), "{} has no {key}", folder.display());
        }
        with_an_address.push(keys.contains("repository"));
    }
    // The project may have no public address yet. If it has one, it is that of every crate.
    with_an_address.dedup();
    assert_eq!(with_an_address.len(), 1, "only some have a repository");
}

/// The folders of all packages that are published.
fn packages() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("it is a folder");
    let folders = crates.map(|entry| entry.expect("it can be read").path());
    let folders = folders.filter(|path: &PathBuf| path.join("Cargo.toml").exists());
    let mut packages: Vec<PathBuf> = folders.collect();
    packages.push(Path::new(root()).to_owned());
    packages
}

/// The name of the package in this folder.
fn name(folder: &Path) -> String {
    if folder == root() {
        return "lockdog".to_owned();
    }
    let name = folder.file_name().expect("it is in a folder");
    name.to_string_lossy().into_owned()
}

/// Parts of the names of files that are no part of a library.
const LEFT_OUT: [&str; 7] = [
    "benches",
    "fixtures",
    "golden",
    "patches",
    "proptest-regressions",
    "tests",
    "target",
];

/// Of the unpacked files: 2.5 MiB.
const LARGEST: u64 = 5 * 512 * 1024;
