//! What can be done at once or left out because no party can observe the difference. It would only
//! multiply the states.

use super::client::is_over;
use super::instance::{Body, Message};
use super::setting::Setting;
use super::world::World;

impl World {
    pub(super) fn tidy(&mut self, setting: &Setting) {
        for index in 0..self.clients.len() {
            if self.clients[index].quorum().is_some_and(is_over) {
                self.deliver_the_rest(setting, index);
            }
            self.ignore_all_but_the_last(index);
        }
        for (index, instance) in self.instances.iter_mut().enumerate() {
            instance.forget_what_is_idle(|id| {
                let client = &self.clients[usize::from(id.client)];
                client.id(id.client.into(), index) == id && client.quorum().is_some_and(is_over)
            });
        }
    }

    /// The core ignores answers about any acquisition of an instance but the last one.
    fn ignore_all_but_the_last(&mut self, client: usize) {
        for member in 0..self.instances.len() {
            let id = self.clients[client].id(client, member);
            let messages = self.instances[member].messages;
            for &message in messages.all() {
                if !message.awaited || !message.is_of(client) || message.id == id {
                    continue;
                }
                let messages = &mut self.instances[member].messages;
                messages.remove(message);
                if message.is_request() {
                    let awaited = false;
                    messages.add(Message { awaited, ..message });
                }
            }
        }
    }

    /// An acquisition that is over answers a late grant with a release, and ignores everything else. It
    /// receives the grant at once; the release can be late instead.
    fn deliver_the_rest(&mut self, setting: &Setting, client: usize) {
        let mut is_owed = false;
        for member in 0..self.instances.len() {
            let id = self.clients[client].id(client, member);
            let messages = self.instances[member].messages;
            for &message in messages.all() {
                if !message.awaited || !message.is_of(client) {
                    continue;
                }
                if message.id == id && message.body == Body::Take {
                    is_owed = true;
                    continue;
                }
                let messages = &mut self.instances[member].messages;
                messages.remove(message);
                if message.is_request() {
                    let awaited = false;
                    messages.add(Message { awaited, ..message });
                } else if matches!(message.body, Body::Taken(_)) {
                    self.deliver(setting, member, message);
                }
            }
        }
        if !is_owed {
            self.clients[client].core = None;
        }
    }
}
