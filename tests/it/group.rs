//! The lock of several values of a group. GL1 to GL4 are the invariants of `docs/design.md`.

mod basics;
mod cluster;
mod faults;
mod input;
mod nemesis;
mod replay;

use lockdog::{Client, ClientBuilder, Lock, Owner, Value};

use crate::support::eventually;
use crate::support::prelude::{LONG, SOON, ms};

type Fixture = crate::fixture::Fixture;

impl Fixture {
    async fn start() -> Self {
        Self::of(|builder| builder, |_| ()).await
    }

    /// The lock of these values.
    fn lock(&self, values: &[&str]) -> Lock {
        of(&self.client, values)
    }

    /// The lock of these values as seen by another client.
    async fn another(&self, values: &[&str]) -> Lock {
        self.another_with(values, |builder| builder).await
    }

    async fn another_with(
        &self,
        values: &[&str],
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Lock {
        of(&self.connect(set).await, values)
    }
}

fn of(client: &Client, values: &[&str]) -> Lock {
    let values = values
        .iter()
        .map(|value| Value::kryo5(value).expect("it is short"));
    client.group_lock(GROUP, values)
}

/// Makes one attempt with a new owner.
async fn tried(lock: &Lock) -> Option<lockdog::Guard> {
    let tried = lock.try_lock().owner(&Owner::new());
    tried.await.expect("the server answers")
}

const GROUP: &str = "class_100";
