//! One library in one cell, or two with half of the clients each: the servers' counters around the
//! window, and what the drivers report.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use crate::Result;
use crate::protocol::{Answer, Event, Request};
use crate::run::cell::{Cell, Condition};
use crate::run::counters::{Counters, Monitor, Origins};
use crate::run::driver::Driver;
use crate::run::figures::{Figures, Line, Outcome};
use crate::run::libraries::Libraries;
use crate::run::options::Options;
use crate::run::plan::{Part, Planned};
use crate::run::proxy::Proxy;
use crate::run::server::{self, Server};

pub(crate) struct Measurer {
    /// For all but W6 and W18.
    alone: Server,
    /// For W6; started when first needed.
    five: Vec<Server>,
    /// The masters of a cluster, for W18; started when first needed.
    cluster: Vec<Server>,
    proxy: Proxy,
    cells: u64,
    /// By library and cell, from the first round: MONITOR is not free.
    origins: BTreeMap<(Cell, &'static str), Origins>,
    core: Option<usize>,
}

impl Measurer {
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let alone = Server::start(options.core)?;
        Ok(Self {
            proxy: Proxy::start(alone.port())?,
            alone,
            five: Vec::new(),
            cluster: Vec::new(),
            cells: 0,
            origins: BTreeMap::new(),
            core: options.core,
        })
    }

    pub(crate) fn measure(
        &mut self,
        libraries: &mut Libraries,
        planned: &Planned,
        part: &Part,
        round: usize,
    ) -> Vec<Line> {
        let parts = part.halves();
        // Memory is measured in a process that has done nothing before.
        if planned.cell.is_held() {
            libraries.end(part.driver().0);
        }
        let outcomes = match self.outcomes(libraries, planned, &parts) {
            Ok(outcomes) => outcomes,
            Err(failure) => {
                let nothing = |part: &Part| {
                    // Whatever it is doing, the next cell must not suffer from it.
                    libraries.end(part.driver().0);
                    Outcome::Nothing(format!("failed: {failure}"))
                };
                parts.iter().map(nothing).collect()
            }
        };
        if let Err(failure) = self.heal() {
            println!("a server did not come back: {failure}");
        }
        let line = |(part, outcome): (Part, Outcome)| Line {
            cell: planned.cell,
            library: part.library,
            measured: part.workload,
            round,
            outcome,
        };
        parts.into_iter().zip(outcomes).map(line).collect()
    }

    pub(crate) fn server_version(&mut self) -> Result<String> {
        self.alone.version()
    }

    pub(crate) const fn core(&self) -> Option<usize> {
        self.core
    }

    /// One of each part. All parts have the same window.
    fn outcomes(
        &mut self,
        libraries: &mut Libraries,
        planned: &Planned,
        parts: &[Part],
    ) -> Result<Vec<Outcome>> {
        let cell = planned.cell;
        let requests = self.requests(planned, parts)?;
        let asked: Vec<(&'static str, &Request)> = parts
            .iter()
            .map(|part| part.driver().0)
            .zip(&requests)
            .collect();
        for &(process, request) in &asked {
            self.ask(libraries.driver(process)?, planned, request)?;
        }
        self.look_at_origins(planned, parts[0])?;
        for &(process, request) in &asked {
            let patience = PATIENCE + seconds(planned.warmup_s);
            let ready = libraries.driver(process)?.answer(request.cell, patience)?;
            if ready.event == Event::Result {
                return without_figures(parts, &ready);
            }
        }
        let before = self.counters(cell);
        self.fault(cell)?;
        for &(process, request) in &asked {
            libraries.driver(process)?.go(request.cell)?;
        }
        let mut answers = Vec::with_capacity(parts.len());
        for &(process, request) in &asked {
            let patience = PATIENCE + seconds(planned.seconds);
            answers.push(libraries.driver(process)?.answer(request.cell, patience)?);
        }
        let spent = spent(&before, &self.counters(cell));
        let mut all = Vec::with_capacity(parts.len());
        for ((process, request), mut answer) in asked.into_iter().zip(answers) {
            let mut figures = Figures::default();
            if answer.event == Event::Held {
                self.look_at_leases(request, &mut figures)?;
                let driver = libraries.driver(process)?;
                driver.go(request.cell)?;
                answer = driver.answer(request.cell, PATIENCE)?;
            }
            if answer.figures.contains_key("failed") || answer.figures.contains_key("unsupported") {
                return without_figures(parts, &answer);
            }
            take(&answer, &mut figures);
            all.push(figures);
        }
        add_up(&mut all);
        let key = (cell, parts[0].library);
        let default = Origins::default();
        let origins = self.origins.get(&key).unwrap_or(&default);
        let outcome = |mut figures: Figures| {
            derive(&mut figures, planned, &spent, origins);
            Outcome::Figures(figures)
        };
        Ok(all.into_iter().map(outcome).collect())
    }

    /// Where clients connect one after the other, some of them contend when this ends.
    fn ask(&mut self, driver: &mut Driver, planned: &Planned, request: &Request) -> Result<()> {
        if !planned.cell.is_crowded() {
            return driver.ask(request);
        }
        // Before the request, as no script runs any more once the driver is ready.
        let monitor = Monitor::start(self.servers(planned.cell)[0].port())?;
        driver.ask(request)?;
        monitor.until_a_script_runs(PATIENCE)
    }

    /// What each part is asked for: its share of the clients, and the same lock.
    fn requests(&mut self, planned: &Planned, parts: &[Part]) -> Result<Vec<Request>> {
        let whole = self.request(planned, parts[0])?;
        let request = |part: &Part| Request {
            workload: part.workload.to_owned(),
            clients: whole.clients / parts.len(),
            api: part.driver().1,
            ..whole.clone()
        };
        Ok(parts.iter().map(request).collect())
    }

    /// Sets the servers up as the cell wants them.
    fn request(&mut self, planned: &Planned, part: Part) -> Result<Request> {
        let cell = planned.cell;
        while cell.workload == "W6" && self.five.len() < 5 {
            self.five.push(Server::start(self.core)?);
        }
        if cell.workload == "W18" && self.cluster.is_empty() {
            self.cluster = server::cluster(3, self.core)?;
        }
        for server in self.servers(cell) {
            server.clear()?;
        }
        self.cells += 1;
        let urls = match cell.condition {
            Condition::Delayed => vec![self.proxy.url()],
            _ => self.servers(cell).iter().map(Server::url).collect(),
        };
        Ok(Request {
            cell: self.cells,
            workload: part.workload.to_owned(),
            urls,
            owners: cell.owners,
            clients: cell.clients,
            warmup_s: planned.warmup_s,
            seconds: planned.seconds,
            name: format!("{}-{}", cell.workload.to_lowercase(), self.cells),
            api: part.driver().1,
            locks: cell.locks,
            lease_s: planned.lease_s,
        })
    }

    fn servers(&mut self, cell: Cell) -> &mut [Server] {
        match cell.workload {
            "W6" => &mut self.five,
            "W18" => &mut self.cluster,
            _ => std::slice::from_mut(&mut self.alone),
        }
    }

    /// Once for each library and cell, in the middle of the warm-up.
    fn look_at_origins(&mut self, planned: &Planned, part: Part) -> Result<()> {
        let key = (planned.cell, part.library);
        if planned.cell.is_held() || self.origins.contains_key(&key) {
            return Ok(());
        }
        sleep(seconds(planned.warmup_s / 2.0));
        let port = self.servers(planned.cell)[0].port();
        self.origins.insert(key, Origins::watch(port)?);
        Ok(())
    }

    /// Of each server; none of one that does not answer.
    fn counters(&mut self, cell: Cell) -> Vec<Option<Counters>> {
        let frozen = cell.condition == Condition::Frozen;
        let servers = self.servers(cell).iter_mut().enumerate();
        servers
            .map(|(i, server)| match (frozen, i) {
                (true, VICTIM) => None,
                _ => Counters::read(server.connection()).ok(),
            })
            .collect()
    }

    fn fault(&mut self, cell: Cell) -> Result<()> {
        match cell.condition {
            Condition::Killed => self.five[VICTIM].kill(),
            Condition::Frozen => self.five[VICTIM].freeze(),
            Condition::Plain | Condition::Delayed => Ok(()),
        }
    }

    fn heal(&mut self) -> Result<()> {
        self.five.get_mut(VICTIM).map_or(Ok(()), Server::heal)
    }

    /// Whether each lock or permit is still there, and the smallest of their leases.
    fn look_at_leases(&mut self, request: &Request, figures: &mut Figures) -> Result<()> {
        if request.workload == "W12" {
            return self.look_at_permits(request, figures);
        }
        let names: Vec<String> = (0..request.locks)
            .map(|i| format!("{}:{i}", request.name))
            .collect();
        let mut ttls: Vec<i64> = Vec::with_capacity(names.len());
        for some in names.chunks(1_000) {
            let mut pipeline = redis::pipe();
            for name in some {
                pipeline.cmd("PTTL").arg(name);
            }
            ttls.extend(pipeline.query::<Vec<i64>>(self.alone.connection())?);
        }
        let missing = ttls.iter().filter(|ttl| **ttl < 0).count();
        figures.set("missing_locks", missing as f64);
        if let Some(least) = ttls.iter().filter(|ttl| **ttl >= 0).min() {
            figures.set("smallest_ttl_s", *least as f64 / 1e3);
        }
        Ok(())
    }

    /// The expiry of each permit is a score, in ms of the server's clock.
    fn look_at_permits(&mut self, request: &Request, figures: &mut Figures) -> Result<()> {
        let connection = self.alone.connection();
        let in_use = format!("{{{}}}:timeout", request.name);
        let (s, us): (f64, f64) = redis::cmd("TIME").query(connection)?;
        let now = s * 1e3 + us / 1e3;
        let mut valid = redis::cmd("ZCOUNT");
        let valid: usize = valid.arg(&in_use).arg(now).arg("+inf").query(connection)?;
        figures.set("missing_locks", request.locks.saturating_sub(valid) as f64);
        let mut first = redis::cmd("ZRANGEBYSCORE");
        first.arg(&in_use).arg(now).arg("+inf").arg("WITHSCORES");
        let first: Vec<(Vec<u8>, f64)> = first.arg("LIMIT").arg(0).arg(1).query(connection)?;
        if let Some((_, ends)) = first.first() {
            figures.set("smallest_ttl_s", (ends - now) / 1e3);
        }
        Ok(())
    }
}

/// Of several parts, the others wait for a word that does not come. So the failure ends them all.
fn without_figures(parts: &[Part], answer: &Answer) -> Result<Vec<Outcome>> {
    match parts {
        [_] => Ok(vec![Outcome::Nothing(reason(answer))]),
        _ => Err(reason(answer).into()),
    }
}

/// Parts of the clients that contend for the same lock: each one gets what the others did, and its
/// shares become multiples of an even part of all pairs.
fn add_up(parts: &mut [Figures]) {
    if parts.len() < 2 {
        return;
    }
    let pairs = |part: &Figures| part.get("pairs").unwrap_or(0.0);
    let all: f64 = parts.iter().map(pairs).sum();
    let even = all / parts.len() as f64;
    for part in parts {
        let own = pairs(part);
        part.set("pairs_beside", all - own);
        for name in SHARES {
            if let Some(share) = part.get(name) {
                part.set(name, share * own / even);
            }
        }
    }
}

/// The figures as the driver gave them.
fn take(answer: &Answer, figures: &mut Figures) {
    for (name, value) in &answer.figures {
        if let Some(value) = value.as_f64() {
            figures.set(name, value);
        } else if let (true, Some(samples)) = (name == "samples_us", value.as_array()) {
            figures.samples_us = samples.iter().filter_map(|s| s.as_f64()).collect();
        }
    }
}

/// What follows from the driver's figures and the servers' counters.
fn derive(figures: &mut Figures, planned: &Planned, spent: &Counters, origins: &Origins) {
    let cell = planned.cell;
    let get = |name: &str| figures.get(name).unwrap_or(0.0);
    let (window, cpu) = (get("seconds"), get("cpu_s"));
    if cell.is_held() {
        let lost = get("lost_guards").max(get("missing_locks"));
        figures.set("locks_lost", lost);
        let periods = window / (planned.lease_s / 3.0);
        let hundreds = cell.locks as f64 / 100.0;
        let scripts = spent.scripts();
        figures.set("commands_per_s", scripts / window);
        figures.set("commands_per_100_and_period", scripts / periods / hundreds);
        figures.set("client_cpu_percent", 100.0 * cpu / window);
        figures.set("server_cpu_percent", 100.0 * spent.cpu_s / window);
        return;
    }
    let (pairs, late, writes) = (get("pairs"), get("late_pairs"), get("writes"));
    let beside = get("pairs_beside");
    figures.set("pairs_per_s", pairs / window);
    figures.set("us_per_pair", 1e6 * window / pairs);
    let own = pairs + writes + late;
    let all = own + beside;
    let commands = spent.commands(origins);
    figures.set("commands_per_pair", commands.sent / all);
    figures.set("inside_per_pair", commands.inside / all);
    // No figure without scripts.
    figures.set("script_us", spent.script_us / spent.scripts());
    if cell.workload == "W13" {
        let of_one = commands.sent / all / cell.clients as f64;
        figures.set("commands_per_client", of_one);
    }
    // Milliseconds a thousand are microseconds each.
    // Not that of clients in processes of their own.
    if figures.get("cpu_s").is_some() {
        figures.set("client_cpu_us_per_pair", 1e6 * cpu / own);
    }
    figures.set("server_cpu_us_per_pair", 1e6 * spent.cpu_s / all);
    let turn_us = 1e6 * window / (pairs + beside) * cell.contenders() as f64;
    // Zero is a figure where somebody writes.
    if figures.get("writes").is_some() {
        figures.set("writes_per_s", writes / window);
    }
    if let (Some(least), Some(most)) = (figures.get("min_share"), figures.get("max_share")) {
        figures.set("share_ratio", least / most);
    }
    if let Some(p99) = figures.get("p99_us") {
        figures.set("p99_in_turns", p99 / turn_us);
    }
}

fn spent(before: &[Option<Counters>], after: &[Option<Counters>]) -> Counters {
    let mut sum = Counters::default();
    for (before, after) in before.iter().zip(after) {
        if let (Some(before), Some(after)) = (before, after) {
            sum.add(&after.since(before));
        }
    }
    sum
}

fn reason(answer: &Answer) -> String {
    let text = |name: &str| answer.figures.get(name).and_then(|v| v.as_str());
    match (text("unsupported"), text("failed")) {
        (Some(why), _) => why.to_owned(),
        (None, Some(why)) => format!("failed: {why}"),
        (None, None) => "it gave no result".to_owned(),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

const SHARES: [&str; 4] = [
    "min_share",
    "max_share",
    "min_client_share",
    "max_client_share",
];

/// For connecting, closing, and a pair that takes as long as it may.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which of the five is killed or frozen: neither the first nor the last that is asked.
const VICTIM: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_of_the_clients_counts_the_pairs_of_the_other() {
        let half = |pairs, min_share| {
            let mut figures = Figures::default();
            figures.set("pairs", pairs);
            figures.set("min_share", min_share);
            figures
        };
        let mut halves = [half(300.0, 0.5), half(100.0, 0.75)];
        add_up(&mut halves);
        let figures = |name: &str| halves.each_ref().map(|half| half.get(name));
        assert_eq!(figures("pairs_beside"), [Some(100.0), Some(300.0)]);
        assert_eq!(figures("min_share"), [Some(0.75), Some(0.375)]);
        let mut alone = [half(300.0, 0.5)];
        add_up(&mut alone);
        assert_eq!(alone[0].get("pairs_beside"), None);
    }
}
