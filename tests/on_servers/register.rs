//! The register of one lock's fencing tokens: it only grows, and reports when its value is uncertain.

use super::epoch::granted;
use super::{FENCED, LONG, PLAIN, REGISTER, TestMember, ms, with_quarantine};
use crate::script::{AcquireReply, MarkReply, RegisterState};
use crate::server::Failure;
use crate::support::{Action, Data, Gate, RedisServer};

#[tokio::test]
async fn an_acquire_returns_the_token_and_the_server_time_for_free_and_busy_locks() {
    let member = TestMember::start().await;
    let before = member.server_us().await;
    let register = member.look("f").await;
    assert_eq!((register.value, register.fresh), (None, false));
    let after = member.server_us().await;
    assert!((before..=after).contains(&register.time), "{register:?}");
    assert_eq!(member.mark("f", 41).await.unwrap(), MarkReply::Done);
    assert_eq!(member.look("f").await.value, Some(41));
    let busy = member.acquire("g", FENCED).await.unwrap();
    assert!(
        matches!(busy.acquired, AcquireReply::Busy(Some(_))),
        "{busy:?}"
    );
    assert_eq!(busy.register.and_then(|register| register.value), Some(41));
    let gone = member.acquire_to("g", 2, LONG, FENCED).await.unwrap();
    assert!(matches!(gone.acquired, AcquireReply::Gone), "{gone:?}");
    assert_eq!(gone.register.and_then(|register| register.value), Some(41));
    let unasked = granted(member.acquire("f", PLAIN).await.unwrap());
    assert_eq!(unasked.register, None);
}

#[tokio::test]
async fn a_register_only_grows_and_only_for_the_holder() {
    let member = TestMember::start().await;
    assert_eq!(member.mark("f", 9).await.unwrap(), MarkReply::Lost);
    assert!(member.redis.keys().await.is_empty());
    member.acquire("f", PLAIN).await.unwrap();
    assert_eq!(member.mark("g", 9).await.unwrap(), MarkReply::Lost);
    assert_eq!(member.mark("f", 9).await.unwrap(), MarkReply::Done);
    for smaller in [0, 1, 8] {
        assert_eq!(
            member.mark("f", smaller).await.unwrap(),
            MarkReply::Conflict(9)
        );
    }
    assert_eq!(member.mark("f", 10).await.unwrap(), MarkReply::Done);
    assert_eq!(member.look("f").await.value, Some(10));
    // An equal token is a conflict only because another hold has it.
    member.redis.cmd(&["DEL", "l"]).await;
    member.acquire("g", PLAIN).await.unwrap();
    assert_eq!(member.mark("f", 11).await.unwrap(), MarkReply::Lost);
    assert_eq!(member.mark("g", 10).await.unwrap(), MarkReply::Conflict(10));
    assert_eq!(member.mark("g", 11).await.unwrap(), MarkReply::Done);
}

#[tokio::test]
async fn a_mark_delivered_twice_has_the_effect_and_the_answer_of_one() {
    let member = TestMember::start().await;
    member.acquire("f", PLAIN).await.unwrap();
    member.mark("f", 1).await.unwrap();
    let evaluates = |args: &[String]| args[0] == "EVALSHA";
    let rule = member.proxy.on(evaluates, Action::Twice);
    assert_eq!(member.mark("f", 7).await.unwrap(), MarkReply::Done);
    rule.wait_hits(1).await;
    let first = member.text().await;
    // Sent again after a lost answer.
    assert_eq!(member.mark("f", 7).await.unwrap(), MarkReply::Done);
    assert_eq!(member.text().await, first);
    // Late, after a larger token of the same hold, and after the next holder's.
    let gate = Gate::new();
    member.proxy.on(evaluates, Action::TwiceLate(gate.clone()));
    assert_eq!(member.mark("f", 8).await.unwrap(), MarkReply::Done);
    member.redis.cmd(&["DEL", "l"]).await;
    member.acquire("g", PLAIN).await.unwrap();
    assert_eq!(member.mark("g", 9).await.unwrap(), MarkReply::Done);
    let last = member.text().await;
    gate.open();
    gate.wait_passed().await;
    assert_eq!(member.text().await, last);
}

#[tokio::test]
async fn a_mark_lengthens_the_lease_and_never_shortens_it() {
    let member = TestMember::start().await;
    member.acquire_to("f", 1, ms(20_000), PLAIN).await.unwrap();
    member.mark_for("f", 1, ms(60_000)).await.unwrap();
    let left = member.redis.pttl("l").await;
    assert!((50_000..=60_000).contains(&left), "{left}");
    member.mark_for("f", 2, ms(5_000)).await.unwrap();
    assert!(member.redis.pttl("l").await > 40_000);
    // The second sending too, because the first may have come before another hold's token.
    member.redis.cmd(&["PEXPIRE", "l", "15000"]).await;
    member.mark_for("f", 2, ms(60_000)).await.unwrap();
    assert!(member.redis.pttl("l").await > 40_000);
    // A refused token does not extend the lease.
    member.redis.cmd(&["PEXPIRE", "l", "20000"]).await;
    let refused = member.mark_for("f", 1, ms(60_000)).await.unwrap();
    assert_eq!(refused, MarkReply::Conflict(2));
    assert!(member.redis.pttl("l").await <= 20_000);
}

#[tokio::test]
async fn a_register_outlives_its_lock_by_thirty_days() {
    let member = TestMember::start().await;
    member.acquire("f", PLAIN).await.unwrap();
    member.mark("f", 5).await.unwrap();
    let month = 30 * 24 * 60 * 60 * 1000;
    let left = member.redis.pttl(REGISTER).await;
    assert!((month - 60_000..=month).contains(&left), "{left}");
    member.redis.cmd(&["DEL", "l"]).await;
    assert_eq!(member.look("g").await.value, Some(5));
    // Each use renews it.
    member.redis.cmd(&["PEXPIRE", REGISTER, "90000"]).await;
    member.mark("g", 6).await.unwrap();
    assert!(member.redis.pttl(REGISTER).await > month - 60_000);
}

#[tokio::test]
async fn tokens_larger_than_clock_values_are_exact() {
    let member = TestMember::start().await;
    member.acquire("f", PLAIN).await.unwrap();
    let largest = (1 << 53) - 1;
    // The first of each pair is the larger one; doubles with seven digits would equal them.
    for token in [
        1_795_162_285_104_501,
        1_795_162_285_104_502,
        1_799_999_999_999_999,
        1_800_000_000_000_000,
        9_007_199_254_740_990,
        largest,
    ] {
        assert_eq!(member.mark("f", token).await.unwrap(), MarkReply::Done);
        let smaller = member.mark("f", token - 1).await.unwrap();
        assert_eq!(smaller, MarkReply::Conflict(token));
        assert_eq!(member.look("f").await.value, Some(token));
        assert!(member.text().await.starts_with(&format!("{token} ")));
    }
}

#[tokio::test]
async fn a_malformed_register_is_refused_and_left_unchanged() {
    let member = TestMember::start().await;
    for text in ["", "7", "x 1 f", "-7 1 f", "1.5 1 f", "7 f"] {
        member.redis.cmd(&["SET", REGISTER, text]).await;
        let failure = member.acquire("f", FENCED).await.unwrap_err();
        assert!(code(&failure) == "WRONGTYPE", "{text:?}: {failure:?}");
        assert!(!member.redis.exists("l").await, "{text:?}");
        member.acquire("f", PLAIN).await.unwrap();
        let failure = member.mark("f", 8).await.unwrap_err();
        assert!(code(&failure) == "WRONGTYPE", "{text:?}: {failure:?}");
        assert_eq!(member.text().await, text);
        member.redis.cmd(&["DEL", "l"]).await;
    }
    // Numbers that a double cannot represent exactly are refused.
    for token in ["9007199254740992", "99999999999999999999999"] {
        let text = format!("{token} 1 f");
        member.redis.cmd(&["SET", REGISTER, &text]).await;
        let failure = member.acquire("g", FENCED).await.unwrap_err();
        assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
        member.redis.cmd(&["DEL", "l"]).await;
    }
    member.redis.cmd(&["DEL", REGISTER]).await;
    member.redis.cmd(&["HSET", REGISTER, "a", "1"]).await;
    let failure = member.acquire("f", FENCED).await.unwrap_err();
    assert!(code(&failure) == "WRONGTYPE", "{failure:?}");
    assert!(!member.redis.exists("l").await);
}

#[tokio::test]
async fn a_server_out_of_memory_refuses_only_marks_that_write() {
    let member = TestMember::start().await;
    member.acquire_to("f", 1, ms(60_000), PLAIN).await.unwrap();
    member.mark_for("f", 3, ms(60_000)).await.unwrap();
    let text = member.text().await;
    member.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let failure = member.mark("f", 4).await.unwrap_err();
    assert!(failure.is_out_of_memory(), "{failure:?}");
    assert_eq!(member.text().await, text);
    assert!(member.redis.pttl("l").await <= 60_000);
    assert_eq!(member.mark("f", 3).await.unwrap(), MarkReply::Done);
    let register = member.acquire("g", FENCED).await.unwrap().register;
    assert_eq!(register.and_then(|register| register.value), Some(3));
}

#[tokio::test]
async fn a_register_from_before_a_data_loss_is_uncertain_until_it_is_written() {
    let server = RedisServer::builder().persistent().start().await;
    let mut member = TestMember::on(server, |client| client).await;
    member.client.provision().await.unwrap();
    granted(member.acquire("f", with_quarantine(ms(1))).await.unwrap());
    member.mark("f", 20).await.unwrap();
    assert!(!member.look_with_quarantine("f").await.fresh);
    // As with an older copy of the data: the lock exists, and the token is smaller.
    member.server.restart(Data::Kept).await;
    member.look_again().await;
    let _quarantine = member.acquire("f", with_quarantine(ms(1))).await;
    tokio::time::sleep(ms(20)).await;
    let old = member.look_with_quarantine("f").await;
    assert_eq!((old.value, old.fresh), (Some(20), true));
    // Another lock's register is uncertain too.
    assert!(member.redis.exists("lockdog:epoch").await);
    assert_eq!(member.mark("f", 20).await.unwrap(), MarkReply::Done);
    assert!(
        member.look_with_quarantine("f").await.fresh,
        "nothing was written"
    );
    assert_eq!(member.mark("f", 21).await.unwrap(), MarkReply::Done);
    let new = member.look_with_quarantine("f").await;
    assert_eq!((new.value, new.fresh), (Some(21), false));
    // Until the server's data is provisioned.
    member.redis.cmd(&["DEL", REGISTER]).await;
    assert!(member.look_with_quarantine("f").await.fresh);
    member.client.provision().await.unwrap();
    assert!(!member.look_with_quarantine("f").await.fresh);
}

impl TestMember {
    /// The register, as this field's acquire sees it.
    async fn look(&self, field: &str) -> RegisterState {
        let taken = granted(self.acquire(field, FENCED).await.unwrap());
        taken.register.expect("it was asked for")
    }

    /// The same, with a check of the epoch.
    async fn look_with_quarantine(&self, field: &str) -> RegisterState {
        let taken = granted(self.acquire(field, with_quarantine(ms(1))).await.unwrap());
        taken.register.expect("it was asked for")
    }

    /// The stored text of the register.
    async fn text(&self) -> String {
        self.redis.ask(&["GET", REGISTER]).await
    }
}

fn code(failure: &Failure) -> &str {
    match failure {
        Failure::Refused { code, .. } => code,
        _ => "",
    }
}
