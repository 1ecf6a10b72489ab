//! `lockdog completions` and `lockdog man`.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;

use crate::args::{Cli, Completions, Man};
use crate::failed::{Failed, YES};
use crate::output::{Output, write};

pub(crate) fn completions(args: &Completions) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    write(&String::from_utf8_lossy(&script));
    YES
}

pub(crate) fn man(args: &Man, output: Output) -> Result<u8, Failed> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = &args.folder else {
        write(&String::from_utf8_lossy(&page(command)?));
        return Ok(YES);
    };
    save_all(folder, NAME, &command, output)?;
    Ok(YES)
}

/// Saves the page of a command, and those of the commands in it.
fn save_all(folder: &Path, name: &str, command: &Command, output: Output) -> Result<(), Failed> {
    save(folder, name, command.clone(), output)?;
    let subs = command.get_subcommands();
    for sub in subs.filter(|sub| sub.get_name() != "help") {
        let name = format!("{name}-{}", sub.get_name());
        save_all(folder, &name, sub, output)?;
    }
    Ok(())
}

fn save(folder: &Path, name: &str, command: Command, output: Output) -> Result<(), Failed> {
    let file = folder.join(format!("{name}.1"));
    let page = page(command)?;
    fs::write(&file, page)
        .map_err(|error| Failed::new(format_args!("cannot write {}: {error}", file.display())))?;
    output.line(file.display());
    Ok(())
}

fn page(command: Command) -> Result<Vec<u8>, Failed> {
    let mut page = Vec::new();
    let rendered = Page::new(command).render(&mut page);
    rendered.map_err(|error| Failed::new(format_args!("the page cannot be made: {error}")))?;
    Ok(page)
}

const NAME: &str = "lockdog";
