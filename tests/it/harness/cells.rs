//! The cell and the waiting helpers detect what they are for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::{Cell, eventually, heartbeat, timed};

#[tokio::test]
async fn overlapping_bumps_lose_an_update_and_are_reported() {
    let cell = Cell::new();
    tokio::join!(cell.bump_as("ann", PAUSE), cell.bump_as("bob", PAUSE));
    assert_eq!(cell.value(), 1);
    let complaint = complaint(|| cell.assert_exclusive(2));
    assert!(
        complaint.contains("bob came while ann was inside"),
        "{complaint}"
    );
}

#[tokio::test]
async fn consecutive_bumps_are_exclusive() {
    let cell = Cell::new();
    for _ in 0..3 {
        cell.bump(Duration::ZERO).await;
    }
    cell.assert_exclusive(3);
    let complaint = complaint(|| cell.assert_exclusive(4));
    assert!(
        complaint.contains("the cell is 3, expected 4"),
        "{complaint}"
    );
}

#[tokio::test]
async fn readers_may_overlap_readers_but_no_bump() {
    let cell = Cell::new();
    tokio::join!(cell.read_as("ann", PAUSE), cell.read_as("bob", PAUSE));
    assert_eq!(cell.most_inside(), 2);
    cell.assert_exclusive(0);
    tokio::join!(cell.read_as("ann", PAUSE), cell.bump(PAUSE));
    let complaint = complaint(|| cell.assert_exclusive(1));
    assert!(
        complaint.contains("visitor 4 came while ann was inside"),
        "{complaint}"
    );
}

#[tokio::test]
async fn an_aborted_visit_of_a_cell_ends() {
    let cell = Cell::new();
    let aborted = tokio::time::timeout(PAUSE, cell.bump(Duration::from_secs(60))).await;
    assert!(aborted.is_err());
    cell.bump(Duration::ZERO).await;
    cell.assert_exclusive(1);
}

#[tokio::test]
async fn eventually_waits_for_the_condition_and_names_it_on_timeout() {
    let mut asked = 0;
    let wait = eventually(
        Duration::from_secs(30),
        "three questions were asked",
        async || {
            asked += 1;
            asked == 3
        },
    );
    wait.await;
    let failed = tokio::spawn(eventually(PAUSE, "pigs fly", async || false)).await;
    let panic = failed.expect_err("it never came true").into_panic();
    let complaint = panic.downcast_ref::<String>().expect("a panic has a text");
    assert!(
        complaint.ends_with("it did not come true that pigs fly"),
        "{complaint}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn heartbeat_detects_a_starved_worker() {
    let heart = heartbeat(&tokio::runtime::Handle::current());
    tokio::time::sleep(PAUSE).await;
    let before = heart.largest_gap();
    let starved = Duration::from_secs(5);
    let ((), took) = timed(async {
        tokio::spawn(async move { std::thread::sleep(starved) })
            .await
            .expect("it only sleeps");
    })
    .await;
    assert!(took >= starved);
    assert!(
        before < starved,
        "the gap was {before:?} before anything was starved"
    );
    assert!(heart.largest_gap() >= starved - PAUSE);
}

fn complaint(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("the check has to fail");
    *panic.downcast().expect("a panic with values has a text")
}

const PAUSE: Duration = Duration::from_millis(50);
