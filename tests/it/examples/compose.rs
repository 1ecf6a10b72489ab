//! The files in `deploy/`: the services that they start match their README. The test runs them without
//! Docker.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockdog::Client;
use tempfile::TempDir;

use crate::support::port::{free_port, is_free};
use crate::support::process::Process;
use crate::support::{eventually, timed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_forms_and_survives_the_loss_of_a_master() {
    outlives(CLUSTER, "redis+cluster://", "node-1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sentinels_form_and_survive_the_loss_of_a_master() {
    outlives(SENTINEL, "redis+sentinel://", "server-1").await;
}

/// Starts the services of the file, acquires locks by the README's URL, kills a master, and acquires the
/// locks again.
async fn outlives(file: &str, scheme: &str, master: &str) {
    let running = Running::start(file);
    running.await_once().await;
    let builder = Client::builder().url(running.url(scheme)).lazy(true);
    let client = builder.build().await.expect("it is a URL");
    let take_all = async || {
        for number in 0..20 {
            let lock = client.lock(format!("lock {number}"));
            let taken = lock.try_lock().wait(PATIENCE).await;
            let guard = taken.unwrap_or_else(|error| panic!("{error}\n{}", running.logs()));
            guard
                .expect("it is free")
                .unlock()
                .await
                .expect("it is held");
        }
    };
    let ((), took) = timed(take_all()).await;
    println!("ready after {took:?}");
    running.await_replicas().await;
    running.kill(master);
    let ((), took) = timed(take_all()).await;
    println!("a master died: {took:?}");
    client.shutdown().await;
}

/// The process of one container, with its own folder.
struct Service {
    process: Process,
    folder: TempDir,
    /// It has to end by itself, successfully.
    runs_once: bool,
}

struct Running {
    services: BTreeMap<String, Service>,
    /// Each port in the file, and the free port that is used here instead.
    ports: Vec<(String, u16)>,
}

impl Running {
    fn start(file: &str) -> Self {
        let commands = commands(file);
        let mut ports: Vec<String> = published(file);
        for port in &ports {
            let mut texts = commands.values().map(|words| words.concat());
            assert!(
                texts.any(|text| text.contains(port)),
                "no server is at {port}"
            );
        }
        // A sentinel's port contains the number of a server's port.
        ports.sort_by_key(|port| std::cmp::Reverse(port.len()));
        for (name, words) in &commands {
            let port = words.windows(2).find(|pair| pair[0] == "--port");
            let port = port.map(|pair| &pair[1]);
            assert!(
                port.is_none_or(|port| ports.contains(port)),
                "no client reaches {name} at {port:?}: {ports:?}"
            );
        }
        let ports = ports.into_iter().map(|port| (port, port_for_a_node()));
        let mut running = Self {
            services: BTreeMap::new(),
            ports: ports.collect(),
        };
        for (name, words) in commands {
            // This container only holds the network of the others.
            if words[0] == "sleep" {
                continue;
            }
            let service = running.service(&words);
            running.services.insert(name, service);
        }
        running
    }

    fn service(&self, words: &[String]) -> Service {
        let folder = TempDir::with_prefix("lockdog-").expect("a temporary folder can be made");
        let log = File::create(folder.path().join("log")).expect("it can be written to");
        let errors = log.try_clone().expect("the log can be shared");
        // The ports differ, and other machines must not reach them. Compose writes `$$` for `$`.
        let here = |word: &String| {
            let word = word.replace("$$", "$").replace("0.0.0.0", "127.0.0.1");
            self.with_free_ports(&word)
        };
        let child = Command::new(&words[0])
            .args(words[1..].iter().map(here))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let process = Process::default();
        process.set(child);
        let text = words.concat();
        Service {
            process,
            folder,
            runs_once: text.contains("--cluster create"),
        }
    }

    fn with_free_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let mark = |at: usize| format!("\u{1}{at}\u{1}");
        for (at, (port, _)) in self.ports.iter().enumerate() {
            text = text.replace(port, &mark(at));
        }
        for (at, (_, free)) in self.ports.iter().enumerate() {
            text = text.replace(&mark(at), &free.to_string());
        }
        text
    }

    /// The URL that the README gives to clients.
    fn url(&self, scheme: &str) -> String {
        let line = README.lines().find(|line| line.contains(scheme));
        let mut parts = line.expect("it has a URL").split('`');
        let url = parts.find(|part| part.starts_with(scheme));
        self.with_free_ports(url.expect("it is in the table"))
    }

    /// Waits for the services that run once.
    async fn await_once(&self) {
        for (name, service) in &self.services {
            if service.runs_once {
                eventually(PATIENCE, "what is done once is done", async || {
                    !service.process.is_running()
                })
                .await;
                let log = service.log();
                assert!(log.contains("All 16384 slots covered"), "{name}: {log}");
            } else {
                assert!(service.process.is_running(), "{name}: {}", service.log());
            }
        }
    }

    /// Waits until a replica can take the place of each master.
    async fn await_replicas(&self) {
        let commands = self.services.values();
        let sentinels = commands.filter(|service| service.log().contains("+monitor"));
        let sentinels = sentinels.count();
        let replicas = if sentinels > 0 { 2 } else { 3 };
        eventually(
            PATIENCE,
            "all replicas follow, and all are known",
            async || {
                let logs = self.logs();
                let logged = |line: &str| logs.matches(line).count();
                logged("MASTER <-> REPLICA sync: Finished with success") >= replicas
                    && logged("+slave slave") >= sentinels * replicas
                    && logged("+sentinel sentinel") >= sentinels * 2
            },
        )
        .await;
    }

    fn kill(&self, name: &str) {
        self.services[name].process.kill();
    }

    fn logs(&self) -> String {
        let log = |(name, service): (&String, &Service)| format!("== {name}\n{}", service.log());
        self.services.iter().map(log).collect()
    }
}

impl Service {
    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).expect("it is text")
    }
}

/// The command of each service. In these files a list in YAML is a list in JSON, except for line breaks,
/// which are blanks, and a trailing comma.
fn commands(file: &str) -> BTreeMap<String, Vec<String>> {
    let mut commands = BTreeMap::new();
    let (_, services) = file.split_once("\nservices:\n").expect("there are some");
    let mut name = "";
    let mut lines = services.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if indent == 2 && line.ends_with(':') && !line.contains('#') {
            name = line.trim().trim_end_matches(':');
        }
        let Some(first) = line.trim().strip_prefix("command:") else {
            continue;
        };
        let mut text = first.trim().to_owned();
        while !text.ends_with(']') {
            text += " ";
            text += lines.next().expect("the list has an end").trim();
        }
        let list = text.replace(", ]", "]");
        let words: Vec<String> = serde_json::from_str(&list)
            .unwrap_or_else(|error| panic!("{name} has a bad command: {error}: {list}"));
        commands.insert(name.to_owned(), words);
    }
    commands
}

/// The ports that are published under the same number, on this machine only.
fn published(file: &str) -> Vec<String> {
    let lines = file.lines().map(str::trim);
    let published = lines.filter_map(|line| line.strip_prefix("- \"127.0.0.1:"));
    let ports = published.flat_map(|line| {
        let (outside, inside) = line.trim_end_matches('"').split_once(':').expect("two");
        assert_eq!(outside, inside, "an announced port is the same everywhere");
        let (first, last) = outside.split_once('-').expect("a range");
        let number = |text: &str| text.parse::<u16>().expect("a port");
        number(first)..=number(last)
    });
    ports.map(|port| port.to_string()).collect()
}

/// Nodes talk to each other at the port plus ten thousand.
fn port_for_a_node() -> u16 {
    loop {
        let port = free_port();
        if port < 22_000 && is_free(port + 10_000) {
            return port;
        }
    }
}

const CLUSTER: &str = include_str!("../../../deploy/cluster.yaml");
const SENTINEL: &str = include_str!("../../../deploy/sentinel.yaml");
const README: &str = include_str!("../../../deploy/README.md");

/// A busy machine elects masters for longer than the time limits in the files.
const PATIENCE: Duration = Duration::from_secs(180);
