//! `lockdog` on a terminal that script(1) creates.

use std::fs;
use std::process::Stdio;

use lockdog::Client;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use crate::program::{
    Ended, FIELD, Files, LOCKDOG, hold_orders, kill, parent, state, three_servers, urls,
};
use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Action, Proxy, RedisServer, eventually, named};

/// A shell on a terminal of its own, which runs this text.
struct Terminal {
    script: Child,
    keys: ChildStdin,
}

impl Terminal {
    fn open(server: &RedisServer, files: &Files, text: &str) -> Self {
        // The shell itself outlives Ctrl-C. What it starts does not inherit a trap.
        let text = format!("trap : INT\ncd {}\n{text}\n", files.folder().display());
        let program = files.path("program");
        fs::write(&program, text).unwrap();
        let run = format!("sh {}", program.display());
        let mut script = Command::new("env")
            .args(["--default-signal", "script", "-qefc", &run])
            .arg(files.path(OUTPUT))
            .env("LOCKDOG_URL", server.url())
            .env("LOCKDOG", LOCKDOG)
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("script is installed: see tests/setup");
        let keys = script.stdin.take().expect("it is piped");
        Self { script, keys }
    }

    async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    async fn end(self) -> Ended {
        let output = tokio::time::timeout(2 * SOON, self.script.wait_with_output()).await;
        drop(self.keys);
        let output = output.expect("it does not end").expect("it is our child");
        Ended {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// How the titles of a table begin, with colours.
const BOLD: &str = "\x1b[1m";

/// What is written to the terminal, while it is open.
const OUTPUT: &str = "output";

/// What `top` shows: the last screen that it has written completely, and the number of such screens.
fn screen(files: &Files) -> (String, usize) {
    let output = fs::read(files.path(OUTPUT)).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let screens = output.split("\x1b[H").skip(1);
    let complete: Vec<_> = screens.filter_map(|it| it.split_once("\x1b[J")).collect();
    let last = complete.last().map(|(shown, _)| (*shown).to_owned());
    (last.unwrap_or_default(), complete.len())
}

async fn eventually_shown(files: &Files, what: &str, is_shown: impl Fn(&str) -> bool) {
    let holds = async || is_shown(&screen(files).0);
    eventually(SOON, what, holds).await;
}

#[tokio::test]
async fn ctrl_c_reaches_the_command_once_and_the_terminal_stays_as_it_was() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let text = "stty -a > before
        $LOCKDOG run orders sh -c 'trap \"echo int >> log\" INT; echo ready >> log; \
          while ! [ -e stop ]; do sleep 0.05; done; exit 9'
        echo $? > code
        stty -a > after";
    let mut terminal = Terminal::open(&server, &files, text);
    files.lines("log").await;
    terminal.press("\x03").await;
    let count = || {
        files
            .text("log")
            .lines()
            .filter(|line| *line == "int")
            .count()
    };
    eventually(SOON, "it received the signal", async || count() > 0).await;
    fs::write(files.path("stop"), "").unwrap();
    files.lines("after").await;
    // Its shell got Ctrl-C, too.
    terminal.end().await;
    assert_eq!(files.text("code"), "9\n");
    assert_eq!(count(), 1, "{}", files.text("log"));
    assert_eq!(files.text("before"), files.text("after"));
    assert!(!files.text("before").is_empty());
    assert!(server.redis().await.keys().await.is_empty());
}

/// The shell has job control: Ctrl-Z stops lockdog and the command, and `fg` continues both.
#[tokio::test]
async fn ctrl_z_stops_lockdog_and_the_command_until_the_shell_continues_both() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let lease = LONG.as_secs();
    // The command starts no process. A shell waits for a child that is stopped before it runs its program, and is not
    // stopped itself.
    let text = format!(
        "set -m
        $LOCKDOG run --lease {lease}s orders sh -c 'echo $$ > pid; echo $PPID > parent; \
          read line; exit 9'
        echo $? > stopped
        while ! [ -e go ]; do sleep 0.05; done
        fg
        echo $? > code"
    );
    let mut terminal = Terminal::open(&server, &files, &text);
    let pids = [files.number("pid").await, files.number("parent").await];
    terminal.press("\x1a").await;
    // 128 and the number of TSTP.
    assert_eq!(files.number("stopped").await, 148);
    for pid in pids {
        eventually(SOON, "it is stopped", async || state(pid) == Some('T')).await;
    }
    let redis = server.redis().await;
    assert!(redis.exists("orders").await);
    fs::write(files.path("go"), "").unwrap();
    for pid in pids {
        eventually(SOON, "it continues", async || state(pid) != Some('T')).await;
    }
    terminal.press("\n").await;
    assert_eq!(files.number("code").await, 9);
    terminal.end().await;
    assert!(redis.keys().await.is_empty());
}

/// It finds that the lease is over, and ends although the launcher is still stopped.
#[tokio::test]
async fn a_lockdog_that_continues_alone_kills_the_command_and_ends() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let text = "set -m
        $LOCKDOG run --lease 6s --report report orders sh -c 'echo $$ > pid; echo $PPID > parent; \
          read line; exit 9'
        echo $? > stopped
        while ! [ -e go ]; do sleep 0.05; done";
    let mut terminal = Terminal::open(&server, &files, text);
    let [command, launcher] = [files.number("pid").await, files.number("parent").await];
    terminal.press("\x1a").await;
    // 128 and the number of TSTP.
    assert_eq!(files.number("stopped").await, 148);
    for pid in [command, launcher] {
        eventually(SOON, "it is stopped", async || state(pid) == Some('T')).await;
    }
    let redis = server.redis().await;
    redis.eventually_gone("orders").await;
    kill(parent(launcher).expect("it is stopped"), Signal::CONT);
    files.lines("report").await;
    let lost = files.reported("lost");
    assert!(lost.is_string(), "{lost}");
    assert!(!crate::program::is_running(command));
    fs::write(files.path("go"), "").unwrap();
    terminal.end().await;
}

#[tokio::test]
async fn a_lost_lock_stops_what_the_command_started_on_a_terminal_too() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    // The command ignores TERM and the end of the terminal.
    let inner = "trap : TERM; trap '' HUP; echo $$ > log; while [ -e log ]; do sleep 1; done";
    fs::write(files.path("inner"), inner).unwrap();
    let text = "$LOCKDOG run --lease 6s orders sh -c 'sh inner & wait'; echo $? > code";
    let terminal = Terminal::open(&server, &files, text);
    files.lines("log").await;
    redis.cmd(&["DEL", "orders"]).await;
    let code = files.number("code").await;
    assert_eq!(code, 76);
    let ended = terminal.end().await;
    assert!(ended.stdout.contains("orders was lost"), "{}", ended.stdout);
    let pid = files.number("log").await;
    assert!(!crate::program::is_running(pid));
}

/// The launcher is the parent of what lost its own, and the command runs on.
#[tokio::test]
async fn a_process_that_lost_its_parent_is_reaped_when_it_ends() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let lost = "while ! [ -e end ]; do sleep 0.05; done";
    fs::write(files.path("lost"), lost).unwrap();
    let text =
        "$LOCKDOG run orders sh -c 'sh -c \"sh lost & echo \\$! > pid\"; echo $PPID > launcher; \
          while ! [ -e stop ]; do sleep 0.05; done; exit 9'
        echo $? > code";
    let terminal = Terminal::open(&server, &files, text);
    let (lost, launcher) = (files.number("pid").await, files.number("launcher").await);
    eventually(SOON, "it is the launcher's", async || {
        parent(lost) == Some(launcher)
    })
    .await;
    fs::write(files.path("end"), "").unwrap();
    eventually(SOON, "it is reaped", async || state(lost).is_none()).await;
    assert!(crate::program::is_running(launcher));
    fs::write(files.path("stop"), "").unwrap();
    assert_eq!(files.lines("code").await, ["9"]);
    terminal.end().await;
}

#[tokio::test]
async fn a_wait_of_a_second_is_reported_on_a_terminal() {
    let server = RedisServer::start().await;
    server
        .redis()
        .await
        .cmd(&["HSET", "orders", "other:1", "1"])
        .await;
    let files = Files::new();
    // On a busy machine the last attempt may have no answer.
    let text = "for n in 1 2 3 4 5; do $LOCKDOG run -w 5s orders true; code=$?
        test $code = 125 || break; done; echo $code > code";
    let ended = Terminal::open(&server, &files, text).end().await;
    assert!(
        ended.stdout.contains("waiting for orders, held by"),
        "{}",
        ended.stdout
    );
    assert_eq!(files.text("code"), "75\n");
}

#[tokio::test]
async fn a_password_in_the_list_of_processes_is_noted_on_a_terminal() {
    let server = RedisServer::builder().password("hunter2").start().await;
    hold_orders(&server).await;
    let files = Files::new();
    // Only the first one prints a note: the others have no such flag, or no terminal for it, or want no notes.
    let text = "$LOCKDOG ls --url \"$LOCKDOG_URL\"; echo $? >> codes
        $LOCKDOG ls; echo $? >> codes
        $LOCKDOG ls --url \"$LOCKDOG_URL\" 2> notes; echo $? >> codes
        $LOCKDOG --quiet ls --url \"$LOCKDOG_URL\"; echo $? >> codes";
    let ended = Terminal::open(&server, &files, text).end().await;
    assert_eq!(files.text("codes"), "0\n0\n0\n0\n", "{}", ended.stdout);
    let note = "the password in --url is in the list of processes";
    assert_eq!(ended.stdout.matches(note).count(), 1, "{}", ended.stdout);
    assert_eq!(files.text("notes"), "");
    assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
}

#[tokio::test]
async fn a_terminal_has_colours_unless_the_user_wants_none() {
    let server = RedisServer::start().await;
    hold_orders(&server).await;
    let files = Files::new();
    let text = "unset NO_COLOR CLICOLOR_FORCE
        $LOCKDOG ls
        echo and without
        NO_COLOR=1 $LOCKDOG ls";
    let ended = Terminal::open(&server, &files, text).end().await;
    let (with, without) = ended.stdout.split_once("and without").expect("it is shown");
    for shown in [with, without] {
        assert!(shown.contains("orders"), "{shown}");
    }
    assert!(with.contains(BOLD) && !without.contains(BOLD), "{ended:#?}");
}

#[tokio::test]
async fn a_release_on_a_terminal_asks_for_the_name() {
    let server = RedisServer::start().await;
    let redis = hold_orders(&server).await;
    let files = Files::new();
    let text = "$LOCKDOG release orders --force; echo $? >> codes
        $LOCKDOG --quiet release orders --force; echo $? >> codes";
    let mut terminal = Terminal::open(&server, &files, text);
    terminal.press("order\n").await;
    assert_eq!(files.lines("codes").await, ["1"]);
    assert!(redis.exists("orders").await);
    terminal.press("orders\n").await;
    let ended = terminal.end().await;
    assert_eq!(files.text("codes"), "1\n0\n");
    assert!(!redis.exists("orders").await);
    // Both times, also with --quiet.
    let question = format!("type the name orders to take it away from Redisson {FIELD}");
    let asked = ended.stdout.matches(&question).count();
    assert_eq!(asked, 2, "{}", ended.stdout);
}

/// Waits until the terminal shows the question of `lockdog release` for this lock.
async fn asks(files: &Files, name: &str) {
    let question = format!("type the name {name}");
    eventually(SOON, "it asks", async || {
        let output = fs::read(files.path(OUTPUT)).unwrap_or_default();
        String::from_utf8_lossy(&output).contains(&question)
    })
    .await;
}

/// The lock looks like a plain one when it is shown.
#[tokio::test]
async fn a_release_wakes_a_fair_waiter_that_came_after_the_question() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.fair_lock("door").lock().lease(LONG).await.unwrap();
    let files = Files::new();
    let text = "$LOCKDOG release door --force; echo $? > code";
    let mut terminal = Terminal::open(&server, &files, text);
    asks(&files, "door").await;
    // Without a message it finds the free lock a minute later.
    let other = Client::builder().url(server.url()).poll_cap(ms(60_000));
    let waiting = other.build().await.unwrap().fair_lock("door");
    let waiter = tokio::spawn(async move { waiting.lock().await.map(drop) });
    eventually(SOON, "it waits and listens", async || {
        let queued = client.inspect("door").await.unwrap().queued;
        queued == 1 && !redis.channels().await.is_empty()
    })
    .await;
    terminal.press("door\n").await;
    let woken = tokio::time::timeout(SOON, waiter).await;
    woken.expect("a message wakes it").unwrap().unwrap();
    assert_eq!(files.lines("code").await, ["0"]);
    terminal.end().await;
    drop(guard);
}

/// Java holds a RedLock on two of three servers.
#[tokio::test]
async fn a_release_on_a_quorum_asks_once_and_shows_the_holder_of_each_server() {
    let servers = three_servers().await;
    let client = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d";
    let fields = [format!("{client}:57"), format!("{client}:58")];
    for (server, field) in servers.iter().zip(&fields) {
        let redis = server.redis().await;
        redis.cmd(&["HSET", "orders", field, "1"]).await;
    }
    let held_on = async || {
        let mut count = 0;
        for server in &servers {
            count += usize::from(server.redis().await.exists("orders").await);
        }
        count
    };
    let urls = urls(&servers);
    let files = Files::new();
    let text = format!(
        "export LOCKDOG_URL='{}'
        $LOCKDOG release orders --force; echo $? >> codes
        $LOCKDOG release orders --force; echo $? >> codes",
        urls
    );
    let mut terminal = Terminal::open(&servers[0], &files, &text);
    terminal.press("order\n").await;
    assert_eq!(files.lines("codes").await, ["1"]);
    assert_eq!(held_on().await, 2);
    terminal.press("orders\n").await;
    let ended = terminal.end().await;
    assert_eq!(files.text("codes"), "1\n0\n", "{}", ended.stdout);
    assert_eq!(held_on().await, 0);
    let [one, two] = fields;
    let question =
        format!("type the name orders to take it away from Redisson {one} and Redisson {two}");
    let asked = ended.stdout.matches(&question).count();
    assert_eq!(asked, 2, "{}", ended.stdout);
    let (shown, _) = ended.stdout.split_once(&question).expect("it asks");
    for part in [&one, &two, "free"] {
        assert!(shown.contains(part), "{shown}");
    }
}

/// A release on the first server would only leave the holder, or a waiter, fewer servers to spare.
#[tokio::test]
async fn a_release_on_a_quorum_changes_nothing_if_another_one_got_the_lock_during_the_question() {
    let servers = three_servers().await;
    let client = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d";
    let fields = ["57", "58", "59"].map(|thread| format!("{client}:{thread}"));
    for (server, field) in servers.iter().zip(&fields) {
        let redis = server.redis().await;
        redis.cmd(&["HSET", "orders", field, "1"]).await;
    }
    let files = Files::new();
    let text = format!(
        "export LOCKDOG_URL='{}'
        $LOCKDOG release orders --force; echo $? > code",
        urls(&servers)
    );
    let mut terminal = Terminal::open(&servers[0], &files, &text);
    asks(&files, "orders").await;
    let other = "7d1c0e52-9b7a-4a53-8f0e-6c5b4a392817:12";
    for (server, field) in servers.iter().zip(&fields).skip(1) {
        let redis = server.redis().await;
        redis.cmd(&["HSET", "orders", other, "1"]).await;
        redis.cmd(&["HDEL", "orders", field]).await;
    }
    terminal.press("orders\n").await;
    assert_eq!(files.lines("code").await, ["1"]);
    for (server, field) in servers.iter().zip([fields[0].as_str(), other, other]) {
        let hash = server.redis().await.hash("orders").await;
        assert!(hash.contains_key(field) && hash.len() == 1, "{hash:?}");
    }
    terminal.end().await;
}

#[tokio::test]
async fn top_gives_the_terminal_back_as_it_was() {
    let server = RedisServer::start().await;
    let redis = hold_orders(&server).await;
    let files = Files::new();
    let text = "stty -a > before
        $LOCKDOG top --interval 100ms; echo $? > code
        stty -a > after";
    let mut terminal = Terminal::open(&server, &files, text);
    // `top` scans a second time only after it opened the screen.
    eventually(SOON, "it polls twice", async || {
        redis
            .commandstats()
            .await
            .get("scan")
            .is_some_and(|scans| *scans >= 2)
    })
    .await;
    // The lock is released after its name was typed, and not before.
    terminal.press("r").await;
    terminal.press("x\r").await;
    terminal.press("r").await;
    assert!(redis.exists("orders").await);
    terminal.press("orders\r").await;
    eventually(SOON, "it is released", async || {
        !redis.exists("orders").await
    })
    .await;
    terminal.press("q").await;
    let ended = terminal.end().await;
    assert_eq!(files.text("code"), "0\n", "{}", ended.stdout);
    assert_eq!(files.text("before"), files.text("after"));
    assert!(ended.stdout.contains("LISTENERS"), "{}", ended.stdout);
    // Lines do not wrap meanwhile, and do afterwards.
    let [off, on] = ["\x1b[?7l", "\x1b[?7h"].map(|wraps| ended.stdout.rfind(wraps));
    assert!(off.is_some() && off < on, "{}", ended.stdout);
}

#[tokio::test]
async fn top_orders_filters_pauses_and_shows_one_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    for name in ["orders", "stock"] {
        redis.cmd(&["HSET", name, FIELD, "1"]).await;
    }
    redis.cmd(&["PEXPIRE", "stock", "600000"]).await;
    let files = Files::new();
    let text = "$LOCKDOG top --interval 100ms; echo $? > code";
    let mut terminal = Terminal::open(&server, &files, text);
    let is_before =
        |screen: &str, first: &str, second: &str| match (screen.find(first), screen.find(second)) {
            (Some(first), Some(second)) => first < second,
            _ => false,
        };

    eventually_shown(&files, "it orders by key", |it| {
        it.contains("order: key") && is_before(it, "orders", "stock")
    })
    .await;
    terminal.press("s").await;
    eventually_shown(&files, "it orders by TTL", |it| {
        it.contains("order: ttl") && is_before(it, "stock", "orders")
    })
    .await;
    terminal.press("ss").await;
    eventually_shown(&files, "it orders by key again", |it| {
        it.contains("order: key") && it.contains("> orders")
    })
    .await;

    terminal.press("\x1b[B").await;
    eventually_shown(&files, "the second one is selected", |it| {
        it.contains("> stock")
    })
    .await;
    terminal.press("\r").await;
    eventually_shown(&files, "it shows that lock", |it| {
        it.contains("any key: back") && it.contains("stock") && it.contains("57")
    })
    .await;
    assert!(!screen(&files).0.contains("orders"));
    terminal.press("b").await;
    eventually_shown(&files, "it shows the table", |it| it.contains("q quit")).await;

    terminal.press("/stx\x7f").await;
    eventually_shown(&files, "the user types a filter", |it| {
        it.contains("filter: st\x1b")
    })
    .await;
    terminal.press("\r").await;
    eventually_shown(&files, "it shows what the filter leaves", |it| {
        it.contains("1 locks like") && it.contains("stock") && !it.contains("orders")
    })
    .await;
    terminal.press("/").await;
    eventually_shown(&files, "the filter is open", |it| it.contains("filter: st")).await;
    terminal.press("\x1b").await;
    eventually_shown(&files, "the filter is gone", |it| {
        it.contains("2 locks like") && it.contains("orders")
    })
    .await;

    terminal.press("p").await;
    eventually_shown(&files, "it is paused", |it| it.contains(", paused")).await;
    redis.cmd(&["HSET", "third", FIELD, "1"]).await;
    tokio::time::sleep(ms(500)).await;
    let (_, screens) = screen(&files);
    terminal.press("k").await;
    eventually(SOON, "it is shown again", async || {
        screen(&files).1 > screens
    })
    .await;
    assert!(!screen(&files).0.contains("third"));
    terminal.press("p").await;
    eventually_shown(&files, "it scans again", |it| it.contains("third")).await;
    terminal.press("q").await;
    assert_eq!(files.lines("code").await, ["0"]);
    terminal.end().await;
}

#[tokio::test]
async fn top_reads_its_keys_during_a_scan() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    for keys in ["q", "\x03"] {
        let files = Files::new();
        let text = format!(
            "$LOCKDOG top --interval 100ms --command-timeout 10m --url {}; echo $? > code",
            proxy.url()
        );
        let mut terminal = Terminal::open(&server, &files, &text);
        // The first scan comes before the screen is open.
        let scans = proxy.count(named("SCAN"));
        proxy.wait_for(named("SCAN"), scans + 2).await;
        let silence = proxy.on(named("SCAN"), Action::DropReply);
        silence.wait_hits(1).await;
        terminal.press(keys).await;
        assert_eq!(files.lines("code").await, ["0"]);
        terminal.end().await;
    }
}
