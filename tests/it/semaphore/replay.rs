//! Redisson's recorded calls of its semaphore. Ported code keeps no value for its permits, so it
//! forgets them.

use std::time::Duration;

use lockdog::Result;

use super::ms;
use crate::recorded::{Answered, Call, Difference, Recorded, THROWS, replayed};

replayed! {
    RECORDED, "the semaphore without leases",
    permits missing_key waiters waiter_without_key ttl wrong_value
}

const RECORDED: Recorded = Recorded {
    recording: include_str!("../../golden/semaphore.json"),
    name: "seats",
    prefixes: ["semaphore.", "getSemaphore(\""],
    differences: &[
        Difference {
            id: "ledger",
            scenario: "permits",
            step: 10,
            aspect: "published",
            ours: "redisson_sc:{seats} <- 3, redisson_sc:{seats} <- 5",
        },
        Difference {
            id: "positive-messages",
            scenario: "permits",
            step: 12,
            aspect: "published",
            ours: "",
        },
        Difference {
            id: "ttl-stays",
            scenario: "ttl",
            step: 4,
            aspect: "keys",
            ours: "{a}:seats 4 with a ttl",
        },
        Difference {
            id: "ttl-stays",
            scenario: "ttl",
            step: 6,
            aspect: "keys",
            ours: "{a}:seats 0 with a ttl",
        },
    ],
    perform: |call| Box::pin(perform(call)) as Answered,
};

pub(crate) async fn perform(call: Call) -> Result<String> {
    let Call {
        client,
        redis,
        name,
        method,
        args,
    } = call;
    let seats = client.semaphore(&name);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    let plain = async |command: &[&str]| {
        redis.cmd(command).await;
        Ok("true".to_owned())
    };
    let wait = |amount: &str| Duration::from_millis(amount.parse().expect("a number")) * SLOWER;
    match (&*method, &args[..]) {
        // A negative number cannot be written.
        ("tryAcquire", ["-1"]) => Ok(THROWS.to_owned()),
        ("tryAcquire", rest) => {
            let permits = rest.first().map_or(1, |it| number(it));
            let request = seats.try_acquire_many(permits);
            let request = match rest {
                [_, amount, "MILLISECONDS"] => request.wait(wait(amount)),
                _ => request,
            };
            let permit = request.await?;
            let is_granted = permit.is_some();
            if let Some(permit) = permit {
                permit.forget();
            }
            Ok(is_granted.to_string())
        }
        ("acquire", rest) => {
            let permits = rest.first().map_or(1, |it| number(it));
            seats.acquire_many(permits).await?.forget();
            Ok(String::new())
        }
        ("release", rest) => {
            let permits = rest.first().map_or(1, |it| number(it));
            seats.release(permits).await?;
            Ok(String::new())
        }
        ("releaseIfExists", [permits]) => {
            let exists = seats.release_if_exists(number(permits)).await?;
            Ok(exists.to_string())
        }
        ("drainPermits", []) => {
            let all = seats.drain().await?;
            let drained = all.as_ref().map_or(0, lockdog::Permit::count);
            if let Some(all) = all {
                all.forget();
            }
            Ok(drained.to_string())
        }
        ("availablePermits", []) => Ok(seats.available().await?.to_string()),
        ("addPermits", [by]) => {
            seats.add_permits(by.parse().expect("a number")).await?;
            Ok(String::new())
        }
        ("trySetPermits", [permits, "Duration.ofSeconds(10)"]) => {
            let set = seats.try_set_permits_for(number(permits), ms(100_000));
            Ok(set.await?.to_string())
        }
        ("trySetPermits", [permits]) => {
            let set = seats.try_set_permits(number(permits)).await?;
            Ok(set.to_string())
        }
        // Calls that our API does not have: the test sends the same commands itself.
        ("expire", ["Duration.ofSeconds(10)"]) => plain(&["PEXPIRE", &name, "100000"]).await,
        ("delete", []) => plain(&["DEL", &name]).await,
        other => panic!("{other:?} is not known"),
    }
}

/// The factor by which a recorded wait is longer here, because a machine may be busy.
const SLOWER: u32 = 4;
