//! Recognizes a lock by the fields of its hash.

use std::collections::{BTreeMap, HashSet};

use uuid::Uuid;

use crate::key::WRITER;

/// The form of a hash that is a lock's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HashForm {
    /// The field of one owner.
    OneOwner,
    ReadWrite,
    Group,
}

/// The form of a hash with these fields, and the holders with their counts, a writer first. `None` if no lock
/// writes such a hash.
pub(super) fn classify(fields: &[(String, String)]) -> Option<(HashForm, Vec<(String, u32)>)> {
    if let [(field, count)] = fields
        && let Some(count) = count_of(field, count)
    {
        return Some((HashForm::OneOwner, vec![(field.clone(), count)]));
    }
    if !fields
        .iter()
        .all(|(field, value)| may_be_of_lock(field, value))
    {
        return None;
    }
    if fields.iter().any(|(field, value)| is_mode(field, value)) {
        let holders = fields
            .iter()
            .filter_map(|(field, count)| Some((field.clone(), count_of(field, count)?)));
        let mut holders: Vec<(String, u32)> = holders.collect();
        holders.sort_by_key(|(field, _)| !field.ends_with(WRITER));
        return Some((HashForm::ReadWrite, holders));
    }
    let owners = owners_of_values(fields, None);
    match owners.is_empty() {
        true => None,
        false => Some((HashForm::Group, owners)),
    }
}

/// The owners of a group's values, with their counts. An owner whose time was over at `now`, in milliseconds of the
/// server's clock, is left out. Without `now` all are there.
pub(super) fn owners_of_values(
    fields: &[(String, String)],
    now: Option<u64>,
) -> Vec<(String, u32)> {
    let expired: HashSet<&str> = fields
        .iter()
        .filter_map(|(field, ends)| {
            let hold = field.strip_suffix(EXPIRE_TIME)?;
            (ends.parse::<u64>().ok()? <= now?).then_some(hold)
        })
        .collect();
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    for (field, count) in fields {
        let Some(hold) = field.strip_suffix(LOCK_COUNT) else {
            continue;
        };
        if let Some(owner) = owner_of_value(field, LOCK_COUNT)
            && !expired.contains(hold)
        {
            let count = count.parse().unwrap_or(0);
            let most = owners.entry(owner).or_default();
            *most = count.max(*most);
        }
    }
    let owners = owners.into_iter();
    owners
        .map(|(owner, count)| (owner.to_owned(), count))
        .collect()
}

/// Whether a lock may have written this field, in a hash with others.
pub(super) fn may_be_of_lock(field: &str, value: &str) -> bool {
    count_of(field, value).is_some()
        || is_mode(field, value)
        || is_value(field) && is_owner(value)
        || owner_of_value(field, LOCK_COUNT).is_some()
        || owner_of_value(field, EXPIRE_TIME).is_some()
}

/// The count of a hold, if this is the field of one.
fn count_of(field: &str, count: &str) -> Option<u32> {
    let count = count.parse().ok().filter(|count| *count > 0)?;
    is_owner(field).then_some(count)
}

/// Whether it is an owner: a client's id, and an owner of that client.
fn is_owner(field: &str) -> bool {
    let parts = field.split_once(':');
    parts.is_some_and(|(client, owner)| Uuid::try_parse(client).is_ok() && !owner.is_empty())
}

fn is_mode(field: &str, value: &str) -> bool {
    field == "mode" && ["read", "write"].contains(&value)
}

/// Whether it is the name of a value of a group: 16 bytes in Base64 without padding.
fn is_value(field: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    field.len() == VALUE && field.bytes().all(is_base64)
}

/// The owner in `<value>:<owner><suffix>`.
fn owner_of_value<'a>(field: &'a str, suffix: &str) -> Option<&'a str> {
    let (value, owner) = field.strip_suffix(suffix)?.split_once(':')?;
    (is_value(value) && is_owner(owner)).then_some(owner)
}

/// The length of the name of a value.
const VALUE: usize = 22;
/// The ends of the names of the fields for an owner of a value.
const LOCK_COUNT: &str = ":lock_count";
const EXPIRE_TIME: &str = ":expire_time";

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d";

    fn hash(fields: &[(String, &str)]) -> Option<(HashForm, Vec<(String, u32)>)> {
        let owned = fields
            .iter()
            .map(|(field, value)| (field.clone(), (*value).to_owned()));
        classify(&owned.collect::<Vec<_>>())
    }

    fn of(owner: &str) -> String {
        format!("{CLIENT}:{owner}")
    }

    #[test]
    fn one_field_of_an_owner_is_a_lock() {
        for owner in ["57", "t12.3"] {
            let holders = vec![(of(owner), 2)];
            assert_eq!(
                hash(&[(of(owner), "2")]),
                Some((HashForm::OneOwner, holders))
            );
        }
    }

    #[test]
    fn a_hash_with_a_mode_has_its_writer_first() {
        let fields = [
            (of("t1.1"), "1"),
            ("mode".to_owned(), "write"),
            (of("t1.2:write"), "3"),
        ];
        let holders = vec![(of("t1.2:write"), 3), (of("t1.1"), 1)];
        assert_eq!(hash(&fields), Some((HashForm::ReadWrite, holders)));
    }

    #[test]
    fn a_group_has_each_owner_once() {
        let value = |letter: &str| letter.repeat(VALUE);
        let (a, b) = (value("a"), value("b"));
        let owner = of("57");
        let fields = [
            (a.clone(), owner.as_str()),
            (format!("{a}:{owner}:expire_time"), "1700000000000"),
            (format!("{a}:{owner}:lock_count"), "1"),
            (b.clone(), owner.as_str()),
            (format!("{b}:{owner}:lock_count"), "2"),
        ];
        assert_eq!(
            hash(&fields),
            Some((HashForm::Group, vec![(owner.clone(), 2)]))
        );
    }

    #[test]
    fn an_owner_counts_until_the_time_of_its_last_value() {
        let (a, b) = ("a".repeat(VALUE), "b".repeat(VALUE));
        let mut fields = Vec::new();
        for (value, owner, ends) in [(&a, "57", 1_000), (&b, "57", 3_000), (&a, "58", 2_000)] {
            let hold = format!("{value}:{}", of(owner));
            fields.push((hold.clone() + LOCK_COUNT, "1".to_owned()));
            fields.push((hold + EXPIRE_TIME, ends.to_string()));
        }
        let owners = |now| -> Vec<String> {
            let owners = owners_of_values(&fields, now);
            owners.into_iter().map(|(owner, _)| owner).collect()
        };
        assert_eq!(owners(None), [of("57"), of("58")]);
        assert_eq!(owners(Some(1_999)), [of("57"), of("58")]);
        assert_eq!(owners(Some(2_000)), [of("57")]);
        assert!(owners(Some(3_000)).is_empty());
    }

    #[test]
    fn other_hashes_are_no_locks() {
        let field = |text: &str| text.to_owned();
        for fields in [
            &[][..],
            &[(field("name"), "Ada")],
            &[(field("mode"), "dark")],
            &[(field("mode"), "read"), (field("name"), "Ada")],
            &[(of("57"), "0")],
            &[(of("57"), "many")],
            &[(of(""), "1")],
            &[(field("somebody:57"), "1")],
            &[(of("57"), "1"), (of("58"), "1")],
            &[(of("57"), "1"), (field("name"), "Ada")],
            &[(field("aaaaaaaaaaaaaaaaaaaaaa"), "somebody")],
        ] {
            assert_eq!(hash(fields), None, "{fields:?}");
        }
    }
}
