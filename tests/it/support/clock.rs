//! A wall clock of its own for one server, which a test can set.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::binary::root;

/// Makes what a process needs to have a clock of its own, in this folder: its environment.
pub(crate) fn install(folder: &Path) -> [(&'static str, PathBuf); 2] {
    let library = folder.join("clkshim.so");
    if !library.exists() {
        let source = root().join("tests/it/support/clkshim.c");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output()
            .unwrap_or_else(|error| panic!("cc does not start ({error}); tests/setup installs it"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        // A whole page, as the process maps one.
        fs::write(offset(folder), [0; 4096]).expect("the folder can be written");
    }
    [("LD_PRELOAD", library), ("CLKSHIM", offset(folder))]
}

/// Sets the clock this number of seconds ahead of the machine's; behind it if the number is negative.
pub(crate) fn set(folder: &Path, seconds: i64) {
    let file = fs::OpenOptions::new().write(true).open(offset(folder));
    let file = file.expect("it has a clock of its own");
    file.write_all_at(&(seconds * 1000).to_ne_bytes(), 0)
        .expect("it can be written");
}

fn offset(folder: &Path) -> PathBuf {
    folder.join("clock")
}
