//! The runner: servers, drivers in turn, figures, report.

mod cell;
mod counters;
mod driver;
mod figures;
mod libraries;
mod measure;
mod options;
mod plan;
mod proxy;
mod report;
mod server;
mod targets;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;
use crate::run::figures::Summary;
use crate::run::libraries::Libraries;
use crate::run::measure::Measurer;
use crate::run::options::Options;

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let began = Instant::now();
    let out = root().join("target/bench");
    fs::create_dir_all(&out)?;

    let mut libraries = Libraries::build(&options, &out)?;
    let plan = plan::cells(&options, &libraries.names());
    let mut measurer = Measurer::start(&options)?;
    libraries.warm_up(&mut measurer, &options);

    let mut raw = File::create(out.join("report.jsonl"))?;
    let mut lines = Vec::new();
    for planned in &plan {
        for round in 1..=planned.rounds {
            for library in &planned.libraries {
                for line in measurer.measure(&mut libraries, planned, library, round) {
                    writeln!(raw, "{}", line.json())?;
                    lines.push(line);
                }
            }
        }
        report::progress(planned, &lines, began.elapsed());
    }
    drop(libraries);

    let summary = Summary::of(lines);
    for line in summary.json() {
        writeln!(raw, "{line}")?;
    }
    let setting = report::setting(&mut measurer, args, began.elapsed(), &options.only)?;
    match &options.docs {
        Some(folder) => {
            report::write(&folder.join("benchmarks"), &summary, &setting, &options)?;
            println!("\nAll figures: {}", folder.join("benchmarks.md").display());
        }
        None => report::print_figures(&summary),
    }
    report::print_targets(&summary);
    Ok(())
}

/// The project's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
