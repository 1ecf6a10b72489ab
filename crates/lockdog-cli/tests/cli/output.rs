//! The output: as JSON, and where it cannot be written.

use crate::program::{hold_orders, lockdog};
use crate::support::RedisServer;

/// Each of them writes. Of `watch`, a later line would be the answer; of `inspect free`, it is 1.
const COMMANDS: [&[&str]; 9] = [
    &["--help"],
    &["--version"],
    &["completions", "bash"],
    &["man"],
    &["ls"],
    &["inspect", "orders"],
    &["inspect", "free"],
    &["inspect", "orders", "--json"],
    &["watch", "orders", "--until", "free"],
];

async fn start() -> RedisServer {
    let server = RedisServer::start().await;
    hold_orders(&server).await;
    server
}

#[tokio::test]
async fn a_command_whose_reader_has_left_ends_as_the_signal_would_end_it() {
    let server = start().await;
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = lockdog(&server, args).stdout(writer).end().await;
        let ended = ended.code(141);
        assert_eq!(ended.stderr, "", "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_cannot_write_says_so_and_ends_with_125() {
    let server = start().await;
    for args in COMMANDS {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let ended = lockdog(&server, args).stdout(full).end().await;
        ended.code(125).complains("the output cannot be written");
    }
}

#[tokio::test]
async fn a_file_has_colours_only_if_the_user_forces_them() {
    let server = start().await;
    let cases = [
        ("ls", "", false),
        ("ls", "CLICOLOR_FORCE=1", true),
        ("ls", "CLICOLOR_FORCE=0", false),
        ("ls", "CLICOLOR_FORCE=1 NO_COLOR=1", false),
        // An empty one counts as none.
        ("ls", "CLICOLOR_FORCE=1 NO_COLOR=", true),
        ("ls --color always", "NO_COLOR=1", true),
        ("ls --color never", "CLICOLOR_FORCE=1", false),
    ];
    for (args, variables, has_colours) in cases {
        let mut run = lockdog(&server, &args.split(' ').collect::<Vec<_>>());
        for (name, value) in variables.split(' ').filter_map(|it| it.split_once('=')) {
            run = run.env(name, value);
        }
        let ended = run.end().await.code(0);
        let has = ended.stdout.contains("\x1b[");
        assert_eq!(has, has_colours, "{args:?} {variables:?}: {ended:#?}");
    }
}

#[tokio::test]
async fn each_line_of_json_has_the_version_of_its_fields() {
    let server = start().await;
    for args in [
        &["ls"][..],
        &["inspect", "orders"],
        &["inspect", "free"],
        &["release", "orders", "--force", "--yes", "--holder", "other"],
        &["watch", "orders", "--until", "held"],
        &["top", "--once"],
        &["doctor"],
    ] {
        let args = [args, &["--json"]].concat();
        let ended = lockdog(&server, &args).end().await;
        let lines = ended.json_lines();
        assert!(!lines.is_empty(), "{args:?}: {ended:#?}");
        for line in lines {
            assert_eq!(line["schema"], 1, "{args:?}: {line}");
        }
    }
}
