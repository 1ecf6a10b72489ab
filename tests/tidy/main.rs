//! What holds of the texts: the order of the source, and what the documents say of it.
//!
//! No server, no client: it reads files.

#![allow(clippy::disallowed_methods, reason = "the bans are for the library")]

mod api;
mod circles;
mod citations;
mod documents;
mod mutants;
mod packages;
mod source;
mod suite;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder whose names end so.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "there is nothing to check in {folder}");
    found
}
