//! Where and with what it was measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::root;

/// Lines of Markdown: machine, versions.
pub(crate) fn lines(server: &str, core: Option<usize>) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let bound = core.map_or_else(
        || "servers and clients on any".to_owned(),
        |core| format!("servers bound to core {core}, clients on any"),
    );
    vec![
        format!(
            "- Machine: {}, {cores} cores, Linux {}; {bound}.",
            processor(),
            read("/proc/sys/kernel/osrelease").trim()
        ),
        format!(
            "- Server: redis-server {server}, persistence off, loopback; for W6 five of them on the same machine."
        ),
        format!(
            "- lockdog {}, commit {}; rslock {}; redis-rs {}, tokio {}; {}.",
            locked("lockdog"),
            first_line_of("git", &["describe", "--always", "--dirty"]),
            locked("rslock"),
            locked("redis"),
            locked("tokio"),
            first_line_of("rustc", &["--version"]),
        ),
        format!(
            "- Redisson {} on {}; redsync {} with {}.",
            maven("redisson"),
            first_line_of("java", &["-version"]).replace('"', ""),
            module("redsync/v4"),
            first_line_of("go", &["version"]).replace("go version ", ""),
        ),
        format!("- Date: {}.", first_line_of("date", &["-u", "+%F"])),
    ]
}

/// One line about workloads that were measured in a run of their own.
pub(crate) fn of_some(workloads: &str, command: &str, minutes: f64) -> String {
    format!(
        "- {workloads}: measured in a run of their own on {}, commit {}, `{command}`; it took {minutes:.0} minutes. \
         The machine's load averages at its end were {}.",
        first_line_of("date", &["-u", "+%F"]),
        first_line_of("git", &["describe", "--always", "--dirty"]),
        read("/proc/loadavg")
            .split(' ')
            .take(3)
            .collect::<Vec<&str>>()
            .join(", "),
    )
}

fn processor() -> String {
    let info = read("/proc/cpuinfo");
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": "));
    name.map_or("unknown", |(_, name)| name).to_owned()
}

/// The version that this program is built with.
fn locked(package: &str) -> String {
    let name = format!("name = \"{package}\"\nversion = \"");
    between(include_str!("../../../Cargo.lock"), &name, "\"")
}

fn maven(artifact: &str) -> String {
    let pom = read(root().join("benches/peers/redisson/pom.xml"));
    let rest = between(
        &pom,
        &format!("<artifactId>{artifact}</artifactId>"),
        "</version>",
    );
    rest.trim().trim_start_matches("<version>").to_owned()
}

fn module(name: &str) -> String {
    let modules = read(root().join("benches/peers/redsync/go.mod"));
    between(&modules, &format!("{name} "), "\n")
}

fn between(text: &str, before: &str, after: &str) -> String {
    let found = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after));
    found.map_or("unknown", |(found, _)| found).to_owned()
}

/// The first line that a program prints; some print it to standard error.
fn first_line_of(program: &str, args: &[&str]) -> String {
    let Ok(done) = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
    else {
        return format!("no {program}");
    };
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
