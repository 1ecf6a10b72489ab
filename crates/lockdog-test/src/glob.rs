//! Glob patterns for keys and channels.

/// Whether the whole text matches a pattern of `*`, `?`, `[...]` and `\`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().skip(1).position(|byte| *byte == b']') else {
                return false;
            };
            let (class, rest) = (&rest[..=end], &rest[end + 2..]);
            match text {
                [first, text @ ..] => is_in(class, *first) && matches(rest, text),
                [] => false,
            }
        }
        [b'\\', escaped, rest @ ..] => text.first() == Some(escaped) && matches(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

fn is_in(class: &[u8], byte: u8) -> bool {
    let (class, wanted) = match class {
        [b'^', class @ ..] => (class, false),
        class => (class, true),
    };
    let mut at = 0;
    while at < class.len() {
        if let Some([first, b'-', last]) = class.get(at..at + 3) {
            if (first.min(last)..=first.max(last)).contains(&&byte) {
                return wanted;
            }
            at += 3;
        } else {
            if class[at] == byte {
                return wanted;
            }
            at += 1;
        }
    }
    !wanted
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
            ("[a", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
