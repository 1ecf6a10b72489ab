//! The table: what is known of each lock, and its lines.

use std::collections::HashMap;
use std::time::Instant;

use lockdog::report::{LockInfo, Ttl};

use crate::describe;
use crate::duration;
use crate::ls::aligned;
use crate::output::clean;
use crate::watch::Seen;

/// The locks of the last scan, and what earlier scans showed.
#[derive(Default)]
pub(super) struct LockTable {
    rows: Vec<LockInfo>,
    known: HashMap<String, Known>,
    pub(super) order: Order,
    /// Only keys with this text are shown.
    pub(super) filter: String,
    selected: usize,
}

/// What earlier scans showed of a hold.
struct Known {
    field: String,
    since: Instant,
    renewed: Option<Instant>,
    last: Seen,
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Order {
    #[default]
    Key,
    /// The most listeners.
    Listeners,
    /// The shortest TTL.
    Ttl,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Key => Self::Ttl,
            Self::Ttl => Self::Listeners,
            Self::Listeners => Self::Key,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Ttl => "ttl",
            Self::Listeners => "listeners",
        }
    }
}

impl LockTable {
    /// Takes the locks of a new scan, which began at `asked`.
    pub(super) fn update(&mut self, rows: Vec<LockInfo>, asked: Instant) {
        let mut known = HashMap::new();
        for row in &rows {
            let Some(holder) = row.holders.first() else {
                continue;
            };
            let last = Seen::new(row, asked);
            let now = Instant::now();
            let before = self.known.remove(&row.key);
            let before = before.filter(|before| before.field == holder.field());
            let renewed = match &before {
                Some(before) if last.is_renewed_since(&before.last) => Some(now),
                Some(before) => before.renewed,
                None => None,
            };
            let of_key = Known {
                field: holder.field().to_owned(),
                since: before.map_or(now, |before| before.since),
                renewed,
                last,
            };
            known.insert(row.key.clone(), of_key);
        }
        self.known = known;
        self.rows = rows;
    }

    /// The rows that the filter leaves, in their order.
    pub(super) fn rows(&self) -> Vec<&LockInfo> {
        let is_shown = |row: &&LockInfo| row.key.contains(&self.filter);
        let mut rows: Vec<&LockInfo> = self.rows.iter().filter(is_shown).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        match self.order {
            Order::Key => {}
            Order::Listeners => rows.sort_by_key(|row| std::cmp::Reverse(row.listeners)),
            Order::Ttl => rows.sort_by_key(|row| match row.ttl {
                Some(Ttl::Expires(ttl)) => (0, ttl.as_millis()),
                _ => (1, 0),
            }),
        }
        rows
    }

    pub(super) fn selected(&self) -> Option<&LockInfo> {
        let rows = self.rows();
        rows.get(self.selected.min(rows.len().saturating_sub(1)))
            .copied()
    }

    pub(super) fn move_by(&mut self, rows: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.selected = self
            .selected
            .min(last)
            .saturating_add_signed(rows)
            .min(last);
    }

    /// The table as text. With a height: only this number of lines, and a mark at the selected row.
    pub(super) fn lines(&self, height: Option<usize>) -> Vec<String> {
        let rows = self.rows();
        let selected = self.selected.min(rows.len().saturating_sub(1));
        // The first line has the titles.
        let visible = height.map_or(rows.len(), |height| height.saturating_sub(1));
        let first = (selected + 1).saturating_sub(visible);
        let mut cells = vec![TITLES.map(str::to_owned).to_vec()];
        let shown = rows.iter().enumerate().skip(first).take(visible);
        cells.extend(shown.map(|(index, row)| {
            let mark = match (height, index == selected) {
                (None, _) => "",
                (Some(_), true) => "> ",
                (Some(_), false) => "  ",
            };
            self.cells(row, mark)
        }));
        aligned(&cells)
    }

    fn cells(&self, row: &LockInfo, mark: &str) -> Vec<String> {
        let first = row.holders.first();
        let ago = |moment: Instant| duration::shown(moment.elapsed());
        let known = self.known.get(&row.key);
        let owner = match row.holders.len() {
            0 | 1 => first.map_or_else(|| "-".to_owned(), |holder| clean(holder.owner())),
            more => format!("{more} holders"),
        };
        vec![
            format!("{mark}{}", clean(&row.key)),
            first.map_or("-", describe::by).to_owned(),
            owner,
            first.map_or_else(|| "-".to_owned(), |holder| holder.count.to_string()),
            describe::ttl(row.ttl),
            known
                .and_then(|it| it.renewed)
                .map_or_else(|| "-".to_owned(), |it| format!("{} ago", ago(it))),
            // Redis does not keep when a lock was acquired.
            known.map_or_else(|| "-".to_owned(), |it| format!("≥ {}", ago(it.since))),
            row.listeners
                .map_or_else(|| "?".to_owned(), |count| count.to_string()),
        ]
    }
}

const TITLES: [&str; 8] = [
    "KEY",
    "BY",
    "OWNER",
    "COUNT",
    "TTL",
    "RENEWED",
    "SINCE",
    "LISTENERS",
];
