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
