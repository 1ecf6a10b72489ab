//! The objects that both sides use: how each side acquires, waits for and releases them.

use std::time::{Duration, SystemTime};

use lockdog::{
    Client, CountDownLatch, Guard, Leadership, LeasedPermit, Lock, Owner, Permit, Value,
};
use serde_json::json;

use crate::kinds::{self, Kind};
use crate::support::redisson::{JavaLock, JavaThread, PendingCall};

#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    Lock(&'static Kind),
    /// A lock of two values of a group.
    Values([&'static str; 2]),
    /// The mode `read` of a read/write lock; [`WRITE`] is the other one.
    Read,
    /// On the Java side a fair lock of the same name.
    Election,
    /// One permit with a lease.
    Permits,
    /// One permit without a lease.
    Semaphore,
    /// The latch counts as held while its count is one. Its waiters wait for zero.
    Latch,
}

pub(super) const WRITE: Object = Object::Lock(&kinds::WRITE);

impl Object {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Lock(kind) => kind.object,
            Self::Values(_) => "values_of_a_group",
            Self::Read => "read_lock",
            Self::Election => "election",
            Self::Permits => "permit_semaphore",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
        }
    }

    /// Creates the object before a side uses it.
    pub(super) async fn make(self, client: &Client, name: &str) {
        match self {
            Self::Permits => client.permit_semaphore(name).set_permits(1).await.unwrap(),
            Self::Semaphore => {
                let semaphore = client.semaphore(name);
                assert!(semaphore.try_set_permits(1).await.unwrap());
            }
            Self::Latch => {
                let latch = client.count_down_latch(name);
                assert!(latch.try_set_count(1).await.unwrap());
            }
            _ => {}
        }
    }

    /// Our handle, if the object is a lock.
    fn lock(self, client: &Client, name: &str) -> Option<Lock> {
        Some(match self {
            Self::Lock(kind) => kind.lock(client, name),
            Self::Values(values) => {
                let values = values.map(|value| Value::kryo5(value).expect("it is short"));
                client.group_lock(name, values)
            }
            Self::Read => client.read_write_lock(name).read().into(),
            _ => return None,
        })
    }

    fn java_lock(self, name: &str) -> Option<JavaLock> {
        Some(match self {
            Self::Lock(kind) => kind.java_lock(name),
            Self::Values([one, other]) => JavaLock::of_values(name, &[other, one]),
            Self::Read => JavaLock::from_getter("getReadWriteLock.readLock", name),
            Self::Election => JavaLock::from_getter("getFairLock", name),
            _ => return None,
        })
    }

    /// Waits with its own owner. Without a lease the watchdog renews it.
    pub(super) async fn wait(self, client: &Client, name: &str, lease: Option<Duration>) -> Held {
        if let Some(lock) = self.lock(client, name) {
            let request = lock.lock().owner(&Owner::new());
            let request = match lease {
                Some(lease) => request.lease(lease),
                None => request,
            };
            return Held::Lock(request.await.expect("the server is there"));
        }
        match self {
            Self::Election => {
                let campaign = client
                    .election(name)
                    .campaign("lockdog")
                    .owner(&Owner::new());
                let campaign = match lease {
                    Some(lease) => campaign.lease(lease),
                    None => campaign,
                };
                Held::Lead(campaign.await.expect("the server is there"))
            }
            Self::Permits => {
                let request = client.permit_semaphore(name).acquire();
                let request = match lease {
                    Some(lease) => request.lease(lease),
                    None => request,
                };
                Held::Leased(request.await.expect("the server is there"))
            }
            Self::Semaphore => {
                let permit = client.semaphore(name).acquire().await;
                Held::Permit(permit.expect("the server is there"))
            }
            _ => {
                let latch = client.count_down_latch(name);
                latch.wait_zero().await.expect("the server is there");
                Held::Nothing
            }
        }
    }

    /// Acquires the object, which is free.
    pub(super) async fn hold(self, client: &Client, name: &str, lease: Option<Duration>) -> Held {
        match self {
            Self::Latch => Held::Count(client.count_down_latch(name)),
            _ => self.wait(client, name, lease).await,
        }
    }

    /// Like [`wait`](Self::wait). Without a lease Java's watchdog renews locks, and a permit never ends.
    pub(super) fn java_wait(
        self,
        thread: &JavaThread,
        name: &str,
        lease: Option<Duration>,
    ) -> JavaWait {
        let call = match (self.java_lock(name), self) {
            (Some(lock), _) => Call::Plain(match lease {
                Some(lease) => thread.start_lock_for(lock, lease),
                None => thread.start_lock(lock),
            }),
            (None, Self::Permits) => {
                let args = match lease {
                    Some(lease) => json!([{ "ms": lease.as_millis() as u64 }]),
                    None => json!([]),
                };
                Call::OfPermit(thread.start_permits(name, "acquire", args))
            }
            (None, Self::Semaphore) => {
                Call::Plain(thread.start_object(("getSemaphore", name), "acquire", json!([])))
            }
            (None, _) => {
                Call::Plain(thread.start_object(("getCountDownLatch", name), "await", json!([])))
            }
        };
        JavaWait {
            call,
            held: self.of_java(thread, name),
        }
    }

    /// Like [`hold`](Self::hold).
    pub(super) async fn java_hold(
        self,
        thread: &JavaThread,
        name: &str,
        lease: Option<Duration>,
    ) -> JavaHeld {
        match self {
            Self::Latch => self.of_java(thread, name),
            _ => self.java_wait(thread, name, lease).done().await.0,
        }
    }

    fn of_java(self, thread: &JavaThread, name: &str) -> JavaHeld {
        JavaHeld {
            object: self,
            thread: thread.clone(),
            name: name.to_owned(),
            permit: None,
        }
    }
}

/// An object that we hold. A drop releases it, except for the count of a latch.
pub(super) enum Held {
    Lock(Guard),
    Lead(Leadership),
    Leased(LeasedPermit),
    Permit(Permit),
    Count(CountDownLatch),
    Nothing,
}

impl Held {
    pub(super) async fn give_back(self) {
        match self {
            Self::Lock(guard) => drop(guard.unlock().await.unwrap()),
            Self::Lead(lead) => lead.resign().await.unwrap(),
            Self::Leased(permit) => permit.release().await.unwrap(),
            Self::Permit(permit) => permit.release().await.unwrap(),
            Self::Count(latch) => latch.count_down().await.unwrap(),
            Self::Nothing => {}
        }
    }
}

/// A Java thread that waits.
pub(super) struct JavaWait {
    call: Call,
    held: JavaHeld,
}

enum Call {
    Plain(PendingCall<()>),
    OfPermit(PendingCall<String>),
}

impl JavaWait {
    pub(super) fn is_finished(&self) -> bool {
        match &self.call {
            Call::Plain(call) => call.is_finished(),
            Call::OfPermit(call) => call.is_finished(),
        }
    }

    /// The object that it acquired, and when.
    pub(super) async fn done(self) -> (JavaHeld, SystemTime) {
        let mut held = self.held;
        let at = match self.call {
            Call::Plain(call) => {
                let answer = call.answer().await;
                answer.result.expect("Java gets it");
                answer.at
            }
            Call::OfPermit(call) => {
                let answer = call.answer().await;
                held.permit = Some(answer.result.expect("Java gets it"));
                answer.at
            }
        };
        (held, at)
    }
}

/// An object that a Java thread holds.
pub(super) struct JavaHeld {
    object: Object,
    thread: JavaThread,
    name: String,
    /// The id of its permit.
    permit: Option<String>,
}

impl JavaHeld {
    pub(super) fn start_give_back(&self) -> PendingCall<()> {
        let (thread, name) = (&self.thread, self.name.as_str());
        match self.object {
            Object::Permits => {
                let id = self.permit.as_ref().expect("it has a permit");
                thread.start_permits(name, "release", json!([{ "id": id }]))
            }
            Object::Semaphore => thread.start_object(("getSemaphore", name), "release", json!([])),
            Object::Latch => {
                thread.start_object(("getCountDownLatch", name), "countDown", json!([]))
            }
            lock => thread.start_unlock(lock.java_lock(name).expect("the others are locks")),
        }
    }

    /// A waiter of a latch holds nothing.
    pub(super) async fn give_back(self) {
        let answer = self.start_give_back().answer().await;
        if let Err(error) = answer.result {
            panic!("{} does not have it: {error:?}", self.name);
        }
    }
}
