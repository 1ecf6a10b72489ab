//! The steps of the world.

use std::sync::Arc;

use super::client::{answer, is_over};
use super::digest::Core;
use super::instance::{Body, Message};
use super::reached::Sight;
use super::setting::Setting;
use super::world::{Move, World};
use crate::Moment;
use crate::{Action, Answer, Event, Quorum};

impl World {
    pub(super) fn make(&mut self, setting: &Setting, step: Move) {
        let reached = &setting.reached;
        let now = setting.moment(self.ticks);
        match step {
            Move::Pass => {
                self.ticks += 1;
                let now = setting.moment(self.ticks);
                for instance in self.instances.iter_mut() {
                    instance.expire(now);
                }
            }
            Move::Begin(client, renewed) => self.begin(setting, client, renewed, now),
            Move::Wake(client) => self.apply(setting, client, &Event::Tick),
            Move::Unlock(client) => self.apply(setting, client, &Event::Unlock),
            Move::Lengthen(client) => {
                self.spent.lengthened += 1;
                let event = Event::Lengthen {
                    lease: setting.longer,
                    renewed: false,
                };
                self.apply(setting, client, &event);
            }
            Move::Deliver(instance, message) => {
                self.instances[instance].messages.remove(message);
                self.deliver(setting, instance, message);
            }
            Move::Double(instance, message) => {
                self.spent.doubled += 1;
                reached.note(if message.is_request() {
                    Sight::DoubledRequest
                } else {
                    Sight::DoubledAnswer
                });
                self.deliver(setting, instance, message);
            }
            Move::Fail(instance, message) => {
                self.spent.failed += 1;
                reached.note(Sight::Failure);
                let messages = &mut self.instances[instance].messages;
                messages.remove(message);
                if message.is_request() {
                    let awaited = false;
                    messages.add(Message { awaited, ..message });
                }
                self.answer(setting, instance, message, Answer::Failed);
            }
            Move::Restart(instance) => {
                self.spent.restarted += 1;
                reached.note(Sight::Restart);
                self.instances[instance].restart(now);
            }
            Move::Lose(instance) => {
                self.spent.lost += 1;
                reached.note(Sight::EarlyLoss);
                self.instances[instance].holder = None;
            }
        }
    }

    fn begin(&mut self, setting: &Setting, index: usize, renewed: bool, now: Moment) {
        self.spent.begun += 1;
        self.spent.renewed += u8::from(renewed);
        for instance in self.instances.iter_mut() {
            instance.silence(index);
        }
        let (quorum, actions) = Quorum::begin(setting.rules(renewed), now);
        let client = &mut self.clients[index];
        client.core = Some(Arc::new(Core::new(quorum)));
        client.token = 0;
        client.floor = self.shown.checked_ilog2().unwrap_or(0) as u8;
        self.obey(index, &actions);
    }

    /// Delivers a message.
    pub(super) fn deliver(&mut self, setting: &Setting, index: usize, message: Message) {
        let now = setting.moment(self.ticks);
        let quorum = self.clients[usize::from(message.id.client)].quorum();
        let is_late = quorum.is_none_or(|quorum| {
            u32::from(message.round) < quorum.round.number || quorum.began() < now
        });
        if let Some(answer) = answer(message.body, setting.fenced) {
            if !message.awaited {
                return;
            }
            if is_late {
                setting.reached.note(Sight::LateAnswer);
            }
            return self.answer(setting, index, message, answer);
        }
        if is_late {
            setting.reached.note(Sight::LateRequest);
        }
        let instance = &mut self.instances[index];
        let body = instance.serve(message, setting.longer, now);
        match body {
            Body::Quarantined => setting.reached.note(Sight::Quarantined),
            Body::Taken(_) if instance.reborn.is_some() => setting.reached.note(Sight::Rejoined),
            Body::Conflict(_) => setting.reached.note(Sight::Conflict),
            _ => {}
        }
        if message.awaited {
            let lease = 0;
            instance.messages.add(Message {
                lease,
                body,
                ..message
            });
        }
    }

    fn answer(&mut self, setting: &Setting, member: usize, message: Message, answer: Answer) {
        let event = Event::Answered {
            member,
            round: message.round.into(),
            answer,
        };
        self.apply(setting, message.id.client.into(), &event);
    }

    /// Passes an event to a client's core.
    fn apply(&mut self, setting: &Setting, index: usize, event: &Event) {
        let now = setting.moment(self.ticks);
        let client = &mut self.clients[index];
        let Some(before) = client.core.take() else {
            return;
        };
        let mut quorum = before.quorum.clone();
        let actions = quorum.step(*event, now);
        self.revived |= is_over(&before.quorum) && !is_over(&quorum);
        client.core = Some(Arc::new(Core::new(quorum)));
        self.note(setting, index, &before.quorum, event);
        self.check_token(setting, index);
        self.obey(index, &actions);
    }

    fn obey(&mut self, index: usize, actions: &[Action]) {
        let client = &mut self.clients[index];
        let lease = client
            .quorum()
            .map_or(0, |it| it.lease().as_millis() as u32);
        for &action in actions {
            let (member, round, body) = match action {
                Action::Take { member, round } => {
                    client.numbers[member] += 1;
                    (member, round, Body::Take)
                }
                Action::Extend { member, round } => (member, round, Body::Extend),
                Action::Mark {
                    member,
                    round,
                    token,
                } => (member, round, Body::Mark(token as u8)),
                Action::Release { member } => (member, 0, Body::Release),
            };
            let id = client.id(index, member);
            self.instances[member].messages.add(match body {
                Body::Release => Message::release(id),
                _ => Message {
                    id,
                    round: round as u8,
                    lease,
                    awaited: true,
                    body,
                },
            });
        }
    }
}
