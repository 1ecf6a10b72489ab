//! Measures lockdog beside the bare protocol, Redisson, redsync and rslock.
//!
//! `compare [options]` is the runner: it owns the servers, asks one program a library in turn, and
//! writes the report. `compare drive <library>` is such a program, for the libraries in Rust; those
//! in Java and Go are in `benches/peers`. `protocol` is what they say to each other.

mod drive;
mod protocol;
mod run;

use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["drive", "leader", url, name, lease_ms] => drive::lead(url, name, lease_ms),
        ["drive", "waiters", url, name, lease_ms, waiters] => {
            drive::wait_in_line(url, name, lease_ms, waiters)
        }
        ["drive", library] => drive::serve(library),
        _ => run::run(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}
