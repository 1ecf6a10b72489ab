//! Clients on runtimes whose paused clocks are days apart, in one process. This test has its own
//! program, because the first clock sets the origin of all moments of the process.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog_test::Server;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_clock_that_is_days_behind_the_first_clock_works() {
    on_a_clock_of_its_own(10 * DAY);
    on_a_clock_of_its_own(Duration::ZERO);
}

fn on_a_clock_of_its_own(ahead: Duration) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::time::sleep(ahead).await;
        let client = Server::new().client().await;
        let lock = client.lock("orders");
        let guard = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
        let lost = tokio::time::timeout(DAY, guard.lost()).await;
        assert_eq!(lost.unwrap().reason(), LostReason::Deadline);
        assert!(!guard.is_valid());
    });
}
