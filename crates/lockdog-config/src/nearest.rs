//! The known word that a reader may have meant.

/// The nearest of the known words, if it is near enough to be a mistake in typing.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let most = 1 + word.chars().count() / 4;
    let near = known.into_iter().map(|it| (distance(word, it), it));
    let near = near.filter(|(distance, _)| *distance <= most);
    near.min_by_key(|(distance, _)| *distance).map(|(_, it)| it)
}

/// How many characters to insert, remove, replace, or swap with their neighbours; case does not count.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| -> Vec<char> { text.to_lowercase().chars().collect() };
    let (a, b) = (fold(a), fold(b));
    let mut rows = [
        vec![0; b.len() + 1],
        (0..=b.len()).collect(),
        vec![0; b.len() + 1],
    ];
    for i in 1..=a.len() {
        rows[2][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

/// Longer than each key; a longer word is none that was meant.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_mistake_has_its_nearest() {
        let known = ["lockWatchdogTimeout", "database", "username", "timeout"];
        for (word, expected) in [
            ("lockWatchDogTimeout", Some("lockWatchdogTimeout")),
            ("lock_watchdog_timeout", Some("lockWatchdogTimeout")),
            ("databse", Some("database")),
            ("databaes", Some("database")),
            ("usernam", Some("username")),
            ("Timeout", Some("timeout")),
            ("retries", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
