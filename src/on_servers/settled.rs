//! What was given up is undone, whatever of it runs when.

use super::{Member, PLAIN, ms};
use crate::owner::Owner;
use crate::session::Job;
use crate::support::eventually;

/// Somebody gives up an acquire that is still on its way, and the server says that there is nothing to
/// undo. It arrives after that, and whoever sent it meets a connection that broke.
#[tokio::test]
async fn an_acquire_that_comes_after_it_was_given_up_is_undone_though_it_takes_two_attempts() {
    let member = Member::start().await;
    let (core, lock) = (&member.core, member.client.lock("l"));
    let hold = core.holds.enter(lock.key().unwrap(), Owner::new());
    hold.state().sending(core.clock.now(), ms(60_000));
    let node = core.server.node("").unwrap();
    let on = node.source().open_own(ms(3000)).await.unwrap();
    core.abandon(&hold);
    eventually(ms(5000), "there is nothing to undo", async || {
        core.holds.numbered(hold.key(), hold.number()).is_none()
    })
    .await;
    member.acquire(&core.field(&hold), PLAIN).await.unwrap();
    assert!(member.redis.exists("l").await);
    node.kill(&on, ms(3000)).await;
    core.owe(Job::after(hold, None, Some(on)));
    eventually(ms(5000), "it is undone", async || {
        !member.redis.exists("l").await
    })
    .await;
}
