//! Lost, late and repeated commands, dead leaders, and servers that refuse.

use std::process::{Command, Stdio};

use super::*;
use crate::support::{Action, Direction, Gate, Proxy};

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, Election) {
    behind_a_proxy_with(test, |it| it.command_timeout(ms(2_500)).poll_cap(ms(200))).await
}

async fn behind_a_proxy_with(
    test: &Fixture,
    set: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Proxy, Election) {
    for script in [acquire(), unlock(), transfer(), PROCLAIM.to_owned()] {
        test.redis.cmd(&["SCRIPT", "LOAD", &script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = set(Client::builder().url(proxy.url()));
    let client = client.build().await.unwrap();
    (proxy, client.election(NAME))
}

/// LE1 and FE2: a command whose reply is lost, or that runs twice, begins one term.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::start().await;
    // A waiter that was not polled for a poll cap is handed nothing.
    let set = |it: ClientBuilder| it.command_timeout(SOON).poll_cap(ms(5_000));
    let (proxy, election) = behind_a_proxy_with(&test, set).await;
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let rule = proxy.on(is(acquire()), action.clone());
        let mut lead = election.campaign("a").await.unwrap();
        rule.wait_hits(1).await;
        let counter: u64 = test.redis.ask(&["GET", COUNTER]).await;
        assert_eq!(lead.term(), counter);
        let rule = proxy.on(is(PROCLAIM.to_owned()), action.clone());
        lead.proclaim("b").await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(test.value().await.as_deref(), Some("b"));
        let rule = proxy.on(is(transfer()), action.clone());
        let before = proxy.count(is(transfer()));
        let mut attempts = 0;
        // On a busy machine the waiter may not have read its answer, and then nothing is handed to it.
        while proxy.count(is(transfer())) == before {
            attempts += 1;
            assert!(attempts < 20, "no leadership is handed over");
            let next = test.queued(&election, "c").await;
            tokio::time::sleep(ms(300)).await;
            lead.resign().await.unwrap();
            lead = in_time(next).await;
        }
        rule.wait_hits(1).await;
        let after: u64 = test.redis.ask(&["GET", COUNTER]).await;
        assert!(lead.term() == after && after > counter);
        let rule = proxy.on(is(unlock()), action);
        lead.resign().await.unwrap();
        rule.wait_hits(1).await;
        test.eventually_over().await;
    }
}

/// The client is disconnected before it can resign. The leader's value disappears with its lease, and not
/// before.
#[tokio::test]
async fn a_leader_that_cannot_resign_leaves_nothing_behind() {
    let test = Fixture::start().await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url());
    let client = client.watchdog_lease(ms(4_800)).build().await.unwrap();
    let lead = client.election(NAME).campaign("a").await.unwrap();
    let ttls = async || {
        let both = "return { redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[2]) }";
        let ttls: [i64; 2] = test.redis.ask(&["EVAL", both, "2", NAME, LEADER_KEY]).await;
        ttls
    };
    // The value's TTL is renewed together with the lock's.
    eventually(SOON, "its lease runs", async || ttls().await[0] < 4_000).await;
    eventually(SOON, "both are renewed", async || {
        let [hash, value] = ttls().await;
        hash > 4_000 && hash.abs_diff(value) <= 100
    })
    .await;
    assert_eq!(test.value().await.as_deref(), Some("a"));
    proxy.blackhole(Direction::ToServer);
    drop(lead);
    eventually(SOON, "the lease is over", async || ttls().await[0] == -2).await;
    assert!(proxy.counts().blackholed > 0, "it resigned");
    test.eventually_over().await;
    // A leader with a fixed lease.
    let lead = test.election.campaign("b").lease(ms(10_000)).await.unwrap();
    lead.proclaim("c").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some("c"));
    let [hash, value] = ttls().await;
    assert!(
        hash > 0 && hash.abs_diff(value) <= 100,
        "{hash} and {value}"
    );
    lead.resign().await.unwrap();
}

/// A late publication replaces neither a newer one of the same leader nor that of a later leader.
#[tokio::test]
async fn a_late_proclamation_changes_nothing() {
    let test = Fixture::start().await;
    let (proxy, election) = behind_a_proxy(&test).await;
    let lead = election.campaign("a").await.unwrap();
    let gate = Gate::new();
    proxy.on(is(PROCLAIM.to_owned()), Action::HoldRequest(gate.clone()));
    let late = lead.leading();
    let late = tokio::spawn(async move { late.proclaim("late").await });
    gate.wait_reached().await;
    let error = in_time(late).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    lead.proclaim("newer").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some("newer"));
    gate.open();
    gate.wait_passed().await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.value().await.as_deref(), Some("newer"));

    let gate = Gate::new();
    proxy.on(is(PROCLAIM.to_owned()), Action::TwiceLate(gate.clone()));
    lead.proclaim("last").await.unwrap();
    lead.resign().await.unwrap();
    let next = test.election.campaign("next").await.unwrap();
    gate.open();
    gate.wait_passed().await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.value().await.as_deref(), Some("next"));
    next.resign().await.unwrap();
    test.eventually_over().await;
}

#[tokio::test]
async fn a_leader_below_a_raised_counter_leads_and_publishes_nothing() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    let raised: u64 = test.redis.ask(&["INCRBY", COUNTER, "1000"]).await;
    let error = lead.proclaim("b").await.unwrap_err();
    assert!(error.to_string().contains("LATERTERM"), "{error}");
    assert!(lead.is_valid());
    assert_eq!(test.value().await.as_deref(), Some("a"));
    lead.resign().await.unwrap();
    let next = test.election.campaign("c").await.unwrap();
    assert!(next.term() > raised);
    next.resign().await.unwrap();
    test.eventually_over().await;
}

/// Late copies of the commands of an ended leadership make its hold again, until its lease is over. Nobody has it, and
/// its term, which is not the newest, is not shown again.
#[tokio::test]
async fn late_copies_do_not_show_an_ended_term_again() {
    let test = Fixture::start().await;
    let (proxy, election) = behind_a_proxy(&test).await;
    let acquired = proxy.repeat_late(is(acquire()));
    let proclaimed = proxy.repeat_late(is(PROCLAIM.to_owned()));
    let lead = election.campaign("ended").await.unwrap();
    let ended = lead.term();
    lead.resign().await.unwrap();
    let lead = test.election.campaign("next").await.unwrap();
    let newest = lead.term();
    assert!(newest > ended);
    lead.resign().await.unwrap();
    test.eventually_over().await;

    acquired.open();
    acquired.wait_passed().await;
    eventually(SOON, "the hold is there again", async || {
        test.redis.exists(NAME).await
    })
    .await;
    let counter: u64 = test.redis.ask(&["GET", COUNTER]).await;
    assert!(counter > newest, "the hold has a new term");
    proclaimed.open();
    proclaimed.wait_passed().await;
    let leader = test.election.leader().await.unwrap();
    let leader = leader.expect("the hold is there");
    assert!(
        leader.term.is_none() && leader.value.is_none(),
        "{leader:?}"
    );
    assert!(!test.redis.exists(LEADER_KEY).await);
    assert!(test.election.force_resign().await.unwrap());
    test.eventually_over().await;
}

/// A campaign that is elected and cannot publish its value does not lead: it resigns.
#[tokio::test]
async fn a_campaign_that_cannot_publish_its_value_resigns() {
    let test = Fixture::start().await;
    let (proxy, election) = behind_a_proxy(&test).await;
    let rule = proxy
        .on(is(PROCLAIM.to_owned()), Action::DropReply)
        .times(99);
    let error = election.campaign("a").await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    let began = std::time::Instant::now();
    let limit = ms(500);
    let timed = election.campaign("a").wait(limit).await;
    assert!(timed.is_err() && began.elapsed() >= limit, "{timed:?}");
    rule.remove();
    eventually(SOON, "none leads", async || {
        test.election.leader().await.unwrap().is_none()
    })
    .await;
    test.eventually_over().await;
}

/// The key disappears. The leader learns of it at its next publication at the latest, and the next leader's
/// value stays.
#[tokio::test]
async fn a_leader_whose_key_is_gone_is_notified_when_it_proclaims() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    test.redis.cmd(&["DEL", NAME]).await;
    assert!(test.election.leader().await.unwrap().is_none());
    let next = test.another().await.campaign("b").await.unwrap();
    assert!(next.term() > lead.term());
    let error = lead.proclaim("c").await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!lead.is_valid());
    lead.lost().await;
    assert_eq!(test.value().await.as_deref(), Some("b"));
    let error = lead.resign().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(test.value().await.as_deref(), Some("b"));
    next.resign().await.unwrap();
}

/// The side keys are deleted. The leader keeps leading, and the queue forms again.
#[tokio::test]
async fn a_leader_and_the_queue_survive_deleted_side_keys() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(200))).await;
    let lead = test.election.campaign("a").await.unwrap();
    let next = test.queued(&test.election, "b").await;
    for key in [LEADER_KEY, COUNTER, PRESENCE] {
        assert!(test.redis.ask::<bool>(&["DEL", key]).await, "{key}");
    }
    assert!(test.election.leader().await.unwrap().is_some());
    let term = lead.term();
    lead.resign().await.unwrap();
    let lead = in_time(next).await;
    assert!(lead.term() > term);
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

/// LE4: the leader's process is killed. The test runs in two processes: as the test, and as the leader.
#[tokio::test]
async fn the_next_one_leads_when_the_lease_of_a_killed_leader_is_over() {
    if let Ok(url) = std::env::var(LEADER) {
        let client = Client::builder().url(url).watchdog_lease(ms(4_000));
        let client = client.build().await.unwrap();
        let _lead = client.election(NAME).campaign("killed").await;
        return tokio::time::sleep(2 * LONG).await;
    }
    let test = Fixture::start().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "election::faults::the_next_one_leads_when_the_lease_of_a_killed_leader_is_over",
        ])
        .env(LEADER, test.server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(SOON, "it leads", async || {
        test.value().await.as_deref() == Some("killed")
    })
    .await;
    let before = test.election.leader().await.unwrap().unwrap();
    let next = test.queued(&test.election, "next").await;
    child.kill().unwrap();
    child.wait().unwrap();
    let lead = in_time(next).await;
    assert!(lead.term() > before.term.unwrap());
    assert_eq!(test.value().await.as_deref(), Some("next"));
    lead.resign().await.unwrap();
}

/// LE4: the first candidate in the queue is absent, and delays the others for its absence only.
#[tokio::test]
async fn a_candidate_that_is_not_there_is_passed_over() {
    // The absence is long enough for a second candidate on a busy machine.
    let set = |builder: ClientBuilder| builder.poll_cap(ms(250)).fair_absence(ms(5_000));
    let test = Fixture::with(set).await;
    let lead = test.election.campaign("a").await.unwrap();
    let proxy = Proxy::start(&test.server).await;
    let stopped = set(Client::builder().url(proxy.url()))
        .build()
        .await
        .unwrap();
    let first = test.queued(&stopped.election(NAME), "b").await;
    // The second comes before the first is absent, because it would drop it from the queue.
    let second = test.queued(&test.election, "c").await;
    proxy.blackhole(Direction::ToServer);
    lead.resign().await.unwrap();
    let lead = in_time(second).await;
    assert_eq!(test.value().await.as_deref(), Some("c"));
    first.abort();
    proxy.heal();
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

#[tokio::test]
async fn a_leader_can_resign_to_a_server_without_memory() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = lead.proclaim("b").await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert!(lead.is_valid());
    let another = test.another().await;
    let error = another.campaign("c").wait(SOON).await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    lead.resign().await.unwrap();
    assert!(!test.redis.exists(NAME).await && !test.redis.exists(LEADER_KEY).await);
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    another.campaign("c").await.unwrap().resign().await.unwrap();
    test.eventually_over().await;
}

fn is(script: String) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(&script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

fn acquire() -> String {
    composed(
        include_str!("../../../lua/fair/acquire.lua"),
        include_str!("../../../lua/election/acquire.lua"),
    )
}

fn unlock() -> String {
    composed(
        include_str!("../../../lua/fair/unlock.lua"),
        include_str!("../../../lua/election/unlock.lua"),
    )
}

fn transfer() -> String {
    composed(
        include_str!("../../../lua/fair/transfer.lua"),
        include_str!("../../../lua/election/transfer.lua"),
    )
}

const PROCLAIM: &str = include_str!("../../../lua/election/proclaim.lua");
const LEADER: &str = "ELECTION_LEADER_URL";
