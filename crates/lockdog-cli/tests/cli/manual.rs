//! The help, the manual pages and the completions.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::program::{Ended, Files, lockdog_at};

const COMMANDS: [&str; 11] = [
    "run",
    "ls",
    "inspect",
    "release",
    "watch",
    "top",
    "doctor",
    "bench",
    "config",
    "completions",
    "man",
];

/// No command of this file connects.
async fn lockdog(args: &[&str]) -> Ended {
    lockdog_at("redis://127.0.0.1:1", args).end().await
}

#[tokio::test]
async fn every_command_has_help() {
    let ended = lockdog(&["--help"]).await.code(0);
    for command in COMMANDS {
        assert!(
            ended.stdout.contains(&format!("  {command} ")),
            "{}",
            ended.stdout
        );
        let help = lockdog(&[command, "--help"]).await.code(0);
        assert!(
            help.stdout.contains(&format!("Usage: lockdog {command}")),
            "{}",
            help.stdout
        );
    }
    assert!(
        lockdog(&["--version"])
            .await
            .code(0)
            .stdout
            .starts_with("lockdog ")
    );
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let files = Files::new();
    let folder = files.folder().display().to_string();
    lockdog(&["man", &folder]).await.code(0);
    for name in COMMANDS.map(|command| format!("lockdog-{command}")) {
        let page = files.text(&format!("{name}.1"));
        assert!(page.contains(".SH NAME"), "{name}: {page}");
    }
    assert!(files.text("lockdog-config-check.1").contains("strict"));
    assert!(files.text("lockdog.1").contains("lockdog"));
    let page = lockdog(&["man"]).await.code(0);
    assert!(page.stdout.contains(".TH"), "{}", page.stdout);
    lockdog(&["man", "/no/such/folder"])
        .await
        .code(125)
        .complains("/no/such/folder");
}

/// Bash reads its script; for the others the names of the commands must be there.
#[tokio::test]
async fn the_completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = lockdog(&["completions", shell]).await.code(0).stdout;
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        if shell == "bash" {
            let mut bash = Command::new("bash")
                .arg("-n")
                .stdin(Stdio::piped())
                .spawn()
                .expect("bash is installed");
            let mut stdin = bash.stdin.take().unwrap();
            stdin.write_all(script.as_bytes()).unwrap();
            drop(stdin);
            assert!(bash.wait().unwrap().success());
        }
    }
    lockdog(&["completions", "no-such-shell"]).await.code(2);
}
