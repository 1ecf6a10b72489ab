//! The server's replies, in both versions of the protocol.

use std::borrow::Cow;

/// An error line without its leading `-`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal(pub(crate) Cow<'static, str>);

pub(crate) type CommandResult = Result<Reply, Refusal>;

/// One reply, or what a connection writes instead of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Array(Vec<Self>),
    Bulk(Vec<u8>),
    Double(f64),
    /// Inside an array only; a whole command fails with a [`Refusal`].
    Error(String),
    Int(i64),
    /// Pairs; a flat array in RESP2.
    Map(Vec<(Self, Self)>),
    Nil,
    /// The null array, which RESP2 distinguishes from the null string.
    NilArray,
    /// A push that the client did not request; an array in RESP2.
    Push(Vec<Self>),
    /// Members of a sorted set with their scores: pairs in RESP3, one list in RESP2.
    Scored(Vec<(Vec<u8>, f64)>),
    /// Unordered; an array in RESP2.
    Set(Vec<Self>),
    /// Several replies to one command: SUBSCRIBE sends one for each channel.
    Several(Vec<Self>),
    Status(Cow<'static, str>),
    /// Human-readable text; a string in RESP2.
    Text(String),
}

impl Refusal {
    pub(crate) fn new(line: impl Into<Cow<'static, str>>) -> Self {
        Self(line.into())
    }

    pub(crate) fn wrong_type() -> Self {
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn not_an_integer() -> Self {
        Self::new("ERR value is not an integer or out of range")
    }

    pub(crate) fn syntax() -> Self {
        Self::new("ERR syntax error")
    }

    pub(crate) fn arguments(command: &str) -> Self {
        let command = command.to_lowercase();
        Self::new(format!(
            "ERR wrong number of arguments for '{command}' command"
        ))
    }
}

impl Reply {
    pub(crate) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(crate) fn bulks<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::bulk).collect())
    }

    /// Encodes it for the protocol.
    pub(crate) fn write(&self, is_resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Array(items) => list(b'*', items, is_resp3, out),
            Self::Push(items) => list(if is_resp3 { b'>' } else { b'*' }, items, is_resp3, out),
            Self::Set(items) => list(if is_resp3 { b'~' } else { b'*' }, items, is_resp3, out),
            Self::Several(replies) => replies.iter().for_each(|reply| reply.write(is_resp3, out)),
            Self::Map(pairs) => {
                match is_resp3 {
                    true => line(b'%', pairs.len(), out),
                    false => line(b'*', 2 * pairs.len(), out),
                }
                for (key, value) in pairs {
                    key.write(is_resp3, out);
                    value.write(is_resp3, out);
                }
            }
            Self::Scored(pairs) => {
                let per_pair = if is_resp3 { 1 } else { 2 };
                line(b'*', pairs.len() * per_pair, out);
                for (member, score) in pairs {
                    if is_resp3 {
                        line(b'*', 2, out);
                    }
                    bulk(member, out);
                    Self::Double(*score).write(is_resp3, out);
                }
            }
            Self::Bulk(bytes) => bulk(bytes, out),
            Self::Text(text) if is_resp3 => {
                line(b'=', text.len() + 4, out);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Text(text) => bulk(text.as_bytes(), out),
            Self::Double(number) if is_resp3 => line(b',', double(*number), out),
            Self::Double(number) => bulk(double(*number).as_bytes(), out),
            Self::Error(text) => line(b'-', text, out),
            Self::Int(number) => line(b':', number, out),
            Self::Status(text) => line(b'+', text, out),
            Self::Nil | Self::NilArray if is_resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
        }
    }
}

fn list(kind: u8, items: &[Reply], is_resp3: bool, out: &mut Vec<u8>) {
    line(kind, items.len(), out);
    for item in items {
        item.write(is_resp3, out);
    }
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    line(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn line(kind: u8, content: impl ToString, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(content.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A floating point number as C's `%.17g` formats it; Redis 7.0 does the same.
pub(crate) fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.is_nan() {
        return "nan".to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or_default();
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let digits = exponent.unsigned_abs();
    format!("{}e{sign}{digits:02}", without_zeros(mantissa))
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_in_c() {
        for (number, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000001"),
            (-3.0, "-3"),
            (1_700_000_000_000.0, "1700000000000"),
            (1_700_000_000_000_000.0, "1700000000000000"),
            (1e17, "1e+17"),
            (1.7e300, "1.7000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.000_01, "1.0000000000000001e-05"),
        ] {
            assert_eq!(double(number), text);
        }
    }

    #[test]
    fn values_that_resp2_lacks_are_written_as_resp2_types() {
        let written = |reply: Reply, is_resp3| {
            let mut out = Vec::new();
            reply.write(is_resp3, &mut out);
            String::from_utf8(out).expect("it is text")
        };
        let map = Reply::Map(vec![(Reply::bulk("f"), Reply::Int(1))]);
        assert_eq!(written(map.clone(), false), "*2\r\n$1\r\nf\r\n:1\r\n");
        assert_eq!(written(map, true), "%1\r\n$1\r\nf\r\n:1\r\n");
        assert_eq!(written(Reply::Nil, true), "_\r\n");
        assert_eq!(
            written(Reply::Text("a".to_owned()), true),
            "=5\r\ntxt:a\r\n"
        );
        assert_eq!(written(Reply::Double(0.5), false), "$3\r\n0.5\r\n");
        let scored = Reply::Scored(vec![(b"a".to_vec(), 1.0)]);
        assert_eq!(
            written(scored.clone(), false),
            "*2\r\n$1\r\na\r\n$1\r\n1\r\n"
        );
        assert_eq!(written(scored, true), "*1\r\n*2\r\n$1\r\na\r\n,1\r\n");
    }
}
