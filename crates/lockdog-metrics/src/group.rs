use std::borrow::Cow;

/// The group of a lock is the part of its name before the first `separator`: `orders:42` is one of the `orders`. A
/// name without a separator is in no group, because it may be one of many. For
/// [`ClientBuilder::lock_group`](lockdog::ClientBuilder::lock_group).
pub fn before(separator: char) -> impl Fn(&str) -> Cow<'_, str> + Send + Sync + 'static {
    move |name| {
        let group = name.split_once(separator);
        Cow::Borrowed(group.map_or("", |(group, _)| group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_what_is_before_the_separator() {
        let group = before(':');
        assert_eq!(group("orders:42:items"), "orders");
        assert_eq!(group("orders"), "");
        assert_eq!(group(":42"), "");
    }
}
