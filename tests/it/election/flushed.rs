//! `FLUSHALL` during a leadership. It deletes the lock, the queue, the leader's value and the counter of the terms,
//! and publishes no message.

use futures_util::future::select_all;
use lockdog::error::LostReason;
use lockdog::request::Leaders;

use super::*;

/// LE1 and LE3: no candidate waits, so nothing is on the server after the flush.
#[tokio::test]
async fn a_leader_is_notified_of_a_flush_and_leads_again_in_a_later_term() {
    let test = Fixture::with(settings).await;
    let mut leaders = test.another_with(settings).await.observe();
    let lead = test.election.campaign("a").await.unwrap();
    let term = lead.term();
    sees(&mut leaders, term).await;
    test.redis.cmd(&["FLUSHALL"]).await;
    assert!(test.redis.all_keys().await.is_empty());
    is_notified(&lead).await;
    assert!(test.election.leader().await.unwrap().is_none());
    let end = tokio::time::timeout(SOON, leaders.next()).await;
    let end = end.expect("a poll cap is over by then").unwrap();
    assert!(end.is_none(), "{end:?}");
    assert!(lead.proclaim("late").await.unwrap_err().is_lost());
    assert!(lead.resign().await.unwrap_err().is_lost());
    let again = test.election.campaign("b").await.unwrap();
    assert!(again.term() > term, "{} after {term}", again.term());
    sees(&mut leaders, again.term()).await;
    again.resign().await.unwrap();
    test.eventually_over().await;
}

/// LE1 and LE4: one candidate is of the leader's client, and one of another client. The first of them leads before the
/// leader is notified, or after it.
#[tokio::test]
async fn candidates_lead_one_after_the_other_in_later_terms_after_a_flush() {
    let test = Fixture::with(settings).await;
    let other = test.another_with(settings).await;
    let mut leaders = test.another_with(settings).await.observe();
    let lead = test.election.campaign("flushed").await.unwrap();
    sees(&mut leaders, lead.term()).await;
    let leader = test.election.leader().await.unwrap().expect("it leads");
    let candidates = [
        test.queued(&test.election, "own").await,
        test.queued(&other, "other").await,
    ];
    test.redis.cmd(&["FLUSHALL"]).await;
    // A candidate may lead already.
    let fields = test.redis.hash(NAME).await;
    assert!(!fields.contains_key(leader.holder.field()), "{fields:?}");
    let first = tokio::time::timeout(SOON, select_all(candidates)).await;
    let (first, _, mut rest) = first.expect("a poll cap is over by then");
    let first = first.unwrap();
    assert!(first.term() > lead.term());
    sees(&mut leaders, first.term()).await;
    is_notified(&lead).await;
    assert!(first.is_valid() && !rest[0].is_finished());
    let last = first.term();
    first.resign().await.unwrap();
    let second = in_time(rest.remove(0)).await;
    assert!(second.term() > last, "{} after {last}", second.term());
    sees(&mut leaders, second.term()).await;
    // The commands of the lost leadership change nothing.
    assert!(lead.proclaim("late").await.unwrap_err().is_lost());
    assert!(lead.resign().await.unwrap_err().is_lost());
    let leader = test.election.leader().await.unwrap().expect("it leads");
    assert_eq!(leader.term, Some(second.term()));
    assert!(second.is_valid());
    second.resign().await.unwrap();
    test.eventually_over().await;
}

/// A renewal notifies the leader, and not its deadline: the renewal comes within three seconds, and the deadline six
/// seconds after that.
fn settings(builder: ClientBuilder) -> ClientBuilder {
    builder.watchdog_lease(ms(9_000)).poll_cap(ms(200))
}

async fn is_notified(lead: &Leadership) {
    let lost = tokio::time::timeout(SOON, lead.lost()).await;
    let lost = lost.expect("the next renewal shows the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(!lead.is_valid());
}

/// Waits until the observer sees the leader of this term.
async fn sees(leaders: &mut Leaders, term: u64) {
    let seen = async {
        loop {
            let leader = leaders.next().await.expect("the server answers");
            if leader.is_some_and(|leader| leader.term == Some(term)) {
                break;
            }
        }
    };
    let seen = tokio::time::timeout(SOON, seen).await;
    seen.expect("the observer sees the leader of this term");
}
