//! The libraries that take part, and the drivers that run them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::run::driver::Driver;
use crate::run::measure::Measurer;
use crate::run::options::Options;
use crate::run::plan::PROCESSES;
use crate::run::{plan, root};

pub(crate) struct Libraries {
    present: Vec<&'static str>,
    running: BTreeMap<&'static str, Driver>,
    /// Where their standard errors go.
    logs: PathBuf,
}

impl Libraries {
    /// Builds the peers that are wanted. One whose language is missing is left out, and the output says so.
    pub(crate) fn build(options: &Options, logs: &Path) -> Result<Self> {
        for library in PROCESSES {
            // One of the run before says nothing about this one.
            let _ = std::fs::remove_file(log(logs, library));
        }
        let mut present = Vec::new();
        for library in PROCESSES {
            let wanted = &options.libraries;
            if !wanted.is_empty() && !wanted.iter().any(|name| name == library) {
                continue;
            }
            match build(library) {
                Ok(()) => present.push(library),
                Err(why) => println!("{library} is left out: {why}"),
            }
        }
        if present.is_empty() {
            return Err(format!("no library is left of {}", PROCESSES.join(", ")).into());
        }
        Ok(Self {
            present,
            running: BTreeMap::new(),
            logs: logs.to_owned(),
        })
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.present.clone()
    }

    /// A JVM compiles while it runs, and Redisson's watchdog leaks timers under churn: its figures
    /// settle after some time only. What it says meanwhile is not looked at.
    pub(crate) fn warm_up(&mut self, measurer: &mut Measurer, options: &Options) {
        if self.present.contains(&"redisson") {
            println!("redisson warms up");
            let planned = plan::warm_up(options);
            for line in measurer.measure(self, &planned, &planned.libraries[0], 0) {
                if let Some(why) = line.why_not() {
                    println!("its warm-up: {why}");
                }
            }
        }
    }

    /// The library's process, started at its first use.
    pub(crate) fn driver(&mut self, library: &'static str) -> Result<&mut Driver> {
        if !self.running.contains_key(library) {
            let driver = Driver::start(&command(library)?, &log(&self.logs, library))?;
            self.running.insert(library, driver);
        }
        let running = self.running.get_mut(library);
        Ok(running.ok_or("it was started just now")?)
    }

    /// Ends the library's process; the next use starts another.
    pub(crate) fn end(&mut self, library: &str) {
        self.running.remove(library);
    }
}

fn log(folder: &Path, library: &str) -> PathBuf {
    folder.join(format!("{library}.log"))
}

fn is_rust(library: &str) -> bool {
    matches!(library, "lockdog" | "raw" | "rslock")
}

fn command(library: &str) -> Result<Vec<String>> {
    let path = |path: PathBuf| path.to_str().map(str::to_owned).ok_or("a path is not text");
    if is_rust(library) {
        let own = path(std::env::current_exe()?)?;
        return Ok(vec![own, "drive".to_owned(), library.to_owned()]);
    }
    Ok(vec![path(peer(library).join("run"))?])
}

/// Those in Rust are in this program.
fn build(library: &str) -> std::result::Result<(), String> {
    if is_rust(library) {
        return Ok(());
    }
    let script = peer(library).join("build");
    let done = Command::new(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|failure| format!("{}: {failure}", script.display()))?;
    if done.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let why = errors.trim().lines().last().unwrap_or("its build failed");
    let why = why.trim_start_matches(library).trim_start_matches(": ");
    Err(why.to_owned())
}

fn peer(library: &str) -> PathBuf {
    root().join("benches/peers").join(library)
}
