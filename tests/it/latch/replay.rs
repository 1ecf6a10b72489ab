//! Redisson's recorded calls of its latch.

use std::time::Duration;

use lockdog::Result;

use crate::recorded::{Answered, Call, Difference, Recorded, replayed};

replayed! {
    RECORDED, "the latch",
    count waiters delete
}

const RECORDED: Recorded = Recorded {
    recording: include_str!("../../golden/count_down_latch.json"),
    name: "start",
    prefixes: ["latch.", "getCountDownLatch(\""],
    differences: &[
        Difference {
            id: "delete-opens",
            scenario: "delete",
            step: 3,
            aspect: "published",
            ours: "redisson_countdownlatch__channel__{start} <- 0",
        },
        Difference {
            id: "delete-opens",
            scenario: "delete",
            step: 3,
            aspect: "came back",
            ours: "2: true",
        },
        Difference {
            id: "delete-opens",
            scenario: "delete",
            step: 4,
            aspect: "came back",
            // It is not counted again: it ended in the step before.
            ours: "",
        },
    ],
    perform: |call| Box::pin(perform(call)) as Answered,
};

pub(crate) async fn perform(call: Call) -> Result<String> {
    let latch = call.client.count_down_latch(&call.name);
    let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
    let time = |amount: &str, unit: &str| {
        let amount = amount.parse().expect("a number");
        let time = match unit {
            "SECONDS" => Duration::from_secs(amount),
            "MILLISECONDS" => Duration::from_millis(amount),
            other => panic!("{other} is no unit"),
        };
        time * SLOWER
    };
    match (&*call.method, &args[..]) {
        ("getCount", []) => Ok(latch.count().await?.to_string()),
        ("countDown", []) => latch.count_down().await.map(|()| String::new()),
        ("trySetCount", [count]) => {
            let set = latch.try_set_count(count.parse().expect("a number"));
            Ok(set.await?.to_string())
        }
        ("await", []) => latch.wait_zero().await.map(|()| String::new()),
        ("await", [amount, unit]) => {
            let opened = latch.wait_zero_within(time(amount, unit)).await?;
            Ok(opened.to_string())
        }
        ("delete", []) => Ok(latch.delete().await?.to_string()),
        other => panic!("{other:?} is not known"),
    }
}

/// A recorded wait is as many times longer here, because a machine may be busy.
const SLOWER: u32 = 4;
