//! Bad input, and keys that are something else.

use lockdog::Error;

use super::*;

#[tokio::test]
async fn bad_input_is_refused_before_any_command() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("x".repeat(65_536)).await.unwrap();
    test.redis.reset_stats().await;
    let long = "x".repeat(65_537);
    let owner = Owner::new();
    let bad_lease = test.election.campaign("a").owner(&owner).lease(ms(1));
    for error in [
        test.election.campaign(&*long).await.map(drop).unwrap_err(),
        test.election
            .campaign(&*long)
            .wait(SOON)
            .await
            .map(drop)
            .unwrap_err(),
        test.election.run(&*long, async |_| ()).await.unwrap_err(),
        lead.proclaim(&*long).await.unwrap_err(),
        bad_lease.clone().await.map(drop).unwrap_err(),
        bad_lease.wait(SOON).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    for name in [String::new(), "x".repeat(513)] {
        let bad = test.client.election(&name);
        for error in [
            bad.campaign("a").await.map(drop).unwrap_err(),
            bad.leader().await.map(drop).unwrap_err(),
            bad.observe().next().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
}

#[tokio::test]
async fn an_owner_that_leads_is_refused() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    let again = test.election.campaign("b").await.unwrap_err();
    assert!(matches!(again, Error::AlreadyHeld(_)), "{again}");
    let again = test.election.campaign("b").wait(SOON).await.unwrap_err();
    assert!(matches!(again, Error::AlreadyHeld(_)), "{again}");
    assert_eq!(test.value().await.as_deref(), Some("a"));
    lead.resign().await.unwrap();
}

#[tokio::test]
async fn a_name_or_counter_of_another_type_is_refused_and_nothing_is_done() {
    let test = Fixture::start().await;
    for key in [NAME, COUNTER] {
        for junk in [&["LPUSH", key, "x"][..], &["SET", key, "x"]] {
            if key == NAME || junk[0] == "SET" {
                test.redis.cmd(junk).await;
                let error = test.election.campaign("a").await.unwrap_err();
                assert!(error.to_string().contains("WRONGTYPE"), "{error}");
                test.redis.cmd(&["DEL", key]).await;
                test.eventually_over().await;
            }
        }
    }
    test.redis.cmd(&["LPUSH", COUNTER, "x"]).await;
    let error = test.election.campaign("a").await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    test.redis.cmd(&["DEL", COUNTER]).await;
    // The published value is in a side key, which is written again.
    test.redis.cmd(&["LPUSH", LEADER_KEY, "x"]).await;
    assert!(test.election.leader().await.unwrap().is_none());
    let lead = test.election.campaign("a").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some("a"));
    for junk in [&["SET", LEADER_KEY, "x"][..], &["DEL", LEADER_KEY]] {
        test.redis.cmd(junk).await;
        let leader = test.election.leader().await.unwrap().expect("it leads");
        assert!(leader.value.is_none() && leader.term.is_none());
    }
    lead.proclaim("b").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some("b"));
    test.redis.cmd(&["DEL", LEADER_KEY]).await;
    test.redis.cmd(&["LPUSH", LEADER_KEY, "x"]).await;
    lead.resign().await.unwrap();
    test.redis.cmd(&["DEL", LEADER_KEY]).await;
    test.eventually_over().await;
}

/// The counter's key gets another type while one leads and another waits: the leader resigns, and the
/// waiter fails.
#[tokio::test]
async fn a_counter_that_is_spoiled_keeps_no_leader_from_resigning() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    let campaign = test.election.campaign("b").owner(&Owner::new());
    let waiter = tokio::spawn(campaign.into_future());
    eventually(SOON, "it is in the queue", async || {
        test.redis.ask::<usize>(&["LLEN", QUEUE]).await == 1
    })
    .await;
    test.redis.cmd(&["SET", COUNTER, "x"]).await;
    lead.resign().await.unwrap();
    let error = in_time(waiter).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    test.eventually_over().await;
}
