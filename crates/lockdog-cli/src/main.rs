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
mod run;
mod top;
mod watch;

use std::env;
use std::io;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::connect::Settings;
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
                complain(text);
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

/// Shows what clap has to say, which knows no password: none is an argument.
fn refused(error: &clap::Error) -> ExitCode {
    // The help or the version, which the user asked for.
    if !error.use_stderr() {
        write(&error.render().to_string());
        return ExitCode::from(YES);
    }
    // Nothing can be done about a terminal that is gone.
    let _ = error.print();
    ExitCode::from(if is_run() { CANNOT } else { USAGE })
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
        // It would panic if nobody reads stderr any more, as with `2>&1 | head`.
        .log_internal_errors(false)
        .init();
}
