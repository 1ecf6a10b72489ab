//! Members of one client whose server accepts only one key per command, as a proxy of a cluster may.

use lockdog::{Client, Owner, Unlocked};

use super::{Fixture, LONG, SOON, ms, multi, waiter};
use crate::support::proxy::Rule;
use crate::support::{Action, Proxy, eventually, timed, until_ok};

/// A proxy answers CROSSSLOT to commands of several keys.
#[tokio::test]
async fn members_that_one_command_may_not_contain_are_acquired_one_by_one() {
    let test = Fixture::start(1).await;
    let proxy = Proxy::start(&test.servers.all[0]).await;
    let rule = proxy.on(is_of_several, Action::ReplyWith(REFUSAL.to_owned()));
    let rule = rule.always();
    let clients = [Client::connect(proxy.url()).await.unwrap()];
    let lock = multi(&clients, &MEMBERS);
    let counts = async || {
        let mut counts = Vec::new();
        for (server, name) in MEMBERS {
            counts.extend(test.counts(server, name).await);
        }
        counts
    };
    // Calls with a wait, without a wait and without a limit: the combined command is refused once and
    // never sent again.
    let first = lock.try_lock().wait(SOON).await.unwrap();
    let first = first.expect("all are free");
    assert_eq!((rule.hits(), counts().await), (1, vec!["1".to_owned(); 3]));
    let inner = multi(&clients, &MEMBERS).lock().await.unwrap();
    assert_eq!(counts().await, ["2"; 3]);
    assert_eq!(
        inner.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert_eq!(first.unlock().await.unwrap(), Unlocked::Released);
    test.assert_clean().await;
    assert_eq!(rule.hits(), 1);

    // All or none: if one member is busy, the call keeps none of the others.
    let held = test.held_elsewhere(0, "b").await;
    assert!(lock.try_lock().await.unwrap().is_none());
    eventually(SOON, "the others are released", async || {
        test.is_free(0, "a").await && test.is_free(0, "c").await
    })
    .await;
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    test.assert_clean().await;
    assert_eq!(rule.hits(), 1);
}

/// Invariant 10: the refusal and the commands after it are one call with one deadline.
#[tokio::test]
async fn a_call_that_is_split_keeps_its_deadline() {
    let test = Fixture::start(2).await;
    let mut clients = Vec::new();
    let mut rules = Vec::new();
    let mut proxies = Vec::new();
    for server in &test.servers.all {
        let proxy = Proxy::start(server).await;
        let refusal = Action::ReplyWith(REFUSAL.to_owned());
        rules.push(proxy.on(is_of_several, refusal).always());
        clients.push(Client::connect(proxy.url()).await.unwrap());
        proxies.push(proxy);
    }
    let lock = multi(&clients, &[(0, "a"), (0, "b"), (1, "a"), (1, "b")]);
    let held = test.held_elsewhere(1, "b").await;
    let wait = ms(1_500);
    // On a busy machine the first answers may come later than that.
    let (answer, took) = until_ok(SOON, async || {
        let (answer, took) = timed(lock.try_lock().wait(wait).into_future()).await;
        answer.map(|answer| (answer, took))
    })
    .await;
    assert!(answer.is_none());
    assert!(took >= wait && took < wait + SOON, "{took:?}");
    // The client does not wait for the slower answer, so the slower server may refuse twice.
    let refused = || rules.iter().map(Rule::hits).collect::<Vec<u64>>();
    let before = refused();
    assert!(
        before.iter().all(|hits| (1..=2).contains(hits)),
        "{before:?}"
    );
    held.unlock().await.unwrap();
    let request = lock.try_lock().owner(&Owner::new()).lease(LONG);
    let guard = request.await.unwrap().expect("all are free");
    guard.unlock().await.unwrap();
    assert_eq!(refused(), before);
    test.assert_clean().await;
}

/// A script with several keys.
fn is_of_several(args: &[String]) -> bool {
    // Some have none.
    let keys = args.get(2).and_then(|keys| keys.parse::<u32>().ok());
    args[0].to_ascii_lowercase().starts_with("eval") && keys.is_some_and(|keys| keys > 1)
}

const MEMBERS: [(usize, &str); 3] = [(0, "a"), (0, "b"), (0, "c")];
const REFUSAL: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
