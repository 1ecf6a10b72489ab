//! Commands that read, and their answers.

use redis::{Cmd, FromRedisValue, Value};

use crate::server::{Failure, Sent};
use crate::session::Core;

/// Sends a command that changes nothing to the server that has this key.
pub(super) async fn ask(core: &Core, key: &str, query: Cmd) -> Result<Value, Failure> {
    let time = core.server.time_box(core.clock.now());
    let mut sent = Sent::default();
    let answer = core.server.call(key, |_, _| query.clone(), time, &mut sent);
    let answer = answer.await;
    core.server.abandon_unanswered(&answer, &sent);
    answer
}

/// As [`ask`], for a command that the user may lack the permission for: `None` if the server refuses it.
pub(super) async fn ask_if_permitted(
    core: &Core,
    key: &str,
    query: Cmd,
) -> Result<Option<Value>, Failure> {
    match ask(core, key, query).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Refused { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A command of these words.
pub(super) fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

/// Reads an answer; `None` if it has another form, as some proxies give.
pub(super) fn read<T: FromRedisValue>(answer: &Value) -> Option<T> {
    T::from_redis_value_ref(answer).ok()
}

/// A cursor, and a list of texts: the answer of SCAN and HSCAN. What is not UTF-8 becomes replacement
/// characters.
pub(super) fn page(answer: &Value) -> Option<(u64, Vec<String>)> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [cursor, items] = &parts[..] else {
        return None;
    };
    let items: Vec<Vec<u8>> = read(items)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((read(cursor)?, items.into_iter().map(text).collect()))
}

/// The fields of a hash with their values: the answer of HGETALL, which is a list with RESP2 and a map with RESP3.
/// What is not UTF-8 becomes replacement characters.
pub(super) fn whole(answer: &Value) -> Option<Vec<(String, String)>> {
    let fields: Vec<(Vec<u8>, Vec<u8>)> = read(answer)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let fields = fields.into_iter();
    Some(
        fields
            .map(|(field, value)| (text(field), text(value)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_cursor_and_texts() {
        let bulk = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let items = Value::Array(vec![bulk(b"a"), bulk(b"\xff")]);
        let answer = Value::Array(vec![bulk(b"17"), items]);
        let expected = (17, vec!["a".to_owned(), "\u{fffd}".to_owned()]);
        assert_eq!(page(&answer), Some(expected));
        assert_eq!(page(&Value::Nil), None);
        assert_eq!(page(&Value::Array(vec![bulk(b"17")])), None);
    }

    #[test]
    fn a_hash_is_read_in_both_protocols() {
        let bulk = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let list = vec![bulk(b"a"), bulk(b"1"), bulk(b"\xff"), bulk(b"2")];
        let map = vec![(bulk(b"a"), bulk(b"1")), (bulk(b"\xff"), bulk(b"2"))];
        let expected = [("a", "1"), ("\u{fffd}", "2")];
        let expected = expected.map(|(field, value)| (field.to_owned(), value.to_owned()));
        for answer in [Value::Array(list), Value::Map(map)] {
            assert_eq!(whole(&answer), Some(expected.to_vec()));
        }
        assert_eq!(whole(&Value::Array(Vec::new())), Some(Vec::new()));
        assert_eq!(whole(&Value::Int(2)), None);
    }
}
