//! Commands as received from a client.

/// Takes the next complete command off the front of `input`. `Ok(None)`: more bytes are needed.
///
/// # Errors
///
/// The error line if the bytes are not a command. The connection must be closed then.
pub(crate) fn take(input: &mut Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
    let Some(&first) = input.first() else {
        return Ok(None);
    };
    let taken = if first == b'*' {
        array(input)?
    } else {
        inline(input)?
    };
    Ok(taken.map(|(args, used)| {
        input.drain(..used);
        args
    }))
}

type Taken = Option<(Vec<Vec<u8>>, usize)>;

fn array(input: &[u8]) -> Result<Taken, &'static str> {
    let Some((count, mut at)) = number(input, 1)? else {
        return Ok(None);
    };
    let count = count.max(0) as usize;
    if count > MOST_ARGUMENTS {
        return Err("ERR Protocol error: invalid multibulk length");
    }
    let mut args = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err("ERR Protocol error: expected '$'"),
        }
        let Some((length, start)) = number(input, at + 1)? else {
            return Ok(None);
        };
        let Some(length) = usize::try_from(length).ok().filter(|it| *it <= LONGEST) else {
            return Err("ERR Protocol error: invalid bulk length");
        };
        let Some(bytes) = input.get(start..start + length + 2) else {
            return Ok(None);
        };
        args.push(bytes[..length].to_vec());
        at = start + length + 2;
    }
    Ok(Some((args, at)))
}

/// An inline command: words separated by spaces, without quotes.
fn inline(input: &[u8]) -> Result<Taken, &'static str> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return match input.len() > LONGEST_LINE {
            true => Err("ERR Protocol error: too big inline request"),
            false => Ok(None),
        };
    };
    let words = input[..end].split(u8::is_ascii_whitespace);
    let words = words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
    Ok(Some((words.collect(), end + 1)))
}

/// The number in the line that begins at `from`, and the start of the next line.
fn number(input: &[u8], from: usize) -> Result<Option<(i64, usize)>, &'static str> {
    let rest = &input[from.min(input.len())..];
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        return match rest.len() > LONGEST_LINE {
            true => Err("ERR Protocol error: too big count"),
            false => Ok(None),
        };
    };
    if rest.len() < end + 2 {
        return Ok(None);
    }
    let number = str::from_utf8(&rest[..end])
        .ok()
        .and_then(|it| it.parse().ok());
    let number = number.ok_or("ERR Protocol error: invalid multibulk length")?;
    Ok(Some((number, from + end + 2)))
}

const LONGEST: usize = 512 * 1024 * 1024;
const LONGEST_LINE: usize = 64 * 1024;
const MOST_ARGUMENTS: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_when_it_is_complete() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n";
        for cut in 0..whole.len() {
            let mut input = whole[..cut].to_vec();
            let mut taken = Vec::new();
            for rest in [&whole[cut..], b""] {
                while let Some(args) = take(&mut input).expect("it is a command") {
                    taken.push(args);
                }
                input.extend_from_slice(rest);
            }
            let expected = [vec![b"GET".to_vec(), b"k".to_vec()], vec![b"PING".to_vec()]];
            assert_eq!(taken, expected, "cut at {cut}");
            assert!(input.is_empty());
        }
    }

    #[test]
    fn a_malformed_command_is_an_error() {
        for bytes in ["*1\r\n:1\r\n", "*x\r\n", "*1\r\n$-5\r\n"] {
            assert!(take(&mut bytes.as_bytes().to_vec()).is_err(), "{bytes}");
        }
    }
}
