//! The permissions that a server must give a quorum's member: `docs/security.md`.

use super::{FENCED, PLAIN, TestCaller, ms, with_quarantine};
use crate::client::Client;
use crate::error::Error;
use crate::script::{InstanceChecks, MarkReply};
use crate::support::{Redis, RedisServer};

#[tokio::test]
async fn a_quorum_member_needs_exactly_the_documented_permissions() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let fenced = ["+time", "+get", "+set", "~lockdog_token:{orders:*}"];
    let remembering = ["+time", "+hset", "+hmget", "+info", "~lockdog:epoch"];
    for rule in fenced.iter().chain(&remembering) {
        let names = SECURITY.split(['`', ' ']);
        assert!(names.clone().any(|name| name == *rule), "{rule}");
    }
    let both = [&fenced[..], &remembering].concat();
    for (guards, needed) in [
        (PLAIN, &[][..]),
        (FENCED, &fenced),
        (with_quarantine(ms(1)), &both),
    ] {
        let outcome = by(&server, &redis, needed, guards).await;
        assert!(outcome.is_ok(), "{needed:?}: {outcome:?}");
        for missing in needed {
            let mut rules = needed.to_vec();
            rules.retain(|rule| rule != missing);
            if *missing == "+info" {
                // The plain lock's ACL line has it.
                rules.push("-info");
            }
            let outcome = by(&server, &redis, &rules, guards).await;
            let is_denied =
                matches!(&outcome, Err(Error::Refused { code, .. }) if code == "NOPERM");
            assert!(is_denied, "without {missing}: {outcome:?}");
        }
    }
}

/// Runs a quorum's commands as a user with these permissions and the plain lock's.
async fn by(
    server: &RedisServer,
    redis: &Redis,
    rules: &[&str],
    guards: InstanceChecks,
) -> Result<(), Error> {
    redis.cmd(&["FLUSHALL"]).await;
    redis.cmd(&["SCRIPT", "FLUSH"]).await;
    let user = ["ACL", "SETUSER", "lockdog", "reset", "on", ">secret"];
    redis.cmd(&[&user[..], &plain(), rules].concat()).await;
    let url = format!("redis://lockdog:secret@127.0.0.1:{}", server.port());
    let caller = TestCaller::new(Client::connect(url).await?, "orders:42");
    if guards.quarantine.is_some() {
        caller.client.provision().await?;
    }
    let taken = caller.acquire("f", guards).await?;
    assert_eq!(taken.quarantined, None);
    if guards.register {
        let marked = caller.mark("f", 7).await?;
        assert_eq!(marked, MarkReply::Done);
    }
    Ok(())
}

/// The rules of the documented ACL line, without name and password.
fn plain() -> Vec<&'static str> {
    let mut lines = SECURITY.lines();
    let line = lines.find(|line| line.starts_with("ACL SETUSER lockdog "));
    let line = line.expect("the page has the line");
    line.split(' ').skip(5).collect()
}

const SECURITY: &str = include_str!("../../docs/security.md");
