//! `lockdog config check`: what becomes of each key of a configuration.

use lockdog_config::{Config, ConfigError, ConfigErrorKind, Format, Note, NoteKind};
use serde_json::json;

use crate::args::{ConfigArgs as Args, ConfigCheck, ConfigCommand};
use crate::connect::try_out;
use crate::failed::{Failed, NO, YES};
use crate::ls::aligned;
use crate::output::{Output, Paint, clean};

pub(crate) async fn config(args: &Args, output: Output) -> Result<u8, Failed> {
    match &args.command {
        ConfigCommand::Check(args) => check(args, output).await,
    }
}

async fn check(args: &ConfigCheck, output: Output) -> Result<u8, Failed> {
    let config = match lockdog_config::from_file(&args.file) {
        Ok(config) => config,
        Err(error) if error.kind() == ConfigErrorKind::Read => return Err(Failed::new(error)),
        Err(error) => {
            show_error(&error, output);
            return Ok(NO);
        }
    };
    show(&config, output);
    if let Err(error) = try_out(config.builder).await {
        let text = error.to_string();
        match output.json {
            // No single key is wrong.
            true => output.object(json!({
                "state": "invalid", "line": null, "column": null, "key": null, "text": text,
            })),
            false => output.line(format_args!("{}  {}", bad(output, "invalid"), clean(&text))),
        }
        return Ok(NO);
    }
    let differs = config
        .notes
        .iter()
        .any(|note| note.kind == NoteKind::Differs);
    Ok(if args.strict && differs { NO } else { YES })
}

/// The key that stops the reading.
fn show_error(error: &ConfigError, output: Output) {
    let state = match error.kind() {
        ConfigErrorKind::Refused => "refused",
        ConfigErrorKind::Unknown => "unknown",
        ConfigErrorKind::Variable => "variable",
        ConfigErrorKind::Syntax => "syntax",
        // The value, and what a later version of the crate adds.
        _ => "invalid",
    };
    if output.json {
        output.object(json!({
            "state": state, "line": error.line(), "column": error.column(), "key": error.key(),
            "text": error.to_string(),
        }));
    } else {
        let text = clean(&error.to_string());
        output.line(format_args!("{}  {text}", bad(output, state)));
    }
}

fn bad(output: Output, state: &str) -> String {
    output.paint(Paint::Red, state)
}

fn show(config: &Config, output: Output) {
    if output.json {
        for note in &config.notes {
            output.object(json!({
                "state": note.kind.to_string(), "line": note.line, "column": note.column, "key": note.key,
                "text": note.text,
            }));
        }
        return;
    }
    let mut cells = vec![TITLES.map(str::to_owned).to_vec()];
    cells.extend(config.notes.iter().map(row));
    let mut lines = aligned(&cells).into_iter();
    if let Some(titles) = lines.next() {
        output.line(output.paint(Paint::Bold, &titles));
    }
    for (line, note) in lines.zip(&config.notes) {
        output.line(match note.kind {
            NoteKind::Differs => output.paint(Paint::Yellow, &line),
            _ => line,
        });
    }
    let of = match config.format {
        Format::Redisson => "Redisson",
        _ => "lockdog",
    };
    let count = |kind| config.notes.iter().filter(|note| note.kind == kind).count();
    output.note(format_args!(
        "a configuration of {of}: {} keys are mapped, {} are ignored, {} differ",
        count(NoteKind::Mapped),
        count(NoteKind::Ignored) + count(NoteKind::Irrelevant),
        count(NoteKind::Differs),
    ));
}

fn row(note: &Note) -> Vec<String> {
    vec![
        note.line.to_string(),
        note.kind.to_string(),
        clean(&note.key),
        clean(&note.text),
    ]
}

const TITLES: [&str; 4] = ["LINE", "STATE", "KEY", "TEXT"];
