//! `lockdog top`: a table of the locks that refreshes itself.

mod keys;
mod screen;
mod table;

use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use lockdog::Client;
use lockdog::report::LockInfo;
use rustix::process::Signal;

use crate::args::Top;
use crate::connect::Settings;
use crate::describe;
use crate::failed::{Failed, YES};
use crate::inspect;
use crate::ls;
use crate::output::{Output, clean};
use crate::release;
use crate::run::{Signals, number};
use keys::{Key, Keys};
use screen::Screen;
use table::LockTable;

pub(crate) async fn top(args: &Top, settings: &Settings, output: Output) -> Result<u8, Failed> {
    if settings.is_quorum() {
        return Err(Failed::new("it shows one server; give one --url"));
    }
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.once && !is_terminal {
        return Err(Failed::new(
            "it needs a terminal; --once prints the table once",
        ));
    }
    let client = settings.connect().await?.remove(0);
    let mut table = LockTable::default();
    let (rows, asked) = look(&client, args).await?;
    table.update(rows, asked);
    if args.once {
        if output.json {
            for row in table.rows() {
                output.object(describe::object(row, &[]));
            }
        } else {
            for line in table.lines(None) {
                output.line(line);
            }
        }
        return Ok(YES);
    }
    let mut signals = Signals::of_command()?;
    let mut shown = Shown {
        screen: Screen::open()?,
        table,
        mode: Mode::Table,
        is_paused: false,
        message: String::new(),
    };
    let mut keys = Keys::read();
    let mut next = Instant::now() + args.interval;
    // A scan may take long, so it runs beside the keys and the signals.
    let mut scan = None;
    loop {
        shown.draw(args)?;
        let pause = next.saturating_duration_since(Instant::now());
        tokio::select! {
            key = keys.next() => match key {
                Some(key) if shown.press(key, &client).await => {}
                _ => return Ok(YES),
            },
            signal = signals.next() => match signal {
                Signal::WINCH | Signal::CONT => {}
                ended_by => return Err(Failed::signalled(number(ended_by))),
            },
            () = tokio::time::sleep(pause), if scan.is_none() && !shown.is_paused => {
                scan = Some(Box::pin(look(&client, args)));
            }
            scanned = finished(&mut scan) => {
                // A server that does not answer now may answer later.
                match scanned {
                    Ok((rows, asked)) => {
                        shown.table.update(rows, asked);
                        shown.message.clear();
                    }
                    Err(failed) => shown.message = failed.text,
                }
                scan = None;
                next = Instant::now() + args.interval.max(SHORTEST);
            }
        }
        if shown.is_paused {
            // The table stays as it is. The next scan begins immediately after the pause.
            scan = None;
        }
    }
}

/// The output of the future, as long as there is one. A future that is done must be removed.
async fn finished<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// The locks, and when the scan for them began.
async fn look(client: &Client, args: &Top) -> Result<(Vec<LockInfo>, Instant), Failed> {
    let asked = Instant::now();
    let rows = ls::all(client.locks(&args.pattern), args.max_keys, u64::MAX, None).await?;
    Ok((rows, asked))
}

/// What is on the screen.
struct Shown {
    screen: Screen,
    table: LockTable,
    mode: Mode,
    is_paused: bool,
    message: String,
}

enum Mode {
    Table,
    /// The details of one lock.
    Detail(Vec<String>),
    /// A part of the keys that the table shows.
    Filter,
    /// The name of the lock that is to be released, as far as it was typed.
    Release {
        lock: Box<LockInfo>,
        typed: String,
    },
}

impl Shown {
    /// Returns false if the user wants to leave.
    async fn press(&mut self, key: Key, client: &Client) -> bool {
        if key == Key::Interrupt {
            return false;
        }
        match &mut self.mode {
            Mode::Table => return self.press_in_table(key, client).await,
            Mode::Detail(_) => self.mode = Mode::Table,
            Mode::Filter => {
                let filter = &mut self.table.filter;
                match edited(filter, key) {
                    Typing::Going => {}
                    Typing::Done => self.mode = Mode::Table,
                    Typing::Left => {
                        filter.clear();
                        self.mode = Mode::Table;
                    }
                }
            }
            Mode::Release { lock, typed } => match edited(typed, key) {
                Typing::Going => {}
                Typing::Left => self.mode = Mode::Table,
                Typing::Done => {
                    self.message = match *typed == lock.key {
                        true => released(client, lock).await,
                        false => "nothing was released".to_owned(),
                    };
                    self.mode = Mode::Table;
                }
            },
        }
        true
    }

    async fn press_in_table(&mut self, key: Key, client: &Client) -> bool {
        match key {
            Key::Char('q') => return false,
            Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char('s') => self.table.order = self.table.order.next(),
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Up | Key::Char('k') => self.table.move_by(-1),
            Key::Down | Key::Char('j') => self.table.move_by(1),
            Key::Enter => {
                if let Some(name) = self.table.selected().map(|lock| lock.key.clone()) {
                    match details(client, &name).await {
                        Ok(lines) => self.mode = Mode::Detail(lines),
                        Err(failed) => self.message = failed.text,
                    }
                }
            }
            Key::Char('r') => self.ask_for_release(),
            _ => {}
        }
        true
    }

    fn ask_for_release(&mut self) {
        let Some(lock) = self.table.selected() else {
            return;
        };
        match (release::check_kind(lock), lock.holders.len()) {
            (Err(failed), _) => self.message = failed.text,
            (Ok(()), 1) => {
                self.mode = Mode::Release {
                    lock: Box::new(lock.clone()),
                    typed: String::new(),
                };
            }
            (Ok(()), _) => {
                self.message = "use `lockdog release --holder`: it has several holders".to_owned();
            }
        }
    }

    fn draw(&mut self, args: &Top) -> Result<(), Failed> {
        let (columns, rows) = self.screen.size();
        let mut lines = match &self.mode {
            Mode::Detail(lines) => lines.clone(),
            _ => self.table.lines(Some(rows.saturating_sub(2))),
        };
        lines.truncate(rows.saturating_sub(2));
        lines.resize(rows.saturating_sub(2), String::new());
        lines.push(clean(&self.message));
        lines.push(match &self.mode {
            Mode::Table => {
                let state = if self.is_paused { ", paused" } else { "" };
                format!(
                    "{} locks like {}{state}  q quit  p pause  / filter  s order: {}  Enter inspect  r release",
                    self.table.rows().len(), args.pattern, self.table.order.name()
                )
            }
            Mode::Detail(_) => "any key: back".to_owned(),
            Mode::Filter => format!("filter: {}", clean(&self.table.filter)),
            Mode::Release { lock, typed } => {
                let holder = lock.holders.first().map(describe::short).unwrap_or_default();
                let (name, typed) = (clean(&lock.key), clean(typed));
                format!("type {name} to take it away from {holder}: {typed}")
            }
        });
        self.screen.show(&lines, columns)
    }
}

async fn details(client: &Client, name: &str) -> Result<Vec<String>, Failed> {
    let info = client.inspect(name).await?;
    let connections = inspect::connections(client, &info).await?;
    let mut lines = vec![clean(&info.key)];
    lines.extend(describe::lines(&info, connections.as_deref()));
    Ok(lines)
}

/// Releases the lock of the only holder that was shown. Returns the message to show.
async fn released(client: &Client, lock: &LockInfo) -> String {
    let Some(holder) = lock.holders.first() else {
        return "it is free".to_owned();
    };
    match release::free(client, &lock.key, holder).await {
        Ok(true) => format!("released; {}", release::consequence(holder)),
        Ok(false) => "not released: another holder has it now, or none".to_owned(),
        Err(failed) => failed.text,
    }
}

/// What became of a line that the user types.
enum Typing {
    Going,
    Done,
    Left,
}

fn edited(line: &mut String, key: Key) -> Typing {
    match key {
        Key::Enter => return Typing::Done,
        Key::Escape => return Typing::Left,
        Key::Backspace => drop(line.pop()),
        Key::Char(char) => line.push(char),
        Key::Up | Key::Down | Key::Interrupt | Key::Other => {}
    }
    Typing::Going
}

const SHORTEST: Duration = Duration::from_millis(100);
