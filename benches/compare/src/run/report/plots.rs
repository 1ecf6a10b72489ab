//! The figures as pictures.

use std::error::Error;
use std::path::Path;

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

use crate::Result;
use crate::run::cell::{Cell, Condition};
use crate::run::figures::Summary;
use crate::run::plan::{BESIDE_REDISSON, LIBRARIES};

/// Writes those for which there are figures; their names and what they show.
pub(crate) fn write(folder: &Path, summary: &Summary) -> Result<Vec<(String, String)>> {
    let mut written = Vec::new();
    for (workload, figure, texts) in OVER_SIZE {
        let lines = over_size(summary, workload, figure);
        if lines.iter().any(|line| line.points.len() > 1) {
            let name = format!("{}.svg", workload.to_lowercase());
            as_text(curves(&folder.join(&name), texts, &lines))?;
            let [title, _, _] = texts;
            written.push((name, title.to_owned()));
        }
    }
    let title = "W4: share of wake-ups that took no longer".to_owned();
    let lines = wake_ups(summary);
    if !lines.is_empty() {
        as_text(curves(
            &folder.join("w4.svg"),
            [&title, "microseconds", "share"],
            &lines,
        ))?;
        written.push(("w4.svg".to_owned(), title));
    }
    let title = "W6: median of a pair over five servers, microseconds".to_owned();
    let bars = faults(summary);
    if !bars.is_empty() {
        as_text(blocks(&folder.join("w6.svg"), &title, &bars))?;
        written.push(("w6.svg".to_owned(), title));
    }
    Ok(written)
}

struct Line {
    library: &'static str,
    points: Vec<(f64, f64)>,
}

/// A library's medians, one for each state of the servers.
struct Bars {
    library: &'static str,
    heights: [Option<f64>; 3],
}

/// The size is the number of all owners of the cell. W16 has one for each client, W5 has one with many locks, and W17
/// has some for each lock.
fn over_size(summary: &Summary, workload: &str, figure: &str) -> Vec<Line> {
    let lines = LIBRARIES.map(|library| {
        let cells = summary.cells();
        let cells = cells.iter().filter(|cell| cell.title() == workload);
        let point = |cell: &Cell| {
            let value = summary.value(*cell, library, figure)?;
            let size = cell.contenders() * cell.locks.max(1);
            Some((size as f64, value))
        };
        let points = cells.filter_map(point).collect();
        Line { library, points }
    });
    lines
        .into_iter()
        .filter(|line| !line.points.is_empty())
        .collect()
}

fn wake_ups(summary: &Summary) -> Vec<Line> {
    let cell = Cell::new("W4", 1).clients(2);
    let line = |library| {
        let mut samples = summary.row(cell, library)?.samples_us.clone();
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?.max(1) as f64;
        let share = |(i, sample): (usize, f64)| (sample, i as f64 / last);
        let points = samples.into_iter().enumerate().map(share).collect();
        Some(Line { library, points })
    };
    LIBRARIES.into_iter().filter_map(line).collect()
}

fn faults(summary: &Summary) -> Vec<Bars> {
    let bars = LIBRARIES.map(|library| Bars {
        library,
        heights: STATES.map(|(state, _)| {
            let cell = Cell::new("W6", 1).under(state);
            summary.value(cell, library, "p50_us")
        }),
    });
    let measured = |bars: &Bars| bars.heights.iter().any(|height| height.is_some());
    bars.into_iter().filter(measured).collect()
}

/// The abscissa is logarithmic: owners double, and tails are long.
fn curves(
    path: &Path,
    [title, across, up]: [&str; 3],
    lines: &[Line],
) -> std::result::Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let left = points().map(|(x, _)| *x).fold(f64::MAX, f64::min);
    let right = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((left * 0.9..right * 1.1).log_scale(), 0.0..top * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(across)
        .y_desc(up)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{}", (y * 10.0).round() / 10.0))
        .draw()?;
    for line in lines {
        let color = color(line.library);
        chart
            .draw_series(LineSeries::new(
                line.points.iter().copied(),
                color.stroke_width(2),
            ))?
            .label(line.library)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    legend(&mut chart)?;
    Ok(area.present()?)
}

/// The ordinate is logarithmic: from a tenth of a millisecond to ten seconds.
fn blocks(path: &Path, title: &str, bars: &[Bars]) -> std::result::Result<(), Box<dyn Error>> {
    let heights = || bars.iter().flat_map(|bars| bars.heights).flatten();
    let top = heights().fold(FLOOR_US * 10.0, f64::max);
    let groups = STATES.len() as f64;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(-0.6..groups, (FLOOR_US..top * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let width = 0.9 / bars.len() as f64;
    for (place, bars) in bars.iter().enumerate() {
        let color = color(bars.library);
        let blocks = bars
            .heights
            .iter()
            .enumerate()
            .filter_map(|(group, height)| {
                let left = group as f64 + 0.05 + place as f64 * width;
                let corners = [(left, FLOOR_US), (left + width * 0.9, (*height)?)];
                Some(Rectangle::new(corners, color.filled()))
            });
        chart
            .draw_series(blocks)?
            .label(bars.library)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 20, y + 4)], color.filled()));
    }
    let names = STATES.iter().enumerate().map(|(group, (_, name))| {
        let place = (group as f64 + 0.05, top * 1.6);
        Text::new(*name, place, ("sans-serif", 14))
    });
    chart.draw_series(names)?;
    legend(&mut chart)?;
    Ok(area.present()?)
}

fn legend<'a, X: Ranged, Y: Ranged>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> std::result::Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// plotters' errors cannot travel between threads; their text can.
fn as_text(done: std::result::Result<(), Box<dyn Error>>) -> Result<()> {
    done.map_err(|failure| failure.to_string().into())
}

/// The same in all pictures.
fn color(library: &str) -> RGBColor {
    match library {
        "lockdog" => RGBColor(0xd6, 0x27, 0x28),
        "raw" => RGBColor(0x55, 0x55, 0x55),
        "redisson" => RGBColor(0x1f, 0x77, 0xb4),
        "redsync" => RGBColor(0x2c, 0xa0, 0x2c),
        "rslock" => RGBColor(0xff, 0x7f, 0x0e),
        BESIDE_REDISSON => RGBColor(0xf0, 0x9c, 0x9c),
        _ => RGBColor(0x94, 0xb8, 0xdb),
    }
}

/// A workload, its figure that is drawn over the sizes of its cells, and the title and the axes of the picture.
const OVER_SIZE: [(&str, &str, [&str; 3]); 5] = [
    (
        "W1",
        "pairs_per_s",
        ["W1: pairs per second over owners", "owners", "pairs/s"],
    ),
    (
        "W2",
        "pairs_per_s",
        ["W2: pairs per second over owners", "owners", "pairs/s"],
    ),
    (
        "W16",
        "pairs_per_s",
        ["W16: pairs per second over clients", "clients", "pairs/s"],
    ),
    (
        "W5",
        "bytes_per_lock",
        ["W5: bytes per lock over held locks", "locks", "bytes"],
    ),
    (
        "W17",
        "max_us",
        [
            "W17: time until the last waiter has returned",
            "waiters",
            "microseconds",
        ],
    ),
];

const SIZE: (u32, u32) = (760, 420);

/// The smallest median that has a height.
const FLOOR_US: f64 = 10.0;

const STATES: [(Condition, &str); 3] = [
    (Condition::Plain, "all up"),
    (Condition::Killed, "one killed"),
    (Condition::Frozen, "one frozen"),
];
