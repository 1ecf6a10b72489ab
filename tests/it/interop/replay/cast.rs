//! Our clients, and which of their owners stand for the recorded threads.

use std::collections::HashMap;

use lockdog::Client;

#[derive(Default)]
pub(super) struct Cast {
    /// By the names in the recording, in the order of their numbers there.
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

    /// `B <t2>` is our client B and its owner number 2, unless waiters changed places. A client's
    /// own step has no thread.
    pub(super) fn actor(&mut self, who: &str) -> (char, u64) {
        let client = who.chars().next().expect("a client calls");
        let thread = who.split(' ').nth(1).map_or(0, thread_number);
        *self
            .actors
            .entry(who.to_owned())
            .or_insert((client, thread))
    }

    /// From now on each of two recorded threads has the other's actor.
    pub(super) fn swap(&mut self, one: &str, other: &str) {
        let (a, b) = (self.actors[one], self.actors[other]);
        self.actors.insert(one.to_owned(), b);
        self.actors.insert(other.to_owned(), a);
    }

    /// A message, whose channel may end with a field of ours.
    pub(super) fn recorded_message(&self, message: &str) -> String {
        let (channel, rest) = message.split_once(" <- ").expect("a message was published");
        let mut clients = self.clients.iter();
        let field = clients.find_map(|(_, client)| channel.find(&client.id().to_string()));
        match field {
            Some(at) => format!(
                "{}{} <- {rest}",
                &channel[..at],
                self.recorded(&channel[at..])
            ),
            None => message.to_owned(),
        }
    }

    /// Our field as the recording writes it: `<uuid1>:<t2>`; the hold's number is left away.
    pub(super) fn recorded(&self, field: &str) -> String {
        let own = self.clients.iter().find_map(|(name, client)| {
            let task = field
                .strip_prefix(&client.id().to_string())?
                .strip_prefix(':')?;
            let (id, hold) = task.split_once('.').expect("a hold has a number");
            hold.parse::<u64>().expect("a hold has a number");
            Some((name, id.parse::<u64>().expect("our owners are numbers")))
        });
        let Some((name, id)) = own else {
            return field.to_owned();
        };
        let (letter, server) = name.split_at(1);
        let actor = (letter.chars().next().expect("a client has a name"), id);
        let mut actors = self.actors.iter();
        let (letter, thread) = match actors.find(|(_, known)| **known == actor) {
            Some((who, _)) => {
                let (client, thread) = who.split_once(' ').expect("a thread has a name");
                (&client[..1], thread.to_owned())
            }
            None => (letter, id.to_string()),
        };
        let name = format!("{letter}{server}");
        let number = self.clients.iter().position(|(known, _)| *known == name);
        let number = number.expect("it is a client of ours") + 1;
        format!("<uuid{number}>:{thread}")
    }
}

/// `<t1>` is 1; an explicit id is itself.
pub(super) fn thread_number(text: &str) -> u64 {
    let digits = text.trim_start_matches("<t").trim_end_matches('>');
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{text} is no thread"))
}
