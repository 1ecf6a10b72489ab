//! Just enough of RESP2 and RESP3 to find where a request or a reply ends and what it begins with.

/// Splits one complete request off the front: its length in bytes and its arguments.
/// `None` means that more bytes are needed.
pub(crate) fn request(buffer: &[u8]) -> Option<(usize, Vec<String>)> {
    let (head, mut at) = line(buffer, 0)?;
    let Some(count) = head.strip_prefix(b"*") else {
        let args = text(head).split_whitespace().map(str::to_owned).collect();
        return Some((at, args));
    };
    let mut args = Vec::new();
    for _ in 0..number(count) {
        let (size, start) = line(buffer, at)?;
        let size =
            usize::try_from(number(size.strip_prefix(b"$")?)).expect("arguments are never null");
        args.push(text(buffer.get(start..start + size)?));
        at = start + size + 2;
    }
    (at <= buffer.len()).then_some((at, args))
}

/// Encodes a request as clients do.
pub(crate) fn encode(args: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len());
    for arg in args {
        bytes += &format!("${}\r\n{arg}\r\n", arg.len());
    }
    bytes.into_bytes()
}

/// One complete reply at the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) length: usize,
    /// The byte that names the type, such as `+` or `*`; of the value itself when attributes
    /// precede it.
    pub(crate) kind: u8,
    /// Every plain value inside, in order, however deeply nested.
    pub(crate) texts: Vec<String>,
}

impl Reply {
    /// Splits one complete reply off the front; `None` means that more bytes are needed.
    pub(crate) fn parse(buffer: &[u8]) -> Option<Self> {
        let mut texts = Vec::new();
        let (length, kind) = value(buffer, 0, &mut texts)?;
        Some(Self {
            length,
            kind,
            texts,
        })
    }
}

fn value(buffer: &[u8], at: usize, texts: &mut Vec<String>) -> Option<(usize, u8)> {
    let (head, mut at) = line(buffer, at)?;
    let (&kind, rest) = head.split_first()?;
    let elements = match kind {
        b'$' | b'!' | b'=' => {
            if let Ok(size) = usize::try_from(number(rest)) {
                texts.push(text(buffer.get(at..at + size)?));
                at += size + 2;
            }
            0
        }
        b'*' | b'~' | b'>' => number(rest).max(0),
        b'%' => 2 * number(rest),
        b'|' => {
            let mut attributes = Vec::new();
            for _ in 0..2 * number(rest) {
                (at, _) = value(buffer, at, &mut attributes)?;
            }
            return value(buffer, at, texts);
        }
        _ => {
            texts.push(text(rest));
            0
        }
    };
    for _ in 0..elements {
        (at, _) = value(buffer, at, texts)?;
    }
    (at <= buffer.len()).then_some((at, kind))
}

/// The line that starts at `at`, without its end, and where the next one starts.
fn line(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(at..)?;
    let length = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

fn number(digits: &[u8]) -> i64 {
    text(digits)
        .parse()
        .unwrap_or_else(|_| panic!("{:?} is no RESP length", text(digits)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
