//! The rules and the queries of the dashboard, in a real Prometheus that scrapes the example service.
//!
//! It takes some ten seconds: rates need several scrapes, and alerts several evaluations.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::dashboard::{Panel, panels};
use crate::service::{Service, http};
use crate::support::{file, root};

/// A private Prometheus process. It ends when the value is dropped.
struct Prometheus {
    child: Child,
    address: String,
    _data: TempDir,
}

impl Prometheus {
    /// Scrapes this target twice a second. No alert waits longer than a second.
    fn start(target: &str) -> Self {
        let data = TempDir::with_prefix("lockdog-").expect("there is room");
        let rules = file("deploy/prometheus/lockdog.rules.yaml");
        let rules: Vec<&str> = rules.lines().map(sooner).collect();
        std::fs::write(data.path().join("lockdog.rules.yaml"), rules.join("\n")).unwrap();
        let config = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
             rule_files: [lockdog.rules.yaml]\n\
             scrape_configs: [{{job_name: orders, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let config_file = data.path().join("prometheus.yaml");
        std::fs::write(&config_file, config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                data.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        Self {
            child,
            address,
            _data: data,
        }
    }

    async fn ready(&self) {
        let began = Instant::now();
        while tokio::net::TcpStream::connect(&self.address).await.is_err()
            || http(&self.address, "GET", "/-/ready").await.0 != 200
        {
            assert!(began.elapsed() < LONG, "it does not start");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn api(&self, path: &str) -> Value {
        let (status, body) = http(&self.address, "GET", path).await;
        // The answer may come in chunks: take what is between the first and the last brace.
        let json: String = body
            .lines()
            .filter(|line| usize::from_str_radix(line.trim(), 16).is_err())
            .collect();
        assert_eq!(status, 200, "{path}: {json}");
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// The values of the series that a query returns. NaN is one, too.
    async fn values(&self, query: &str) -> Vec<f64> {
        let answer = self
            .api(&format!("/api/v1/query?query={}", encoded(query)))
            .await;
        let series = answer["data"]["result"].as_array();
        let value = |series: &Value| {
            let text = series["value"][1].as_str().expect("it has a value");
            text.parse::<f64>().expect("it is a number or NaN")
        };
        series.expect("it has a result").iter().map(value).collect()
    }

    /// What a panel does not show: the series of a query, or any number.
    async fn missing(&self, panel: &Panel) -> Option<String> {
        let mut has_number = false;
        for query in &panel.queries {
            let query = query
                .replace("$__rate_interval", "5m")
                .replace("$__range", "5m")
                .replace("$job", ".*")
                .replace("$instance", ".*")
                .replace("$group", ".*");
            let values = self.values(&query).await;
            if values.is_empty() {
                return Some(query);
            }
            has_number |= values.iter().any(|value| !value.is_nan());
        }
        (!has_number).then(|| "a number".to_owned())
    }

    async fn firing(&self) -> Vec<String> {
        let answer = self.api("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"].as_array().expect("a list").iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().map(str::to_owned);
        firing.filter_map(name).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the rules, with an alert that fires at once.
fn sooner(line: &str) -> &str {
    match line.trim_start().starts_with("for: ") {
        true => "        for: 1s",
        false => line,
    }
}

fn encoded(query: &str) -> String {
    query
        .bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// A program of Debian's package, which `tests/setup` unpacks.
fn program(name: &str) -> PathBuf {
    let unpacked = root().join("target/prometheus/usr/bin").join(name);
    assert!(
        unpacked.exists(),
        "{} is missing: tests/setup unpacks it",
        unpacked.display()
    );
    unpacked
}

/// Below the ports that the kernel gives to outgoing connections: it would give this one to another test before
/// Prometheus listens there.
fn free_port() -> u16 {
    loop {
        let port = 10_240 + RandomState::new().hash_one(0) as u16 % 22_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

#[test]
fn the_rules_pass_their_own_tests() {
    let folder = root().join("deploy/prometheus");
    for args in [
        ["check", "rules", "lockdog.rules.yaml"],
        ["test", "rules", "lockdog.rules.test.yaml"],
    ] {
        let run = Command::new(program("promtool"))
            .args(args)
            .current_dir(&folder)
            .output()
            .expect("it runs");
        let output = String::from_utf8_lossy(&run.stdout);
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{output}{errors}");
    }
}

/// While the service's locks are taken and lost, and its messages are lost.
#[tokio::test]
async fn every_panel_has_data_and_the_alerts_fire() {
    let service = Service::start().await;
    let prometheus = Prometheus::start(&service.address);
    prometheus.ready().await;
    // The series exists before the first loss, so the loss is an increase.
    assert_eq!(service.ask("POST", "/orders/1").await.0, 200);
    assert_eq!(service.ask("POST", "/payouts/1").await.0, 200);
    let counted = r#"lockdog_lost_total{reason="not_ours"}"#;
    let began = Instant::now();
    while prometheus.values(counted).await.is_empty() {
        assert!(began.elapsed() < LONG, "it is not scraped");
        sleep(Duration::from_millis(100)).await;
    }
    service.redis.lose_messages(true);
    let trouble = async {
        loop {
            // Another client holds the lock, and its release message is lost.
            let stolen = service.redis.steal("orders:2");
            let waiting = service.ask("POST", "/orders/2");
            let release = async {
                sleep(Duration::from_millis(300)).await;
                drop(stolen);
            };
            let lost = async {
                while service.redis.holder("orders:3").is_none() {
                    sleep(Duration::from_millis(1)).await;
                }
                service.redis.lose("orders:3");
                std::future::pending::<()>().await;
            };
            // On a busy machine the order may be done before the loop has seen its lock.
            let losing = async {
                tokio::select! {
                    _ = service.ask("POST", "/orders/3") => {}
                    () = lost => {}
                }
            };
            tokio::join!(waiting, release, losing);
        }
    };
    let alerts = async {
        let began = Instant::now();
        loop {
            let firing = prometheus.firing().await;
            let wanted = ["LockdogLockLost", "LockdogMessagesDoNotArrive"];
            if wanted
                .iter()
                .all(|alert| firing.iter().any(|it| it == alert))
            {
                break;
            }
            assert!(began.elapsed() < LONG, "only {firing:?} fire");
            sleep(Duration::from_millis(200)).await;
        }
        for panel in panels() {
            while let Some(missing) = prometheus.missing(&panel).await {
                let is_late = began.elapsed() > 2 * LONG;
                assert!(!is_late, "{} does not show {missing}", panel.title);
                sleep(Duration::from_millis(200)).await;
            }
        }
    };
    // Without renewals their times are NaN.
    let renewed = async {
        loop {
            service.ask("POST", "/reports/1").await;
        }
    };
    tokio::select! {
        () = trouble => {}
        () = renewed => {}
        () = alerts => {}
    }
}

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);
