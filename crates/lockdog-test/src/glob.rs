//! Glob patterns for keys and channels.

/// Whether the whole text matches a pattern of `*`, `?`, `[...]` and `\`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [b'[', rest @ ..] => {
            let [first, text @ ..] = text else {
                return false;
            };
            let (has, rest) = class(rest, *first);
            has && matches(rest, text)
        }
        [b'\\', escaped, rest @ ..] => text.first() == Some(escaped) && matches(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

/// Whether the class that begins here has a byte, and what follows the class. One that is not closed ends
/// with the pattern, as in Redis.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (mut rest, wanted) = match pattern {
        [b'^', rest @ ..] => (rest, false),
        rest => (rest, true),
    };
    let mut has = false;
    loop {
        rest = match rest {
            [b'\\', escaped, rest @ ..] => {
                has |= *escaped == byte;
                rest
            }
            [b']', rest @ ..] => return (has == wanted, rest),
            [] => return (has == wanted, rest),
            [first, b'-', last, rest @ ..] => {
                has |= (first.min(last)..=first.max(last)).contains(&&byte);
                rest
            }
            [one, rest @ ..] => {
                has |= *one == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("orders:*", "orders:42", true),
            ("orders:*", "order", false),
            ("o?d", "old", true),
            ("h[ae]llo", "hallo", true),
            ("h[^ae]llo", "hallo", false),
            ("[a-c]x", "bx", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("[a", "a", true),
            ("[a", "b", false),
            ("[^a", "b", true),
            ("[]a]", "a", false),
            (r"[\]a]", "]", true),
            ("[a-", "-", true),
            ("[c-a]", "b", true),
            ("[a]b", "ab", true),
            ("[a]", "", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
