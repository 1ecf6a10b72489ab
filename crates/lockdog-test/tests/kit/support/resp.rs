//! A blocking connection that shows replies as they are on the wire.

use std::io::{BufRead, BufReader, Read, Write};

/// A reply of RESP2.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Array(Vec<Self>),
    Bulk(String),
    Error(String),
    Int(i64),
    Nil,
    NilArray,
    Status(String),
}

pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
}

impl Connection {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: BufReader::new(Box::new(stream)),
        }
    }

    pub(crate) fn send(&mut self, args: &[impl AsRef<[u8]>]) -> Value {
        self.write(args);
        self.read()
    }

    pub(crate) fn write(&mut self, args: &[impl AsRef<[u8]>]) {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            bytes.extend(format!("${}\r\n", arg.len()).bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        let stream = self.stream.get_mut();
        stream.write_all(&bytes).expect("the server reads");
    }

    pub(crate) fn read(&mut self) -> Value {
        let mut line = Vec::new();
        self.stream
            .read_until(b'\n', &mut line)
            .expect("the server answers");
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches("\r\n");
        assert!(!line.is_empty(), "the server closed the connection");
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("a number follows");
        match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()),
            "$" if number() < 0 => Value::Nil,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.stream
                    .read_exact(&mut bytes)
                    .expect("the text follows");
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" if number() < 0 => Value::NilArray,
            "*" => Value::Array((0..number()).map(|_| self.read()).collect()),
            other => panic!("{other:?} begins no reply of RESP2"),
        }
    }
}

impl Value {
    pub(crate) fn items(self) -> Vec<Self> {
        match self {
            Self::Array(items) => items,
            other => panic!("{other:?} is no list"),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Bulk(text) | Self::Status(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }
}
