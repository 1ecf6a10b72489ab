//! A server records the loss of its data, also for new clients.

use std::time::Duration;

use super::identity::master;
use super::{EPOCH, FENCED, LONGEST, PLAIN, SOON, TestCaller, TestMember, ms, with_quarantine};
use crate::script::{AcquireReply, InstanceReply};
use crate::support::{Action, Data, eventually};

#[tokio::test]
async fn a_server_that_was_not_provisioned_counts_after_the_quarantine() {
    let member = TestMember::start().await;
    let left = quarantined(
        member
            .acquire("f", with_quarantine(ms(5000)))
            .await
            .unwrap(),
    );
    assert_eq!(left, ms(5000), "it begins with the first client");
    assert_eq!(member.redis.keys().await, [EPOCH], "nothing is taken");
    tokio::time::sleep(ms(300)).await;
    let left = quarantined(
        member
            .acquire("f", with_quarantine(ms(5000)))
            .await
            .unwrap(),
    );
    assert!(left <= ms(4700), "{left:?}");
    tokio::time::sleep(left).await;
    let taken = granted(
        member
            .acquire("f", with_quarantine(ms(5000)))
            .await
            .unwrap(),
    );
    let register = taken.register.expect("it was asked for");
    assert!(register.fresh, "it may have forgotten tokens");
    // A caller with a longer lease waits longer.
    quarantined(
        member
            .acquire("f", with_quarantine(ms(60_000)))
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn a_provisioned_server_counts_at_once_for_every_client() {
    let member = TestMember::start().await;
    member.client.provision().await.unwrap();
    let id = member.id().await;
    let epoch = member.redis.hash(EPOCH).await;
    assert_eq!((&*epoch["id"], &*epoch["since"]), (&*id, "0"));
    let taken = granted(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    assert!(!taken.register.expect("it was asked for").fresh);
    // Also in the middle of its quarantine.
    member.redis.cmd(&["FLUSHALL"]).await;
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    let other = TestCaller::connect(member.server.url()).await;
    other.client.provision().await.unwrap();
    let taken = granted(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    assert!(!taken.register.expect("it was asked for").fresh);
}

#[tokio::test]
async fn every_kind_of_data_loss_starts_a_quarantine() {
    for how in [
        "a flush",
        "an empty start",
        // The server may have lost writes that it did not save.
        "a start with data",
        "another's data",
    ] {
        let mut member = TestMember::start().await;
        member.client.provision().await.unwrap();
        granted(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
        match how {
            "a flush" => drop(member.redis.cmd(&["FLUSHALL"]).await),
            "an empty start" => member.server.restart(Data::Lost).await,
            "a start with data" => member.server.restart(Data::Kept).await,
            _ => member.flip().await,
        }
        member.look_again().await;
        // Also for a server that is seen for the first time.
        let other = TestCaller::connect(member.server.url()).await;
        for one in [&other, &member.caller] {
            let left = quarantined(one.acquire("g", with_quarantine(LONGEST)).await.unwrap());
            assert!(left > LONGEST - ms(20_000), "{how}: {left:?}");
        }
        assert!(!member.redis.exists("l").await || how == "a start with data");
        granted(member.acquire("f", with_quarantine(ms(1))).await.unwrap());
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_prolong_the_quarantine() {
    let member = TestMember::start().await;
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    // As if the clock was an hour ahead when the epoch was written.
    let ahead = member.server_us().await / 1000 + 3_600_000;
    member.set_since(ahead).await;
    let left = quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    assert_eq!(left, LONGEST);
    let since = member.since().await;
    assert!(since < ahead);
    // The quarantine is counted from there.
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    assert_eq!(member.since().await, since);
}

#[tokio::test]
async fn a_malformed_epoch_is_rewritten() {
    let member = TestMember::start().await;
    let id = member.id().await;
    for fields in [
        &["id", &*id][..],
        &["id", &id, "since", "soon"],
        &["since", "0"],
    ] {
        member.redis.cmd(&["DEL", EPOCH]).await;
        member.redis.cmd(&[&["HSET", EPOCH], fields].concat()).await;
        quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
        assert_eq!(member.redis.hash(EPOCH).await["id"], id);
        assert!(member.since().await > 0);
    }
    member.redis.cmd(&["DEL", EPOCH]).await;
    member.redis.cmd(&["SET", EPOCH, "x"]).await;
    let failure = member
        .acquire("f", with_quarantine(LONGEST))
        .await
        .unwrap_err();
    assert!(format!("{failure:?}").contains("WRONGTYPE"), "{failure:?}");
    assert_eq!(member.redis.keys().await, [EPOCH]);
}

#[tokio::test]
async fn an_acquire_without_an_epoch_check_writes_no_epoch() {
    let member = TestMember::start().await;
    granted(member.acquire("f", PLAIN).await.unwrap());
    granted(member.acquire("f", FENCED).await.unwrap());
    assert_eq!(member.redis.keys().await, ["l"]);
    let monitor = member.redis.monitor().await;
    granted(member.acquire("f", PLAIN).await.unwrap());
    let seen = || monitor.seen().concat().to_lowercase();
    eventually(SOON, "it is seen", async || seen().contains("hget")).await;
    assert!(!seen().contains("info"), "{}", seen());
    // Another server's epoch does not matter.
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    let taken = granted(member.acquire("f", FENCED).await.unwrap());
    assert!(!taken.register.expect("it was asked for").fresh);
}

#[tokio::test]
async fn an_acquire_delivered_twice_starts_one_quarantine() {
    let member = TestMember::start().await;
    let evaluates = |args: &[String]| args[0] == "EVAL";
    let rule = member.proxy.on(evaluates, Action::Twice);
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    rule.wait_hits(1).await;
    let since = member.since().await;
    quarantined(member.acquire("f", with_quarantine(LONGEST)).await.unwrap());
    assert_eq!(member.since().await, since);
    assert_eq!(member.redis.keys().await, [EPOCH]);
}

impl TestMember {
    /// Replicates another server's data without closing a connection.
    async fn flip(&self) {
        let other = master().await;
        self.follow(&other).await;
        self.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// The server's identity, by its own report.
    async fn id(&self) -> String {
        let info: String = self.redis.ask(&["INFO"]).await;
        let part = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name));
            value.expect("the server has one").to_owned()
        };
        format!("{}:{}", part("run_id:"), part("master_replid:"))
    }

    async fn since(&self) -> u64 {
        self.redis.ask(&["HGET", EPOCH, "since"]).await
    }

    async fn set_since(&self, since: u64) {
        let since = since.to_string();
        self.redis.cmd(&["HSET", EPOCH, "since", &since]).await;
    }
}

pub(super) fn granted(taken: InstanceReply) -> InstanceReply {
    assert!(
        matches!(taken.acquired, AcquireReply::Granted(_)),
        "{taken:?}"
    );
    assert_eq!(taken.quarantined, None);
    taken
}

pub(super) fn quarantined(taken: InstanceReply) -> Duration {
    assert!(
        matches!(taken.acquired, AcquireReply::Busy(None)),
        "{taken:?}"
    );
    assert_eq!(taken.register, None, "its answer would not count");
    taken.quarantined.expect("it may have lost its data")
}
