//! Recorded calls, read from their Java and made through our API.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Client, Error, LeasedPermit, PermitId, PermitSemaphore};

use super::SLOWER;
use crate::support::Redis;

/// The ids that a scenario's calls returned, in their order: its first id, its second id, and so on.
#[derive(Default)]
pub(super) struct Ids(Vec<PermitId>);

impl Ids {
    /// Records what a call returned here and in the recording.
    pub(super) fn note(&mut self, ours: &[PermitId], recorded: Vec<&str>) {
        assert_eq!(ours.len(), recorded.len(), "{recorded:?}");
        self.0.extend(ours);
    }

    fn named(&self, name: &str) -> PermitId {
        let at = match name {
            "first id" => 0,
            "second id" => 1,
            "third id" => 2,
            "fourth id" => 3,
            "unknown" => return PermitId::from_bytes([0xfe; 16]),
            other => panic!("which id is {other}?"),
        };
        self.0[at]
    }
}

/// One call on the semaphore of this name.
pub(super) struct Call {
    name: String,
    what: What,
}

enum What {
    Acquire {
        permits: u32,
        lease: Option<Duration>,
        /// `None`: without limit.
        wait: Option<Duration>,
    },
    Release(Vec<PermitId>),
    TryRelease(Vec<PermitId>, Returns),
    UpdateLease(PermitId, Option<Duration>),
    LeaseOf(PermitId),
    Available,
    Acquired,
    Permits,
    TrySet(u32),
    Set(u32),
    Add(i32),
    /// A call that our API does not have: the test sends the same commands itself.
    Plain(Vec<Vec<String>>, &'static str),
}

/// `tryRelease` of a list returns a number.
#[derive(Clone, Copy, PartialEq)]
enum Returns {
    Bool,
    Number,
}

/// The result of a call.
#[derive(Default)]
pub(super) struct Made {
    pub(super) answer: String,
    pub(super) ids: Vec<PermitId>,
}

impl Call {
    /// `name` is that of `semaphore`.
    pub(super) fn parse(text: &str, name: &str, ids: &Ids) -> Self {
        let call = match text.strip_prefix("getPermitExpirableSemaphore(\"") {
            Some(rest) => rest.split_once("\").").expect("a call follows").1,
            None => text.strip_prefix("semaphore.").expect("a semaphore"),
        };
        let (method, args) = call.split_once('(').expect("a call has parentheses");
        let args = args.strip_suffix(')').expect("a call has parentheses");
        let is_list = args.starts_with('[');
        let names = args.trim_start_matches('[').trim_end_matches(']');
        let named = |names: &str| {
            names
                .split(", ")
                .map(|it| ids.named(it))
                .collect::<Vec<_>>()
        };
        let args: Vec<&str> = args.split(", ").filter(|arg| !arg.is_empty()).collect();
        let number = |text: &str| text.parse().expect("a number");
        let in_use = match name.contains('{') {
            true => format!("{name}:timeout"),
            false => format!("{{{name}}}:timeout"),
        };
        let keys = [name.to_owned(), in_use];
        let each = |command: &str, more: &[&str]| {
            keys.iter()
                .map(|key| {
                    let command = [command, key].into_iter().chain(more.iter().copied());
                    command.map(str::to_owned).collect()
                })
                .collect()
        };
        let what = match (method, &args[..]) {
            ("tryAcquire", []) => acquire(1, None, Some(Duration::ZERO)),
            ("tryAcquire", [permits]) => acquire(number(permits), None, Some(Duration::ZERO)),
            ("tryAcquire", [wait, unit]) => acquire(1, None, Some(time(wait, unit))),
            ("tryAcquire", [wait, lease, unit]) => {
                acquire(1, Some(time(lease, unit)), Some(time(wait, unit)))
            }
            ("tryAcquire", [permits, wait, lease, unit]) => {
                let (lease, wait) = (time(lease, unit), time(wait, unit));
                acquire(number(permits), Some(lease), Some(wait))
            }
            ("acquire", []) => acquire(1, None, None),
            ("acquire", [permits]) => acquire(number(permits), None, None),
            ("acquire", [lease, unit]) => acquire(1, Some(time(lease, unit)), None),
            ("release", _) => What::Release(named(names)),
            ("tryRelease", _) if is_list => What::TryRelease(named(names), Returns::Number),
            ("tryRelease", _) => What::TryRelease(named(names), Returns::Bool),
            ("updateLeaseTime", [id, "-1", _]) => What::UpdateLease(ids.named(id), None),
            ("updateLeaseTime", [id, lease, unit]) => {
                What::UpdateLease(ids.named(id), Some(time(lease, unit)))
            }
            ("getLeaseTime", [id]) => What::LeaseOf(ids.named(id)),
            ("availablePermits", []) => What::Available,
            ("acquiredPermits", []) => What::Acquired,
            ("getPermits", []) => What::Permits,
            ("trySetPermits", [permits]) => What::TrySet(number(permits)),
            ("setPermits", [permits]) => What::Set(number(permits)),
            ("addPermits", [permits]) => What::Add(permits.parse().expect("a number")),
            ("expire", ["Duration.ofSeconds(20)"]) => {
                What::Plain(each("PEXPIRE", &["200000"]), "true")
            }
            ("clearExpire", []) => What::Plain(each("PERSIST", &[]), "true"),
            ("delete", []) => What::Plain(each("DEL", &[]), "true"),
            other => panic!("{text} is not known: {other:?}"),
        };
        let [name, _] = keys;
        Self { name, what }
    }

    /// An acquire that waits.
    pub(super) async fn acquire(self, client: Client) -> Vec<PermitId> {
        let seats = client.permit_semaphore(&self.name);
        let What::Acquire {
            permits,
            lease: Some(lease),
            wait: None,
        } = self.what
        else {
            panic!("only such calls wait in the recording");
        };
        let acquired = seats.acquire_many(permits).lease(lease).await;
        acquired.expect("the servers answer").into_ids()
    }

    pub(super) async fn make(self, client: &Client, redis: &Redis) -> Made {
        let seats = client.permit_semaphore(&self.name);
        let answer = match self.what {
            What::Acquire {
                permits,
                lease,
                wait,
            } => return acquired(acquire_now(&seats, permits, lease, wait).await),
            What::Release(ids) => seats.release(&ids).await.map(|()| String::new()),
            What::TryRelease(ids, returns) => {
                let released = seats.try_release(&ids).await;
                released.map(|released| match returns {
                    Returns::Bool => released.to_string(),
                    Returns::Number if released => ids.len().to_string(),
                    Returns::Number => "0".to_owned(),
                })
            }
            What::UpdateLease(id, Some(lease)) => seats
                .update_lease(&id, lease)
                .await
                .map(|it| it.to_string()),
            What::UpdateLease(id, None) => seats.remove_lease(&id).await.map(|it| it.to_string()),
            What::LeaseOf(id) => seats.lease_of(&id).await.map(|lease| match lease {
                Some(Ttl::Persistent) => "-1".to_owned(),
                Some(Ttl::Expires(_)) => "a lease".to_owned(),
                None => "not in use".to_owned(),
            }),
            What::Available => seats.available().await.map(|it| it.to_string()),
            What::Acquired => seats.acquired().await.map(|it| it.to_string()),
            What::Permits => seats.permits().await.map(|it| it.to_string()),
            What::TrySet(permits) => seats
                .try_set_permits(permits)
                .await
                .map(|it| it.to_string()),
            What::Set(permits) => seats.set_permits(permits).await.map(|()| String::new()),
            What::Add(by) => seats.add_permits(by).await.map(|()| String::new()),
            What::Plain(commands, answer) => {
                for command in commands {
                    let command: Vec<&str> = command.iter().map(String::as_str).collect();
                    redis.cmd(&command).await;
                }
                Ok(answer.to_owned())
            }
        };
        let answer = answer.unwrap_or_else(refusal);
        Made {
            answer,
            ids: Vec::new(),
        }
    }
}

/// As ported code does it: without a lease forever, and with ids instead of a value.
async fn acquire_now(
    seats: &PermitSemaphore,
    permits: u32,
    lease: Option<Duration>,
    wait: Option<Duration>,
) -> lockdog::Result<Option<LeasedPermit>> {
    let Some(wait) = wait else {
        let request = seats.acquire_many(permits);
        return Ok(Some(match lease {
            Some(lease) => request.lease(lease).await?,
            None => request.forever().await?,
        }));
    };
    let request = seats.try_acquire_many(permits).wait(wait);
    match lease {
        Some(lease) => request.lease(lease).await,
        None => request.forever().await,
    }
}

fn acquired(permits: lockdog::Result<Option<LeasedPermit>>) -> Made {
    match permits {
        Ok(permits) => {
            let ids = permits.map_or_else(Vec::new, LeasedPermit::into_ids);
            Made {
                answer: format!("{} permits", ids.len()),
                ids,
            }
        }
        Err(error) => Made {
            answer: refusal(error),
            ids: Vec::new(),
        },
    }
}

fn refusal(error: Error) -> String {
    match error {
        Error::PermitNotInUse { .. } => "not in use".to_owned(),
        Error::Invalid { .. } => "invalid".to_owned(),
        other => panic!("{other}"),
    }
}

fn acquire(permits: u32, lease: Option<Duration>, wait: Option<Duration>) -> What {
    What::Acquire {
        permits,
        lease,
        wait,
    }
}

fn time(amount: &str, unit: &str) -> Duration {
    let amount = amount.parse().expect("a number");
    let time = match unit {
        "SECONDS" => Duration::from_secs(amount),
        "MILLISECONDS" => Duration::from_millis(amount),
        other => panic!("{other} is no unit"),
    };
    time * SLOWER
}
