//! The keys that the user presses.

use std::io::{self, Read};
use std::thread;

use tokio::sync::mpsc;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Key {
    Char(char),
    Backspace,
    Down,
    Enter,
    Escape,
    Interrupt,
    Up,
    /// One that means nothing here.
    Other,
}

/// A thread reads them, because a read of a terminal blocks. It ends with the process.
pub(super) struct Keys(mpsc::UnboundedReceiver<Key>);

impl Keys {
    pub(super) fn read() -> Self {
        let (sender, keys) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut bytes = [0; 64];
            let mut stdin = io::stdin().lock();
            while let Ok(count @ 1..) = stdin.read(&mut bytes) {
                for key in parse(&bytes[..count]) {
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            }
        });
        Self(keys)
    }

    /// The next key; `None` if the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Key> {
        self.0.recv().await
    }
}

/// What arrives together is one key, or text that was pasted.
fn parse(bytes: &[u8]) -> Vec<Key> {
    match bytes {
        b"\x1b[A" | b"\x1bOA" => return vec![Key::Up],
        b"\x1b[B" | b"\x1bOB" => return vec![Key::Down],
        b"\x1b" => return vec![Key::Escape],
        [0x1b, ..] => return vec![Key::Other],
        _ => {}
    }
    let text = String::from_utf8_lossy(bytes);
    let key = |char| match char {
        '\r' | '\n' => Key::Enter,
        '\x7f' | '\x08' => Key::Backspace,
        '\x03' => Key::Interrupt,
        char if char.is_control() => Key::Other,
        char => Key::Char(char),
    };
    text.chars().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        assert_eq!(parse(b"q"), [Key::Char('q')]);
        assert_eq!(parse(b"\x1b[A"), [Key::Up]);
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b[15~"), [Key::Other]);
        assert_eq!(
            parse(b"a\r\x7f\x03"),
            [Key::Char('a'), Key::Enter, Key::Backspace, Key::Interrupt]
        );
        assert_eq!(parse("ö".as_bytes()), [Key::Char('ö')]);
    }
}
