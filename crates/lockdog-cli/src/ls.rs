//! `lockdog ls`: the locks on the servers.

use lockdog::report::{LockInfo, lock_hash};
use lockdog::request::Locks;
use lockdog::{Client, Error};

use crate::args::Ls;
use crate::connect::{Settings, without_passwords};
use crate::describe;
use crate::failed::{CANNOT, Failed, NO, YES, is_forbidden};
use crate::output::{Output, Paint, clean, complain};

pub(crate) async fn ls(args: &Ls, settings: &Settings, output: Output) -> Result<u8, Failed> {
    let mut rows = Vec::new();
    let mut has_failed = false;
    for (client, place) in settings.connect().await?.iter().zip(0_usize..) {
        match locks(client, args, rows.len()).await {
            Ok(found) => rows.extend(found),
            // The others are shown.
            Err(failed) if settings.is_quorum() => {
                let server = settings.urls().get(place).map(String::as_str);
                let server = without_passwords(server.into_iter());
                complain(format_args!("{server}: {}", failed.text));
                has_failed = true;
            }
            Err(failed) => return Err(failed),
        }
    }
    rows.sort_by(|a: &LockInfo, b| (&a.key, &a.server).cmp(&(&b.key, &b.server)));
    if output.json {
        for row in &rows {
            output.object(describe::object(row, &[]));
        }
    } else if !rows.is_empty() {
        for line in table(&rows, output) {
            output.line(line);
        }
    }
    if rows.len() as u64 >= args.limit {
        output.note(format_args!(
            "there may be more than {} locks: see --limit",
            args.limit
        ));
    }
    if has_failed {
        return Ok(CANNOT);
    }
    if rows.is_empty() {
        output.note("no locks");
        return Ok(NO);
    }
    Ok(YES)
}

async fn locks(client: &Client, args: &Ls, before: usize) -> Result<Vec<LockInfo>, Failed> {
    let mut locks = client.locks(&args.pattern).pause(args.pause);
    if args.all {
        locks = locks.with_semaphores().with_counters();
    }
    let left = args.limit.saturating_sub(before as u64);
    all(locks, args.max_keys, left, args.hash.as_deref()).await
}

/// At most this number of the locks, or of those with this hash. Fails if the servers would have to read more keys
/// than the user allows.
pub(crate) async fn all(
    locks: Locks,
    max_keys: u64,
    limit: u64,
    hash: Option<&str>,
) -> Result<Vec<LockInfo>, Failed> {
    let is_wanted = |lock: &LockInfo| {
        hash.is_none_or(|hash| lock_hash(&lock.key).eq_ignore_ascii_case(hash.trim()))
    };
    let mut locks = locks.max_keys(max_keys);
    let mut found = Vec::new();
    while (found.len() as u64) < limit {
        match locks.next().await.map_err(refused)? {
            Some(lock) if is_wanted(&lock) => found.push(lock),
            Some(_) => {}
            None if locks.is_done() => break,
            None => {
                return Err(Failed::new(format_args!(
                    "the scan was stopped after {max_keys} keys; narrow the pattern or raise --max-keys"
                )));
            }
        }
    }
    Ok(found)
}

/// A missing permission with the line that grants it. The doctor checks what a lock needs, and no scan.
fn refused(error: Error) -> Failed {
    if !is_forbidden(&error) {
        return error.into();
    }
    Failed::new(format_args!(
        "{error}; a scan needs `ACL SETUSER <user> +scan +hscan`, and all keys of the pattern"
    ))
}

/// One line for each lock, below a line of titles.
pub(crate) fn table(rows: &[LockInfo], output: Output) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = vec![TITLES.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(self::cells));
    let mut lines = aligned(&cells);
    lines[0] = output.paint(Paint::Bold, &lines[0]);
    lines
}

fn cells(row: &LockInfo) -> Vec<String> {
    let first = row.holders.first();
    let by = first.map_or("-", describe::by);
    let owner = match (first, row.holders.len()) {
        (Some(holder), 1) => clean(holder.field()),
        (Some(_), more) => format!("{more} holders"),
        (None, _) => "-".to_owned(),
    };
    let count = match (row.permits, first) {
        (Some(free), _) => format!("{free} free"),
        (None, Some(holder)) => holder.count.to_string(),
        (None, None) => "-".to_owned(),
    };
    let listeners = row
        .listeners
        .map_or_else(|| "?".to_owned(), |count| count.to_string());
    vec![
        clean(&row.key),
        describe::kind(row),
        by.to_owned(),
        owner,
        count,
        describe::ttl(row.ttl),
        lock_hash(&row.key),
        listeners,
    ]
}

/// The cells of each row, each column as wide as its widest cell. A cell that is too wide moves only its own row.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(length).filter(|width| *width <= WIDEST);
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let text: String = cells
            .map(|(cell, width)| {
                // Not by the width of a format, which has 16 bits.
                let rest = width.saturating_sub(length(cell));
                format!("{cell}{}  ", " ".repeat(rest))
            })
            .collect();
        text.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Other programs may write keys and fields of any length.
const WIDEST: usize = 512;

const TITLES: [&str; 8] = [
    "KEY",
    "KIND",
    "BY",
    "OWNER",
    "COUNT",
    "TTL",
    "HASH",
    "LISTENERS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["KEY", "TTL"]), row(["größer", "3 s"]), row(["a", "-"])];
        assert_eq!(aligned(&rows), ["KEY     TTL", "größer  3 s", "a       -"]);
    }

    #[test]
    fn a_cell_of_any_length_widens_no_other_row() {
        let long = "k".repeat(100_000);
        let rows = [["KEY", "TTL"], [long.as_str(), "3 s"], ["orders", "-"]];
        let rows = rows.map(|cells| cells.map(str::to_owned).to_vec());
        let lines = aligned(&rows);
        assert_eq!(lines[0], "KEY     TTL");
        assert_eq!(lines[1], format!("{long}  3 s"));
        assert_eq!(lines[2], "orders  -");
    }
}
