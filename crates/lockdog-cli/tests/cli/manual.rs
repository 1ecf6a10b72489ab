//! The help, the manual pages and the completions.

use std::fs;
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

#[tokio::test]
async fn the_completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let files = Files::new();
        let file = files.folder().join("script");
        let script = lockdog(&["completions", shell]).await.code(0).stdout;
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        fs::write(&file, script).unwrap();
        let checked = Command::new(shell).arg("-n").arg(&file).output();
        let checked = checked.expect("tests/setup installs the shell");
        assert!(checked.status.success(), "{shell}: {checked:?}");
        assert!(checked.stderr.is_empty(), "{shell}: {checked:?}");
    }
    lockdog(&["completions", "no-such-shell"]).await.code(2);
}

/// Each shell completes as it does for a user: fish and bash by their own functions, zsh with a Tab in a
/// terminal, because it completes nowhere else.
#[tokio::test]
async fn each_shell_completes_commands_and_flags() {
    for (shell, program) in [("bash", BASH), ("zsh", ZSH), ("fish", FISH)] {
        let files = Files::new();
        let script = lockdog(&["completions", shell]).await.code(0).stdout;
        // zsh loads the function of a command from a file of this name.
        fs::write(files.folder().join("_lockdog"), script).unwrap();
        for (line, wanted) in [
            ("lockdog rel", "release"),
            ("lockdog release --fo", "--force"),
            ("lockdog config che", "check"),
        ] {
            let ended = Command::new("timeout")
                .args(["60", shell, "-c", program])
                // bash takes the first of these as its name.
                .args((shell == "bash" || shell == "zsh").then_some(shell))
                .arg(line)
                .current_dir(files.folder())
                .env("HOME", files.folder())
                .stdin(Stdio::null())
                .output()
                .expect("timeout(1) is there");
            let shown = String::from_utf8_lossy(&ended.stdout);
            let mut words = shown.split_whitespace();
            assert!(
                words.any(|word| word == wanted),
                "{shell}: {line}: {ended:?}"
            );
        }
    }
}

/// Calls the function as bash does for the last word of the line.
const BASH: &str = r#"
    . ./_lockdog
    read -ra COMP_WORDS <<< "$1"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$1 COMP_POINT=${#1}
    "$(complete -p lockdog | sed 's/.*-F \([^ ]*\).*/\1/')" lockdog "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    printf '%s\n' "${COMPREPLY[@]}"
"#;
/// After the Tab, the line is made the argument of an assignment, and is run.
const ZSH: &str = r#"
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "unset zle_bracketed_paste; PS1=; fpath=(\$PWD \$fpath); autoload -Uz compinit; compinit -D -u; print REA''DY"
    zpty -r shell out '*READY*'
    zpty -w -n shell "$1"$'\t\C-a: "\C-e"; print "$_" > completed; print DO""NE\n'
    zpty -r shell out '*DONE*'
    cat completed
"#;
const FISH: &str = "source ./_lockdog; complete -C $argv[1]";
