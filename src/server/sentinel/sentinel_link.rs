//! Asks one sentinel for the master.

use std::collections::HashMap;
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::sentinel_access::SentinelAccess;
use crate::server::failure::Failure;
use crate::server::wire::open;

/// A master as one sentinel names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NamedMaster {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) epoch: u64,
}

impl NamedMaster {
    pub(super) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// A sentinel's answer.
pub(super) struct SentinelAnswer {
    pub(super) named: NamedMaster,
    /// It considers the master healthy: neither down nor being replaced.
    pub(super) is_well: bool,
    /// Its own id and those of the other sentinels of this master that it knows.
    pub(super) ids: Vec<String>,
}

/// One sentinel, with a connection that is kept for the next query.
pub(super) struct SentinelLink<'a> {
    sentinel: &'a SentinelAccess,
    kept: Option<MultiplexedConnection>,
    /// When the first of the queries began that this sentinel has not answered.
    unanswered: Option<Instant>,
}

impl<'a> SentinelLink<'a> {
    pub(super) fn to(sentinel: &'a SentinelAccess) -> Self {
        Self {
            sentinel,
            kept: None,
            unanswered: None,
        }
    }

    /// Asks for the master, the sentinel's view of its health, and the ids of all sentinels.
    pub(super) async fn ask(
        &mut self,
        name: &str,
        limit: Duration,
    ) -> Result<SentinelAnswer, Failure> {
        // Once most of the others have answered, this future is dropped before its time limit. So a half-open
        // connection would be kept as long as they answer, with all queries that have no answer.
        let now = Instant::now();
        if now - *self.unanswered.get_or_insert(now) > SILENCE {
            self.kept = None;
            self.unanswered = Some(now);
        }
        let answer = tokio::time::timeout(limit, self.ask_now(name, limit)).await;
        self.unanswered = None;
        let answer = answer.unwrap_or_else(|_| Err(Failure::silent(limit)));
        answer.map_err(|failure| {
            self.kept = None;
            self.sentinel.forget_login();
            let address = self.sentinel.address();
            tracing::debug!(
                target: "lockdog::server",
                server = address, %failure, "a sentinel does not answer"
            );
            // Callers must not mistake a sentinel's refusal for one of the server that keeps the locks.
            Failure::Unsent(format!("sentinel {address}: {}", failure.words()).into())
        })
    }

    async fn ask_now(&mut self, name: &str, limit: Duration) -> Result<SentinelAnswer, Failure> {
        let client = self.sentinel.client();
        match self.ask_by(client, name, limit).await {
            Err(failure) if failure.is_of_login() => match self.sentinel.client_after(client) {
                Some(other) => {
                    self.kept = None;
                    self.ask_by(other, name, limit).await
                }
                None => Err(failure),
            },
            answered => answered,
        }
    }

    async fn ask_by(
        &mut self,
        client: &redis::Client,
        name: &str,
        limit: Duration,
    ) -> Result<SentinelAnswer, Failure> {
        let connection = match &self.kept {
            Some(kept) => kept.clone(),
            None => self.kept.insert(open(client, limit).await?).clone(),
        };
        // The epoch before the address: in the other order an old master could get a new epoch. A
        // sentinel during a switch names the new master only in the second answer.
        let words = [
            &["MASTER", name][..],
            &["GET-MASTER-ADDR-BY-NAME", name],
            &["MYID"],
            &["SENTINELS", name],
        ];
        let (fields, address, own, others) = tokio::join!(
            question(&connection, words[0], limit),
            question(&connection, words[1], limit),
            question(&connection, words[2], limit),
            question(&connection, words[3], limit)
        );
        let fields: HashMap<String, String> = fields?;
        let address: Option<(String, u16)> = address?;
        let named = address.and_then(|(host, port)| read(&fields, host, port));
        let (named, is_well) = named.ok_or_else(|| Failure::Unsent("it names no master".into()))?;
        // If these are refused, the client does not know which master the sentinel monitors.
        let own: Option<String> = own.ok();
        let others: Vec<HashMap<String, String>> = others.unwrap_or_default();
        let others = others.into_iter().filter_map(|mut it| it.remove("runid"));
        Ok(SentinelAnswer {
            named,
            is_well,
            ids: own.into_iter().chain(others).collect(),
        })
    }
}

/// The master at this address by a sentinel's answer, and whether the sentinel considers it healthy.
fn read(fields: &HashMap<String, String>, host: String, port: u16) -> Option<(NamedMaster, bool)> {
    let field = |name| fields.get(name).map(String::as_str).unwrap_or_default();
    let epoch = field("config-epoch").parse().ok()?;
    // Until the replicas follow the new master, all fields describe the old one.
    let is_its = field("ip") == host && field("port") == port.to_string();
    let mut flags = field("flags").split(',');
    let is_well = !is_its || !flags.any(|it| DOUBTFUL.contains(&it));
    Some((NamedMaster { host, port, epoch }, is_well))
}

async fn question<T: FromRedisValue>(
    connection: &MultiplexedConnection,
    words: &[&str],
    limit: Duration,
) -> Result<T, Failure> {
    let mut question = redis::cmd("SENTINEL");
    question.arg(words);
    let answer = question.query_async(&mut connection.clone()).await;
    answer.map_err(|error| Failure::of_command(error, limit))
}

/// After this time without an answer, the next query uses a new connection. It is long, because a sentinel that always
/// answers after the others is not waited for either.
const SILENCE: Duration = Duration::from_secs(10);

/// Flags of a master that may be replaced soon.
const DOUBTFUL: [&str; 4] = ["s_down", "o_down", "failover_in_progress", "disconnected"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_is_down_or_being_replaced_is_not_healthy() {
        let fields_with = |flags: &str| {
            let fields = [
                ("config-epoch", "3"),
                ("ip", "h"),
                ("port", "1"),
                ("flags", flags),
            ];
            HashMap::from(fields.map(|(name, value)| (name.to_owned(), value.to_owned())))
        };
        for (flags, port, well) in [
            ("master", 1, true),
            ("master,force_failover", 1, true),
            ("s_down,master", 1, false),
            ("s_down,o_down,master,disconnected", 1, false),
            ("master,failover_in_progress,force_failover", 1, false),
            // These flags describe the previous master.
            ("s_down,o_down,master,failover_in_progress", 2, true),
        ] {
            let (named, is_well) = read(&fields_with(flags), "h".to_owned(), port).unwrap();
            assert_eq!(
                (named.port, named.epoch, is_well),
                (port, 3, well),
                "{flags}"
            );
        }
        assert!(read(&HashMap::new(), "h".to_owned(), 1).is_none());
    }
}
