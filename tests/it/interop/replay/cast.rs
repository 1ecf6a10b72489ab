//! Our clients, and the owners that represent the recorded threads.

use std::collections::HashMap;

use lockdog::Client;

#[derive(Default)]
pub(super) struct Cast {
    /// By name, in the order of their numbers in the recording.
    clients: Vec<(String, Client)>,
    /// The client's letter and the owner's number for each recorded thread.
    actors: HashMap<String, (char, u64)>,
}

impl Cast {
    /// Its number in the recording is the next one.
    pub(super) fn add(&mut self, name: &str, client: Client) {
        self.clients.push((name.to_owned(), client));
    }

    pub(super) fn client(&self, name: &str) -> Option<&Client> {
        let mut clients = self.clients.iter();
        let (_, client) = clients.find(|(known, _)| known == name)?;
        Some(client)
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().map(|(_, client)| client)
    }

    /// `B <t2>` is our client B and its owner 2, unless waiters were exchanged. A step of a client has no
    /// thread.
    pub(super) fn actor(&mut self, who: &str) -> (char, u64) {
        let client = who.chars().next().expect("a client calls");
        let thread = who.split(' ').nth(1).map_or(0, thread_number);
        *self
            .actors
            .entry(who.to_owned())
            .or_insert((client, thread))
    }

    /// Exchanges the actors of two recorded threads.
    pub(super) fn swap(&mut self, one: &str, other: &str) {
        let (a, b) = (self.actors[one], self.actors[other]);
        self.actors.insert(one.to_owned(), b);
        self.actors.insert(other.to_owned(), a);
    }

    /// A text of ours in the form of the recording: `<uuid1>:<t2>` for a field in it. The hold's number is
    /// omitted.
    pub(super) fn recorded(&self, text: &str) -> String {
        let mut clients = self.clients.iter();
        let found = clients.find_map(|(name, client)| {
            let (before, task) = text.split_once(&format!("{}:", client.id()))?;
            Some((before, name, task))
        });
        let Some((before, name, task)) = found else {
            return text.to_owned();
        };
        let (id, hold) = task.split_once('.').expect("a hold has a number");
        let rest = hold.trim_start_matches(|it: char| it.is_ascii_digit());
        assert_ne!(rest, hold, "a hold has a number");
        let (letter, server) = name.split_at(1);
        let client = letter.chars().next().expect("a client has a name");
        let actor = id.parse().ok().map(|id| (client, id));
        let mut actors = self.actors.iter();
        let (letter, thread) = match actors.find(|(_, known)| Some(**known) == actor) {
            Some((who, _)) => {
                let (client, thread) = who.split_once(' ').expect("a thread has a name");
                (&client[..1], thread.to_owned())
            }
            // An acquire of permits has its own owner.
            None if actor.is_none() => (letter, "<permits>".to_owned()),
            None => (letter, id.to_owned()),
        };
        let name = format!("{letter}{server}");
        let number = self.clients.iter().position(|(known, _)| *known == name);
        let number = number.expect("it is a client of ours") + 1;
        format!("{before}<uuid{number}>:{thread}{rest}")
    }
}

/// `<t1>` is 1. An explicit id is kept.
pub(super) fn thread_number(text: &str) -> u64 {
    let digits = text.trim_start_matches("<t").trim_end_matches('>');
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{text} is no thread"))
}
