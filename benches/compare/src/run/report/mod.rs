//! What people read.

use std::time::Duration;

use crate::Result;
use crate::run::figures::{Line, Outcome, Summary};
use crate::run::measure::Measurer;
use crate::run::options::Options;
use crate::run::plan::Planned;

/// One line a cell while the run goes on.
pub(crate) fn progress(planned: &Planned, lines: &[Line], elapsed: Duration) {
    let mut text = format!("{:4} s  {:18}", elapsed.as_secs(), planned.cell.to_string());
    for part in &planned.libraries {
        let last = lines.iter().rev().find(|line| line.library == part.library);
        let Some(line) = last.filter(|line| line.cell == planned.cell) else {
            continue;
        };
        let said = match &line.outcome {
            Outcome::Figures(f) => match (f.get("pairs_per_s"), f.get("p50_us")) {
                (Some(rate), Some(p50)) => format!("{rate:.0}/s {p50:.0} us"),
                _ => "done".to_owned(),
            },
            Outcome::Nothing(why) => why.clone(),
        };
        text += &format!("  {}: {said}", part.library);
    }
    println!("{text}");
}

pub(crate) fn write(
    _options: &Options,
    summary: &Summary,
    measurer: &Measurer,
    _elapsed: Duration,
) -> Result<()> {
    let _ = (measurer.core(), measurer.out());
    for cell in summary.cells() {
        for library in crate::run::libraries::ALL {
            let Some(row) = summary.row(cell, library) else {
                continue;
            };
            print!("{:20} {:9}", cell.to_string(), library);
            for name in [
                "pairs_per_s",
                "p50_us",
                "p99_us",
                "max_us",
                "commands_per_pair",
                "inside_per_pair",
                "client_cpu_us_per_pair",
                "server_cpu_us_per_pair",
            ] {
                if let Some(s) = row.figures.get(name) {
                    print!("  {name} {:.2} [{:.2}-{:.2}]", s.median, s.least, s.most);
                }
            }
            println!("  {}", row.why_not.as_deref().unwrap_or(""));
        }
    }
    Ok(())
}
