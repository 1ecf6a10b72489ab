//! What people read.

mod plots;
mod setting;
mod tables;
mod words;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::run::figures::{Line, Outcome, Summary};
use crate::run::measure::Measurer;
use crate::run::plan::Planned;
use crate::run::report::words::show;

/// One line a cell while the run goes on: the last round.
pub(crate) fn progress(planned: &Planned, lines: &[Line], elapsed: Duration) {
    let mut text = format!("{:5} s  {:24}", elapsed.as_secs(), planned.cell.to_string());
    for part in &planned.libraries {
        let mut these = lines.iter().filter(|line| line.cell == planned.cell);
        let Some(line) = these.rfind(|line| line.library == part.library) else {
            continue;
        };
        text += &format!("  {}: {}", part.library, brief(line));
    }
    println!("{text}");
}

fn brief(line: &Line) -> String {
    let figures = match &line.outcome {
        Outcome::Figures(figures) => figures,
        Outcome::Nothing(why) => return why.clone(),
    };
    let said = ["pairs_per_s", "p50_us", "locks_lost", "bytes_per_lock"]
        .into_iter()
        .filter_map(|name| Some((name, figures.get(name)?)))
        .map(|(name, value)| format!("{} {}", show(name, value), words::unit(name)));
    said.collect::<Vec<String>>().join(", ")
}

/// Machine, versions, command and duration, as Markdown.
pub(crate) fn setting(
    measurer: &mut Measurer,
    args: &[&str],
    elapsed: Duration,
) -> Result<Vec<String>> {
    let mut lines = setting::lines(&measurer.server_version()?, measurer.core());
    let minutes = elapsed.as_secs_f64() / 60.0;
    let command = match args {
        ["--docs", "docs"] => "make bench".to_owned(),
        ["--quick", "--docs", _] => "make bench QUICK=1".to_owned(),
        _ => format!("compare {}", args.join(" ")),
    };
    lines.push(format!(
        "- Command: `{command}`; it took {minutes:.0} minutes."
    ));
    Ok(lines)
}

/// The page and its pictures: `<folder>.md` and `<folder>/*.svg`. What a person wrote in
/// `<folder>/notes.md` ends the page.
pub(crate) fn write(folder: &Path, summary: &Summary, setting: &[String]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut page = HEAD.to_owned();
    page += &setting.join("\n");
    page += "\n\n## Targets\n\n";
    page += &tables::targets(summary);
    let pictures = plots::write(folder, summary)?;
    let name = folder.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("the folder has no name")?;
    for (file, title) in pictures {
        page += &format!("\n![{title}]({name}/{file})\n");
    }
    page += "\n## Figures\n\n";
    page += FIGURES;
    for (workload, title, figures) in WORKLOADS {
        let table = tables::figures(summary, workload, figures);
        if !table.is_empty() {
            page += &format!("\n### {workload}: {title}\n\n{table}");
        }
    }
    if let Ok(notes) = fs::read_to_string(folder.join("notes.md")) {
        page += &format!("\n{notes}");
    }
    Ok(fs::write(folder.with_extension("md"), page)?)
}

/// The figures on the terminal, where no page has them.
pub(crate) fn print_figures(summary: &Summary) {
    for (workload, title, figures) in WORKLOADS {
        let table = tables::figures(summary, workload, figures);
        if !table.is_empty() {
            println!("\n{workload}: {title}\n{table}");
        }
    }
}

pub(crate) fn print_targets(summary: &Summary) {
    println!("\nTargets\n\n{}", tables::targets(summary));
}

const HEAD: &str = "\
# Benchmarks

<!-- Written by `make bench`; what a person has to say is in benchmarks/notes.md. -->

";

const FIGURES: &str = "\
A pair is one acquire and one unlock.
Medians over the rounds; the rate with its smallest and largest round.
Commands are what clients sent; calls are what their scripts ran.
`raw` is the bare protocol, without a lock library: two EVALSHA on one connection.
Where it has no such workload it measures the scale beside the others.
";

const PAIRS: [&str; 8] = [
    "pairs_per_s",
    "p50_us",
    "p99_us",
    "max_us",
    "commands_per_pair",
    "inside_per_pair",
    "client_cpu_us_per_pair",
    "server_cpu_us_per_pair",
];

const WORKLOADS: [(&str, &str, &[&str]); 8] = [
    ("W1", "each owner has its own lock", &PAIRS),
    (
        "W2",
        "owners of one client want one lock; latencies are waits",
        &[
            "pairs_per_s",
            "p50_us",
            "p99_us",
            "max_us",
            "commands_per_pair",
            "inside_per_pair",
            "min_share",
            "max_share",
            "client_cpu_us_per_pair",
            "server_cpu_us_per_pair",
        ],
    ),
    (
        "W3",
        "owners of several clients want one lock; latencies are waits",
        &[
            "pairs_per_s",
            "p50_us",
            "p99_us",
            "max_us",
            "commands_per_pair",
            "inside_per_pair",
            "min_share",
            "max_share",
            "min_client_share",
            "max_client_share",
        ],
    ),
    (
        "W4",
        "from one client's unlock to the grant of another that waits",
        &[
            "p50_us",
            "p99_us",
            "max_us",
            "commands_per_pair",
            "inside_per_pair",
        ],
    ),
    (
        "W5",
        "locks held under the watchdog, after 1,000 pairs",
        &[
            "locks_lost",
            "smallest_ttl_s",
            "commands_per_s",
            "commands_per_100_and_period",
            "client_cpu_percent",
            "server_cpu_percent",
            "bytes_per_lock",
            "shutdown_s",
        ],
    ),
    (
        "W6",
        "a majority of five servers",
        &[
            "pairs_per_s",
            "p50_us",
            "p99_us",
            "max_us",
            "failures",
            "commands_per_pair",
            "inside_per_pair",
        ],
    ),
    ("W7", "re-entry: the inner pair", &PAIRS),
    (
        "W10",
        "a millisecond each way",
        &[
            "p50_us",
            "us_per_pair",
            "p50_in_round_trips",
            "us_per_pair_in_round_trips",
            "commands_per_pair",
        ],
    ),
];
