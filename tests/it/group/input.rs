//! Bad input, and a name of another type.

use lockdog::Error;

use super::*;

#[tokio::test]
async fn bad_input_is_refused_before_any_command() {
    let test = Fixture::start().await;
    test.redis.reset_stats().await;
    let many = (0..257).map(|number| Value::utf8(&number.to_string()));
    let none: [Value; 0] = [];
    for lock in [
        test.client.group_lock(GROUP, none),
        test.client.group_lock(GROUP, many),
        test.client.group_lock("", [Value::utf8("a")]),
    ] {
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.is_locked().await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
    let most = (0..256).map(|number| Value::utf8(&number.to_string()));
    let guard = test.client.group_lock(GROUP, most).lock().await.unwrap();
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_name_of_another_type_is_refused() {
    let test = Fixture::start().await;
    test.redis.cmd(&["SET", GROUP, "text"]).await;
    let error = test.lock(&["Jack"]).lock().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
        "{error}"
    );
    assert_eq!(test.redis.ask::<String>(&["GET", GROUP]).await, "text");
}

/// A lock of another kind has the group's name. It is refused while that lock is held, and nothing is written.
#[tokio::test]
async fn a_lock_of_another_kind_with_the_name_of_the_group_is_not_changed() {
    let test = Fixture::start().await;
    let groups = [
        test.another(&["Jack"]).await,
        test.another(&["Jack", "Mary", "Ann"]).await,
    ];
    let client = &test.client;
    let rw = client.read_write_lock(GROUP);
    for kind in ["plain", "fenced", "fair", "election", "write", "read"] {
        let mut guards = Vec::new();
        let mut lead = None;
        match kind {
            "plain" => guards.push(client.lock(GROUP).lock().await.unwrap()),
            "fenced" => guards.push(client.fenced_lock(GROUP).lock().await.unwrap()),
            "fair" => guards.push(client.fair_lock(GROUP).lock().await.unwrap()),
            "election" => lead = Some(client.election(GROUP).campaign("me").await.unwrap()),
            "write" => guards.push(rw.write().lock().await.unwrap().into()),
            _ => {
                // More fields than the script samples.
                for _ in 0..12 {
                    let reading = rw.read().lock().owner(&Owner::new()).await;
                    guards.push(reading.unwrap().into());
                }
            }
        }
        let before = test.redis.hash(GROUP).await;
        assert!(!before.is_empty(), "{kind}");
        for group in &groups {
            let error = group.try_lock().await.map(drop).unwrap_err();
            assert!(
                matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
                "{kind}: {error}"
            );
        }
        assert_eq!(test.redis.hash(GROUP).await, before, "{kind}");
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        if let Some(lead) = lead {
            lead.resign().await.unwrap();
        }
        let held = groups[0].lock().await.unwrap();
        let busy = client.lock(GROUP).try_lock().await.unwrap();
        assert!(busy.is_none(), "{kind}: the group has the name");
        held.unlock().await.unwrap();
    }
}
