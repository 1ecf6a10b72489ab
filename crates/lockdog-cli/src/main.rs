//! The command `lockdog`: runs commands under the locks of lockdog and Redisson, and shows and frees them.
//!
//! Only `connect` makes clients, only `output` writes, and only `run` starts processes.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "lockdog-cli needs Linux: its processes are found in /proc, and end by a parent death signal"
);

mod args;
mod bench;
mod config;
mod connect;
mod describe;
mod doctor;
mod duration;
mod failed;
mod inspect;
mod ls;
mod manual;
mod output;
mod release;
mod release_quorum;
mod run;
mod top;
mod watch;

use std::env;
use std::io;
use std::iter;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::connect::{Settings, has_password, without_passwords};
use crate::failed::{CANNOT, Failed, USAGE, YES};
use crate::output::{Output, complain, write};

fn main() -> ExitCode {
    // Below a `lockdog run`: see there.
    if let Some(code) = run::launcher() {
        return ExitCode::from(code);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let is_run = matches!(cli.command, Command::Run(_));
    let code = match start(cli) {
        Ok(code) => code,
        Err(Failed { code, text }) => {
            if !text.is_empty() {
                // Without a scheme, it may be the name of a lock.
                complain(without_secrets(text, |word| word.contains("://")));
            }
            // The command under the lock has all codes up to here.
            if is_run && code == USAGE {
                CANNOT
            } else {
                code
            }
        }
    };
    ExitCode::from(code)
}

fn start(cli: Cli) -> Result<u8, Failed> {
    let output = Output::new(&cli.common);
    match &cli.command {
        Command::Completions(args) => return Ok(manual::completions(args)),
        Command::Man(args) => return manual::man(args, output),
        _ => {}
    }
    show_log(output.verbose);
    // The parent death signal of the command's launcher is that of this thread, so all runs on it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failed::new(format_args!("no runtime: {error}")))?;
    if let Command::Config(args) = &cli.command {
        return runtime.block_on(config::config(args, output));
    }
    let settings = Settings::new(&cli.common, output)?;
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(args, &settings, output).await,
            Command::Ls(args) => ls::ls(&args, &settings, output).await,
            Command::Inspect(args) => inspect::inspect(&args, &settings, output).await,
            Command::Release(args) if settings.is_quorum() => {
                release_quorum::release(&args, &settings, output).await
            }
            Command::Release(args) => release::release(&args, &settings, output).await,
            Command::Watch(args) => watch::watch(&args, &settings, output).await,
            Command::Top(args) => top::top(&args, &settings, output).await,
            Command::Doctor(args) => doctor::doctor(&args, &settings, output).await,
            Command::Bench(args) => bench::bench(&args, &settings, output).await,
            // They need no server.
            Command::Config(_) | Command::Completions(_) | Command::Man(_) => Ok(YES),
        }
    });
    // The look-up of a host's name may still keep a thread, after a signal or a time limit.
    runtime.shutdown_background();
    ended
}

/// Shows what clap has to say.
fn refused(error: &clap::Error) -> ExitCode {
    let text = without_secrets(error.render().to_string(), |_| true);
    match error.kind() {
        // The user asked for it.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            write(&text);
            return ExitCode::from(YES);
        }
        // The help in place of a command. Nothing can be done about a terminal that is gone.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => complain(reason(&text)),
    }
    ExitCode::from(if is_run() { CANNOT } else { USAGE })
}

/// Clap quotes arguments, other errors name files, and a URL may be where none belongs, as in `lockdog doctor URL` or
/// `--config URL`.
fn without_secrets(mut text: String, may_be_url: impl Fn(&str) -> bool) -> String {
    let words = env::args_os().skip(1);
    for word in words.chain(env::var_os("LOCKDOG_CONFIG")) {
        let word = word.to_string_lossy();
        let value = word.split_once('=').map(|(_, value)| value);
        for url in [Some(&*word), value].into_iter().flatten() {
            if has_password(url) && may_be_url(url) {
                text = text.replace(url, &without_passwords(iter::once(url)));
            }
        }
    }
    text
}

/// What clap says is wrong, in one line and without the usage, which the help shows.
fn reason(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Usage:"));
    let text = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let text = text.collect::<Vec<_>>().join(" ");
    format!(
        "{}; see --help",
        text.strip_prefix("error: ").unwrap_or(&text)
    )
}

/// Whether the command line, which could not be read, is that of `lockdog run`. The values of options
/// before the command look like neither.
fn is_run() -> bool {
    let words = env::args_os().skip(1);
    let mut commands = words.filter(|word| args::COMMANDS.iter().any(|name| word == name));
    commands.next().is_some_and(|word| word == "run")
}

/// The library's log, on stderr.
fn show_log(verbose: u8) {
    use tracing_subscriber::filter::LevelFilter;
    let level = match verbose {
        0 => return,
        1 => LevelFilter::WARN,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        // It would panic if no process reads stderr any more, as with `2>&1 | head`.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_explained_in_one_line() {
        for (words, text) in [
            (
                &["ls", "--no-such-flag"][..],
                "unexpected argument '--no-such-flag' found",
            ),
            (&["release"], "were not provided: <NAME>"),
            (&["lss"], "tip: a similar subcommand exists: 'ls'"),
            (&["ls", "-o", "xml"], "[possible values: human, json]"),
            (&["watch", "a", "--interval", "10"], "'10'"),
        ] {
            let words = [&["lockdog"], words].concat();
            let error = Cli::try_parse_from(&words).expect_err("it is wrong");
            let line = reason(&error.render().to_string());
            assert!(line.contains(text), "{words:?}: {line}");
            assert!(line.ends_with("; see --help"), "{words:?}: {line}");
            assert!(
                !line.contains(['\n', '\r']) && !line.contains("Usage"),
                "{words:?}: {line}"
            );
            assert!(!line.starts_with("error"), "{words:?}: {line}");
        }
    }
}
