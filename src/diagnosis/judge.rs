//! Judges a server's answers: what they mean for locks. No I/O.

use std::time::Duration;

use super::ask::{Info, ServerFacts};
use super::finding::{Finding, FindingKind};
use super::inspection::ClientProfile;
use super::needs::Need;
use super::permissions::Permitted;
use crate::server::Failure;

/// What is wrong with a server that gives these answers, and what cannot be determined.
pub(super) fn judge(
    answers: &ServerFacts,
    server: &str,
    is_cluster: bool,
    expected: &ClientProfile,
) -> Vec<Finding> {
    let mut findings = Findings {
        server,
        all: Vec::new(),
    };
    findings.note(FindingKind::Eviction, eviction(&answers.memory));
    findings.note(FindingKind::NoPersistence, persistence(answers, expected));
    match answers.replication.as_ref().map(|info| info.get("role")) {
        Ok(Some("slave")) => findings.add(FindingKind::Replica, REPLICA, FOLLOW),
        Ok(Some(_)) => findings.note(
            FindingKind::NoMinReplicas,
            min_replicas(&answers.replication),
        ),
        _ => {
            let why = cause(&answers.replication, "role");
            findings.unknown(FindingKind::Replica, &why);
            findings.unknown(FindingKind::NoMinReplicas, &why);
        }
    }
    // A client that is configured for a cluster expects its nodes.
    if !is_cluster {
        findings.note(FindingKind::ClusterMode, cluster_mode(&answers.server));
    }
    findings.note(FindingKind::OldVersion, version(&answers.server, expected));
    // A test moves tokio's clock, and not this machine's.
    if !expected.has_tokio_time {
        findings.note(FindingKind::ClockDifference, clock(answers));
    }
    permissions(&mut findings, answers, expected);
    findings.all
}

/// No finding, a meaning and a fix, or the reason why it is unknown.
type Judged = Result<Option<(String, String)>, String>;

struct Findings<'a> {
    server: &'a str,
    all: Vec<Finding>,
}

impl Findings<'_> {
    fn note(&mut self, kind: FindingKind, judged: Judged) {
        match judged {
            Ok(Some((meaning, fix))) => self.add(kind, &meaning, &fix),
            Ok(None) => {}
            Err(why) => self.unknown(kind, &why),
        }
    }

    fn unknown(&mut self, kind: FindingKind, why: &str) {
        let what = match kind {
            FindingKind::ClockDifference => "whether the server's clock is right",
            FindingKind::ClusterMode => "whether the server is a node of a cluster",
            FindingKind::Eviction => "whether the server may evict locks",
            FindingKind::NoMinReplicas => "whether a master without its replicas grants locks",
            FindingKind::NoPersistence => "whether a restart forgets all locks",
            FindingKind::OldVersion => "which version the server has",
            FindingKind::Permissions => "whether the user has all permissions",
            FindingKind::Replica => "whether the server is a replica",
            FindingKind::Unreachable => "whether the server answers",
        };
        let fix = match kind {
            FindingKind::NoPersistence => {
                "look at `CONFIG GET save` and `appendonly` as an administrator, or in the provider's settings"
            }
            FindingKind::Permissions => "compare the user with the line in docs/security.md",
            _ => "permit +info, or look as an administrator, or in the provider's settings",
        };
        self.all.push(Finding {
            kind,
            server: self.server.to_owned(),
            is_known: false,
            is_expected: false,
            meaning: format!("it is not known {what}: {why}"),
            fix: fix.to_owned(),
        });
    }

    fn add(&mut self, kind: FindingKind, meaning: &str, fix: &str) {
        self.all.push(Finding {
            kind,
            server: self.server.to_owned(),
            is_known: true,
            is_expected: false,
            meaning: meaning.to_owned(),
            fix: fix.to_owned(),
        });
    }
}

fn eviction(memory: &Result<Info, Failure>) -> Judged {
    let limit = field(memory, "maxmemory")?;
    let policy = field(memory, "maxmemory_policy")?;
    if limit == "0" || policy == "noeviction" {
        return Ok(None);
    }
    // A lock has a TTL, so the volatile-* policies evict it too.
    found(
        format!(
            "maxmemory-policy is {policy} at maxmemory {limit}: when the memory is full the server \
             deletes locks that are held, and others acquire them"
        ),
        "CONFIG SET maxmemory-policy noeviction (and in redis.conf; on a managed service in its \
         parameters), or a server for locks alone",
    )
}

fn persistence(answers: &ServerFacts, expected: &ClientProfile) -> Judged {
    if field(&answers.persistence, "aof_enabled")? != "0" {
        return Ok(None);
    }
    if expected.on_disk == Some(true) {
        return found(
            "appendonly is off, and ReplicaAck::RequireAof asks for the master's own disk: every \
             acquire fails"
                .to_owned(),
            "CONFIG SET appendonly yes (and in redis.conf), or RequireAof with local: false",
        );
    }
    match &answers.save {
        Some(Ok(save)) if save.is_empty() => found(
            "neither appendonly nor save is on: a restart of the server forgets all locks, and \
             others acquire what is held"
                .to_owned(),
            "CONFIG SET appendonly yes, and appendfsync always where no acknowledged lock may be \
             forgotten (and in redis.conf); or a RedLock",
        ),
        Some(Ok(_)) => Ok(None),
        Some(Err(failure)) => Err(failure.words()),
        None => Err("the client did not ask for CONFIG".to_owned()),
    }
}

fn min_replicas(replication: &Result<Info, Failure>) -> Judged {
    let replicas = field(replication, "connected_slaves")?;
    let Ok(info) = replication else {
        return Ok(None);
    };
    // INFO has this field only if both settings are on.
    if replicas == "0" || info.get("min_slaves_good_slaves").is_some() {
        return Ok(None);
    }
    let set = "CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 10 (and in \
               redis.conf): such a master then refuses to grant after ten seconds";
    let (count, but) = match replicas {
        "1" => (
            "one replica",
            "; and a second replica before, or after a failover no lock is granted until the old \
             master is back",
        ),
        _ => ("its replicas", ""),
    };
    found(
        format!(
            "min-replicas-to-write is 0 with {count}: a master that is cut off continues to grant \
             locks that the next master does not have"
        ),
        &format!("{set}{but}"),
    )
}

fn cluster_mode(server: &Result<Info, Failure>) -> Judged {
    // Valkey 9 and later use this name.
    let mode =
        field(server, "redis_mode").or_else(|why| field(server, "server_mode").map_err(|_| why));
    if mode? != "cluster" {
        return Ok(None);
    }
    found(
        "the server is a node of a cluster, and the URL is that of one server: locks whose slots \
         other nodes keep cannot be acquired"
            .to_owned(),
        "give all nodes: redis+cluster://host:port,host:port",
    )
}

fn version(server: &Result<Info, Failure>, expected: &ClientProfile) -> Judged {
    // Valkey reports here the Redis version that it is compatible with.
    let version = field(server, "redis_version")?;
    let mut parts = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return Err(format!("it reports the version {version:?}"));
    };
    if expected.on_disk.is_some() && (major, minor) < WITH_WAITAOF {
        return found(
            format!(
                "the server is Redis {version}, which has no WAITAOF: with ReplicaAck::RequireAof \
                 every acquire fails"
            ),
            "upgrade to Redis 7.2 or later, or Valkey; or ReplicaAck::Require",
        );
    }
    if (major, minor) >= OLDEST {
        return Ok(None);
    }
    found(
        format!(
            "the server is Redis {version}: lockdog is not tested with it, and promises nothing"
        ),
        "upgrade to Redis 6.2 or later, or Valkey",
    )
}

fn clock(answers: &ServerFacts) -> Judged {
    let text = field(&answers.server, "server_time_usec")?;
    let Ok(server_time) = text.parse::<u64>() else {
        return Err("its time cannot be read".to_owned());
    };
    let (before, after) = answers.asked;
    // The server read its clock between the two, so the difference is at least this large.
    let (off, by) = if server_time > after {
        ("ahead of", server_time - after)
    } else {
        ("behind", before.saturating_sub(server_time))
    };
    let by = Duration::from_micros(by);
    if by <= TOLERATED {
        return Ok(None);
    }
    found(
        format!(
            "the server's clock is {} ms {off} this machine's. Leases do not depend on it; what \
             compares times does: Redisson's fair locks, a RedLock's fencing tokens after a loss of \
             data, logs, certificates",
            by.as_millis()
        ),
        "synchronize both by NTP",
    )
}

fn permissions(findings: &mut Findings<'_>, answers: &ServerFacts, expected: &ClientProfile) {
    let permissions = &answers.permissions;
    let of = |wanted| {
        let all = permissions.found.iter();
        let all = all.filter(move |(_, permitted)| *permitted == wanted);
        all.map(|(need, _)| need).collect::<Vec<&Need>>()
    };
    let user = match &expected.user {
        _ if expected.by_pool => "<the pool's user>",
        Some(user) => user,
        None => "default",
    };
    let denied = of(Permitted::No);
    if !denied.is_empty() || permissions.no_epoch {
        let mut losses: Vec<String> = denied.iter().map(|need| loss(need)).collect();
        let mut line = format!("ACL SETUSER {user}");
        for need in &denied {
            line.push_str(" +");
            line.push_str(need.rule);
        }
        if permissions.no_epoch {
            losses.push("the key lockdog:epoch (no lock with quarantine_on_server)".to_owned());
            line.push_str(" ~lockdog:epoch");
        }
        let meaning = format!("the user {user} may not use: {}", losses.join(", "));
        findings.add(FindingKind::Permissions, &meaning, &line);
    }
    let unsupported = of(Permitted::Unsupported);
    if !unsupported.is_empty() {
        let losses: Vec<String> = unsupported.iter().map(|need| loss(need)).collect();
        let meaning = format!(
            "the server, or a proxy in front of it, does not support: {}",
            losses.join(", ")
        );
        let fix = "have these commands enabled, or use another server for locks";
        findings.add(FindingKind::Permissions, &meaning, fix);
    }
    let unknown = of(Permitted::Unknown);
    if !unknown.is_empty() {
        let rules: Vec<&str> = unknown.iter().map(|need| need.rule).collect();
        let why = format!(
            "the server does not say whether it permits {}",
            rules.join(", ")
        );
        findings.unknown(FindingKind::Permissions, &why);
    }
    if permissions.is_limited {
        let why = format!(
            "{user} may use some keys or channels only, and whether these are the locks' cannot be \
             asked without their names"
        );
        findings.unknown(FindingKind::Permissions, &why);
    }
}

fn loss(need: &Need) -> String {
    format!("{} ({})", need.rule, need.loss)
}

fn found(meaning: String, fix: &str) -> Judged {
    Ok(Some((meaning, fix.to_owned())))
}

fn field<'a>(section: &'a Result<Info, Failure>, name: &str) -> Result<&'a str, String> {
    let value = section.as_ref().ok().and_then(|info| info.get(name));
    value.ok_or_else(|| cause(section, name))
}

/// The reason why a field of INFO is unknown.
fn cause(section: &Result<Info, Failure>, name: &str) -> String {
    match section {
        Ok(_) => format!("INFO has no field {name}"),
        Err(failure) => failure.words(),
    }
}

/// The oldest version that lockdog is tested with.
const OLDEST: (u32, u32) = (6, 2);

/// The oldest version with WAITAOF.
const WITH_WAITAOF: (u32, u32) = (7, 2);

/// Synchronized clocks differ by less.
const TOLERATED: Duration = Duration::from_secs(1);

const REPLICA: &str =
    "the server is a replica: it refuses every write, so no lock can be acquired there";
const FOLLOW: &str =
    "give the master's address, or the sentinels' (redis+sentinel://), which follow it";

#[cfg(test)]
mod tests {
    use super::super::permissions::Permissions;
    use super::*;

    fn answers() -> ServerFacts {
        let server = "redis_version:7.0.15\r\nredis_mode:standalone\r\nserver_time_usec:10000000";
        ServerFacts {
            server: Ok(Info(server.to_owned())),
            replication: Ok(Info("role:master\r\nconnected_slaves:0".to_owned())),
            memory: Ok(Info(
                "maxmemory:0\r\nmaxmemory_policy:noeviction".to_owned(),
            )),
            persistence: Ok(Info("aof_enabled:1".to_owned())),
            save: None,
            permissions: Permissions::default(),
            asked: (10_000_000, 10_000_000),
        }
    }

    fn judged(answers: &ServerFacts) -> Vec<(FindingKind, bool)> {
        let findings = judge(answers, "host:6379", false, &ClientProfile::default());
        findings.iter().map(|it| (it.kind, it.is_known)).collect()
    }

    #[test]
    fn a_version_below_the_oldest_tested_version_is_a_finding() {
        assert_eq!(judged(&answers()), []);
        for (version, expected) in [
            ("6.0.20", Some(true)),
            ("5.0.14", Some(true)),
            ("6.2.0", None),
            ("7.2.4", None),
            ("255.255.255", None),
            ("10.0", None),
            ("unstable", Some(false)),
        ] {
            let mut answers = answers();
            let text = format!(
                "redis_version:{version}\r\nredis_mode:standalone\r\nserver_time_usec:10000000"
            );
            answers.server = Ok(Info(text));
            let wanted: Vec<_> = expected
                .map(|known| (FindingKind::OldVersion, known))
                .into_iter()
                .collect();
            assert_eq!(judged(&answers), wanted, "{version}");
        }
    }

    #[test]
    fn a_clock_difference_is_a_finding_only_if_the_latency_cannot_explain_it() {
        let ms = 1_000;
        for (asked, is_found) in [
            ((10_000 * ms, 10_000 * ms), false),
            ((8_000 * ms, 9_100 * ms), false),
            ((8_000 * ms, 8_900 * ms), true),
            ((10_900 * ms, 13_000 * ms), false),
            ((11_100 * ms, 13_000 * ms), true),
            ((1_000 * ms, 60_000 * ms), false),
        ] {
            let answers = ServerFacts { asked, ..answers() };
            let wanted = if is_found {
                vec![(FindingKind::ClockDifference, true)]
            } else {
                vec![]
            };
            assert_eq!(judged(&answers), wanted, "{asked:?}");
        }
    }

    #[test]
    fn missing_server_facts_are_unknown_findings() {
        let none = || {
            Err(Failure::Refused {
                code: "NOPERM".to_owned(),
                message: "no".to_owned(),
            })
        };
        let silent = ServerFacts {
            server: none(),
            replication: none(),
            memory: none(),
            persistence: none(),
            ..answers()
        };
        let everything = [
            FindingKind::Eviction,
            FindingKind::NoPersistence,
            FindingKind::Replica,
            FindingKind::NoMinReplicas,
            FindingKind::ClusterMode,
            FindingKind::OldVersion,
            FindingKind::ClockDifference,
        ];
        assert_eq!(judged(&silent), everything.map(|kind| (kind, false)));
        let empty = ServerFacts {
            server: Ok(Info(String::new())),
            replication: Ok(Info(String::new())),
            memory: Ok(Info(String::new())),
            persistence: Ok(Info(String::new())),
            ..answers()
        };
        assert_eq!(judged(&empty), everything.map(|kind| (kind, false)));
        let unasked = ServerFacts {
            persistence: Ok(Info("aof_enabled:0".to_owned())),
            ..answers()
        };
        assert_eq!(judged(&unasked), [(FindingKind::NoPersistence, false)]);
    }
}
