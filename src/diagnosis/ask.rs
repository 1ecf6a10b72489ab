//! Asks one server for its configuration, with commands that change nothing.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::inspection::Inspection;
use super::permissions::{self, Permissions, ProbeSubscriber};
use crate::clock;
use crate::server::{Connection, Failure};

/// How much to ask.
pub(super) enum Depth {
    /// Only commands that a user with the documented permissions may run, in one round trip. A
    /// refused command would be written to the server's ACL LOG and might alarm an administrator.
    InPassing,
    /// Everything, even if the server refuses some of it. Subscriptions are tested on their own
    /// connection.
    Whole(Option<ProbeSubscriber>),
}

/// The server's answers about itself.
pub(super) struct ServerFacts {
    pub(super) server: Result<Info, Failure>,
    pub(super) replication: Result<Info, Failure>,
    pub(super) memory: Result<Info, Failure>,
    pub(super) persistence: Result<Info, Failure>,
    /// The `save` setting from CONFIG; `None` if the client did not ask.
    pub(super) save: Option<Result<String, Failure>>,
    pub(super) permissions: Permissions,
    /// This machine's clock just before and just after the server was asked for its time.
    pub(super) asked: (u64, u64),
}

/// A section of INFO.
pub(super) struct Info(pub(super) String);

impl ServerFacts {
    /// Fails if the connection or the server has a problem; a refused command is no failure.
    pub(super) async fn ask(inspection: &Inspection<'_>, depth: Depth) -> Result<Self, Failure> {
        let Inspection {
            connection,
            expected,
            limit,
            ..
        } = *inspection;
        let clocked = async {
            let before = clock::wall_micros();
            let info = info(connection, "server", limit).await;
            (info, (before, clock::wall_micros()))
        };
        let is_whole = matches!(depth, Depth::Whole(_));
        let ask_save = is_whole || expected.user.is_none() && !expected.by_pool;
        let save = async {
            match ask_save {
                true => Some(save(connection, limit).await),
                false => None,
            }
        };
        let permissions = async {
            match depth {
                Depth::InPassing => permissions::reported_permissions(inspection).await,
                Depth::Whole(subscriber) => permissions::tried(inspection, subscriber).await,
            }
        };
        let ((server, asked), replication, memory, persistence, mut save, permissions) = tokio::join!(
            clocked,
            info(connection, "replication", limit),
            info(connection, "memory", limit),
            info(connection, "persistence", limit),
            save,
            permissions,
        );
        // The connection may have become silent, or have broken, between two answers.
        for answer in [&server, &replication, &memory, &persistence] {
            if let Err(failure) = answer
                && !matches!(failure, Failure::Refused { .. })
            {
                return Err(failure.clone());
            }
        }
        // This takes one more round trip, and only for a named user with more than the documented
        // permissions.
        if save.is_none() && permissions.may_ask_config {
            save = Some(self::save(connection, limit).await);
        }
        Ok(Self {
            server,
            replication,
            memory,
            persistence,
            save,
            permissions,
            asked,
        })
    }
}

impl Info {
    /// The value of one field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }
}

async fn info(connection: &Connection, section: &str, limit: Duration) -> Result<Info, Failure> {
    // Servers before 7.0 take one section at a time.
    let mut question = redis::cmd("INFO");
    question.arg(section);
    let answer = connection.send(&question, limit).await?;
    text(&answer).map(Info)
}

async fn save(connection: &Connection, limit: Duration) -> Result<String, Failure> {
    let mut question = redis::cmd("CONFIG");
    question.arg("GET").arg("save");
    let answer = connection.send(&question, limit).await?;
    let settings = HashMap::<String, String>::from_redis_value_ref(&answer);
    let save = settings.ok().and_then(|mut all| all.remove("save"));
    save.ok_or_else(unreadable)
}

fn text(answer: &Value) -> Result<String, Failure> {
    String::from_redis_value_ref(answer).map_err(|_| unreadable())
}

/// Some proxies answer commands about servers in their own format.
fn unreadable() -> Failure {
    Failure::Refused {
        code: "ERR".to_owned(),
        message: "the answer cannot be read".to_owned(),
    }
}
