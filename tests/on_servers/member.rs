//! The acquire of a quorum's member has the same effect on the lock as the plain lock's.

use super::epoch::granted;
use super::{FENCED, LONG, PLAIN, TestCaller, TestMember, ms, with_quarantine};
use crate::client::Client;
use crate::script::{AcquireReply, InstanceChecks};
use crate::server::Failure;
use crate::support::{Action, named};

#[tokio::test]
async fn a_member_acquire_is_a_plain_lock_for_other_clients() {
    for guards in [PLAIN, FENCED, with_quarantine(ms(1))] {
        let member = TestMember::ready(guards).await;
        granted(member.acquire("f", guards).await.unwrap());
        assert_eq!(member.counts().await, [("f".to_owned(), "1".to_owned())]);
        let left = member.redis.pttl("l").await;
        assert!((200_000..=300_000).contains(&left), "{left}");
        let plain = Client::connect(member.server.url()).await.unwrap();
        assert!(plain.lock("l").try_lock().await.unwrap().is_none());
        let busy = member.acquire("g", guards).await.unwrap();
        let AcquireReply::Busy(Some(left)) = busy.acquired else {
            panic!("{busy:?}");
        };
        assert!(left <= LONG && left > LONG / 2, "{left:?}");
        member.redis.cmd(&["PERSIST", "l"]).await;
        let busy = member.acquire("g", guards).await.unwrap();
        assert!(
            matches!(busy.acquired, AcquireReply::Busy(None)),
            "{busy:?}"
        );
        assert_eq!(busy.quarantined, None);
        assert_eq!(member.counts().await, [("f".to_owned(), "1".to_owned())]);
    }
}

#[tokio::test]
async fn a_member_acquire_sets_a_count_and_never_shortens_the_lease() {
    for guards in [PLAIN, FENCED, with_quarantine(ms(1))] {
        let member = TestMember::ready(guards).await;
        member.acquire_to("f", 1, ms(60_000), guards).await.unwrap();
        for (target, count) in [(3, "3"), (3, "3"), (2, "3"), (1, "3")] {
            let taken = member.acquire_to("f", target, ms(5_000), guards).await;
            granted(taken.unwrap());
            assert_eq!(member.counts().await[0].1, count);
            assert!(member.redis.pttl("l").await > 50_000);
        }
        granted(member.acquire("f", guards).await.unwrap());
        assert!(member.redis.pttl("l").await > 200_000);
        let gone = member.acquire_to("g", 2, LONG, guards).await.unwrap();
        assert!(matches!(gone.acquired, AcquireReply::Gone), "{gone:?}");
    }
}

#[tokio::test]
async fn a_member_acquire_delivered_twice_counts_once() {
    for guards in [PLAIN, FENCED, with_quarantine(ms(1))] {
        let member = TestMember::ready(guards).await;
        let rule = member
            .proxy
            .on(|args| args[0].starts_with("EVAL"), Action::Twice)
            .times(2);
        granted(member.acquire("f", guards).await.unwrap());
        rule.wait_hits(1).await;
        assert_eq!(member.counts().await, [("f".to_owned(), "1".to_owned())]);
    }
}

#[tokio::test]
async fn a_member_acquire_with_a_refused_lease_is_undone() {
    for guards in [PLAIN, FENCED, with_quarantine(ms(1))] {
        let member = TestMember::ready(guards).await;
        granted(member.acquire_to("f", 1, ms(60_000), guards).await.unwrap());
        let user = ["on", ">p", "~*", "&*", "+@all", "-pexpire"];
        let set = [&["ACL", "SETUSER", "ann"][..], &user].concat();
        member.redis.cmd(&set).await;
        let url = format!("redis://ann:p@127.0.0.1:{}", member.server.port());
        let refused = TestCaller::connect(url).await;
        // A re-entry and a first acquire.
        for (target, left) in [(2, vec![("f".to_owned(), "1".to_owned())]), (1, vec![])] {
            if target == 1 {
                member.redis.cmd(&["DEL", "l"]).await;
            }
            let failure = refused.acquire_to("f", target, LONG, guards).await;
            let failure = failure.unwrap_err();
            assert!(format!("{failure:?}").contains("NOPERM"), "{failure:?}");
            assert_eq!(member.counts().await, left);
        }
    }
}

#[tokio::test]
async fn a_malformed_script_answer_is_a_failure() {
    let member = TestMember::start().await;
    for line in [
        "+OK",
        ":1",
        "*0",
        "*4\r\n:1\r\n:0\r\n$-1\r\n:0",
        "*5\r\n:7\r\n:0\r\n$1\r\n1\r\n:0\r\n$-1",
        "*5\r\n:0\r\n:-2\r\n$1\r\n1\r\n:0\r\n$-1",
        "*5\r\n:-4\r\n:0\r\n$1\r\n1\r\n:0\r\n$-1",
        "*5\r\n:1\r\n:0\r\n$1\r\nx\r\n:0\r\n$-1",
        "*5\r\n:1\r\n:0\r\n$1\r\n1\r\n:0\r\n$2\r\n-7",
        "*5\r\n:1\r\n:0\r\n$1\r\n1\r\n:0\r\n$16\r\n9007199254740992",
    ] {
        let evaluates = |args: &[String]| args[0].starts_with("EVAL");
        let rule = member
            .proxy
            .on(evaluates, Action::ReplyWith(line.to_owned()));
        let failure = member.acquire("f", FENCED).await.unwrap_err();
        assert!(matches!(failure, Failure::Broken(_)), "{line}: {failure:?}");
        assert_eq!(rule.hits(), 1, "{line}");
    }
}

#[tokio::test]
async fn a_flushed_script_is_sent_again() {
    let member = TestMember::ready(with_quarantine(ms(1))).await;
    for _ in 0..3 {
        member.redis.cmd(&["SCRIPT", "FLUSH"]).await;
        granted(member.acquire("f", with_quarantine(ms(1))).await.unwrap());
        member.mark("f", 1).await.unwrap();
        member.client.provision().await.unwrap();
    }
    assert!(member.proxy.count(named("EVAL")) >= 9);
}

impl TestMember {
    /// On a server that counts its commands.
    async fn ready(guards: InstanceChecks) -> Self {
        let member = Self::start().await;
        if guards.quarantine.is_some() {
            member.client.provision().await.unwrap();
        }
        member
    }

    async fn counts(&self) -> Vec<(String, String)> {
        self.redis.hash("l").await.into_iter().collect()
    }
}
