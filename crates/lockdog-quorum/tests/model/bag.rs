//! The messages under way to and from one instance: a set, because the network has no order.

use super::instance::Message;

/// Sorted, so that the same messages make the same bag.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
pub(super) struct Bag {
    all: [Message; 8],
    count: usize,
}

impl Bag {
    pub(super) fn all(&self) -> &[Message] {
        &self.all[..self.count]
    }

    pub(super) fn add(&mut self, message: Message) {
        let mut place = self.count;
        while place > 0 && self.all[place - 1] > message {
            self.all[place] = self.all[place - 1];
            place -= 1;
        }
        self.all[place] = message;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, message: Message) {
        let Some(place) = self.all().iter().position(|other| *other == message) else {
            return;
        };
        self.count -= 1;
        self.all.copy_within(place + 1..=self.count, place);
        // Entries behind the last one are unused, but they would be compared.
        self.all[self.count] = Message::default();
    }
}
