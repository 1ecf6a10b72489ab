//! Finds out what the client's user is permitted to do.

use std::time::Duration;

use redis::Cmd;
use redis::aio::PubSub;
use uuid::Uuid;

use super::inspection::{ClientProfile, Inspection};
use super::needs::{CHANNEL, EPOCH, KEY, NAME, Need, SCRIPT, SHARDED, needs};
use crate::script;
use crate::server::{Failure, Node, Server, Subscriber};

/// The result for one permission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Permitted {
    Yes,
    No,
    Unknown,
    /// The server, or a proxy in front of it, does not have this command.
    Unsupported,
}

#[derive(Default)]
pub(super) struct Permissions {
    pub(super) found: Vec<(Need, Permitted)>,
    /// The user may use only some keys or channels. The names of the locks are unknown here.
    pub(super) is_limited: bool,
    /// The user may not use the key of the server's epoch, but the client wants to.
    pub(super) no_epoch: bool,
    pub(super) may_ask_config: bool,
}

/// Asks the server for the user's permissions. Redis 7.0 and later answer this, and log nothing.
pub(super) async fn reported_permissions(inspection: &Inspection<'_>) -> Permissions {
    let needs = needs(inspection);
    let names = Names::new();
    let mut commands: Vec<String> = needs
        .iter()
        .map(|need| names.put_into(need.words))
        .collect();
    commands.push(CONFIG.to_owned());
    let asked: Vec<&str> = commands.iter().map(String::as_str).collect();
    let mut answers = match script::permitted(inspection.connection, &asked, inspection.limit).await
    {
        Ok(answers) => answers,
        Err(failure) => {
            let of_eval = refused(&failure);
            let found = needs.into_iter().map(|need| {
                let is_eval = need.rule == "eval" && of_eval == Refusal::Command;
                (
                    need,
                    if is_eval {
                        Permitted::No
                    } else {
                        Permitted::Unknown
                    },
                )
            });
            return Permissions {
                found: found.collect(),
                ..Permissions::default()
            };
        }
    };
    let may_ask_config = answers.pop().flatten() == Some(true);
    // A refusal may be about the command, or about this key or channel. It is about the command if
    // another command with the same key or channel is permitted.
    let may_use = |word: &str| {
        let mut pairs = needs.iter().zip(&answers);
        // UNSUBSCRIBE is never refused because of the channel, so it proves nothing.
        let is_conclusive = |need: &Need| need.uses(word) && !need.rule.ends_with("unsubscribe");
        pairs.any(|(need, answer)| is_conclusive(need) && *answer == Some(true))
    };
    let unproved: Vec<&str> = needs.iter().flat_map(Need::places).collect();
    let unproved: Vec<&str> = unproved.into_iter().filter(|it| !may_use(it)).collect();
    let epoch = may_use(EPOCH);
    let is_expected = |place: &&str| **place != *CHANNEL || inspection.expected.listens;
    let is_limited = unproved.iter().any(is_expected);
    let found = needs.into_iter().zip(answers).map(|(need, answer)| {
        let is_about_place = need.places().any(|it| unproved.contains(&it));
        let permitted = match answer {
            Some(true) => Permitted::Yes,
            Some(false) if is_about_place || need.uses(EPOCH) && !epoch => Permitted::Unknown,
            Some(false) => Permitted::No,
            None => Permitted::Unknown,
        };
        (need, permitted)
    });
    Permissions {
        found: found.collect(),
        is_limited,
        no_epoch: false,
        may_ask_config,
    }
}

/// Runs each command once, in a way that changes nothing. The server writes refused commands to its
/// ACL LOG.
pub(super) async fn tried(
    inspection: &Inspection<'_>,
    subscriber: Option<ProbeSubscriber>,
) -> Permissions {
    let needs = needs(inspection);
    let names = Names::new();
    let mut permissions = Permissions::default();
    let silent = || Err(Failure::silent(inspection.limit));
    let subscribed = match subscriber {
        Some(subscriber) => subscriber.probe(&names.channel, inspection.limit).await,
        None => [silent(), silent()],
    };
    let tries = needs.into_iter().map(|need| {
        let (names, subscribed) = (&names, &subscribed);
        async move {
            let outcome = match need.rule {
                "subscribe" | "ssubscribe" => subscribed[0].clone(),
                "unsubscribe" | "sunsubscribe" => subscribed[1].clone(),
                _ => {
                    let command = names.command(&need, inspection.expected);
                    let sent = inspection.connection.send(&command, inspection.limit).await;
                    sent.map(drop)
                }
            };
            (need, outcome)
        }
    });
    for (need, outcome) in futures_util::future::join_all(tries).await {
        let permitted = match outcome {
            Ok(()) => Permitted::Yes,
            Err(failure) => match refused(&failure) {
                Refusal::Command => Permitted::No,
                // Servers before 7.0 have no sharded messages.
                Refusal::Unknown if need.rule == SHARDED && !inspection.is_sharded => {
                    Permitted::Yes
                }
                Refusal::Unknown => Permitted::Unsupported,
                Refusal::Place if need.uses(EPOCH) => {
                    permissions.no_epoch = true;
                    Permitted::Yes
                }
                Refusal::Place => {
                    permissions.is_limited = true;
                    Permitted::Yes
                }
                Refusal::Otherwise => Permitted::Yes,
                Refusal::Not => Permitted::Unknown,
            },
        };
        permissions.found.push((need, permitted));
    }
    permissions
}

/// A connection for messages that is used only for this check.
pub(super) enum ProbeSubscriber {
    Of(PubSub),
    OfShard(Subscriber),
}

impl ProbeSubscriber {
    /// `None` if no connection can be opened.
    pub(super) async fn open(
        server: &Server,
        node: &Node,
        is_sharded: bool,
        limit: Duration,
    ) -> Option<Self> {
        if is_sharded {
            let subscriber = server.subscriber(node, |_, _| {}, limit).await.ok()?;
            return Some(Self::OfShard(subscriber));
        }
        let opened = tokio::time::timeout(limit, node.endpoint().open_pubsub(limit)).await;
        Some(Self::Of(opened.ok()?.ok()?))
    }

    /// Whether the user may subscribe to this channel, and unsubscribe from it.
    async fn probe(self, channel: &str, limit: Duration) -> [Result<(), Failure>; 2] {
        match self {
            Self::Of(mut messages) => {
                let answers = async {
                    let subscribed = messages.subscribe(channel).await;
                    [subscribed, messages.unsubscribe(channel).await]
                };
                match tokio::time::timeout(limit, answers).await {
                    Ok(answers) => answers
                        .map(|answer| answer.map_err(|error| Failure::of_command(error, limit))),
                    Err(_) => [Err(Failure::silent(limit)), Err(Failure::silent(limit))],
                }
            }
            Self::OfShard(subscriber) => {
                let subscribed = subscriber.subscribe(channel).await;
                [subscribed, subscriber.unsubscribe(channel).await]
            }
        }
    }
}

/// What an error reply says about a permission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// The user may not run the command.
    Command,
    /// It may run the command, but not with this key or channel.
    Place,
    /// The server does not have the command.
    Unknown,
    /// The command was refused for another reason, as expected.
    Otherwise,
    /// No error reply: the command was not answered.
    Not,
}

fn refused(failure: &Failure) -> Refusal {
    let Failure::Refused { code, message } = failure else {
        return Refusal::Not;
    };
    if code == "NOPERM" {
        // "... to run the 'x' command", "... access one of the keys ...", "... access a channel".
        let of_command = message.contains("to run the") || !message.contains("access");
        return if of_command {
            Refusal::Command
        } else {
            Refusal::Place
        };
    }
    let message = message.to_ascii_lowercase();
    if message.starts_with("unknown command") || message.starts_with("unknown subcommand") {
        return Refusal::Unknown;
    }
    Refusal::Otherwise
}

/// Unique names that no other client uses.
struct Names {
    key: String,
    channel: String,
}

impl Names {
    fn new() -> Self {
        let unique = Uuid::new_v4();
        Self {
            key: format!("lockdog:diagnosis:{unique}"),
            channel: format!("lockdog:diagnosis:{unique}"),
        }
    }

    fn put_into(&self, words: &str) -> String {
        let words = words
            .replace(KEY, &self.key)
            .replace(CHANNEL, &self.channel);
        words.replace(SCRIPT, "return")
    }

    fn command(&self, need: &Need, expected: &ClientProfile) -> Cmd {
        let words = self.put_into(need.words);
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        for word in words {
            match (word, &expected.client_name) {
                // Sets the name that the connection already has.
                (NAME, Some(name)) => command.arg(name),
                _ => command.arg(word),
            };
        }
        command
    }
}

/// Checked in addition to the needs: whether the client may ask for the `save` setting.
const CONFIG: &str = "config get save";
