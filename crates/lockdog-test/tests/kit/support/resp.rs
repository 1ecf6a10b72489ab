//! A blocking connection that shows replies as they are on the wire.

use std::io::{BufRead, BufReader, Read, Write};

/// A reply of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Array(Vec<Self>),
    Bulk(String),
    Double(String),
    Error(String),
    Int(i64),
    /// The keys and values, one after the other.
    Map(Vec<Self>),
    Nil,
    NilArray,
    Null,
    Push(Vec<Self>),
    Set(Vec<Self>),
    Status(String),
    /// With its format.
    Text(String),
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
            "$" => Value::Bulk(self.text(number())),
            "=" => Value::Text(self.text(number())),
            "*" if number() < 0 => Value::NilArray,
            "*" => Value::Array(self.items(number())),
            "~" => Value::Set(self.items(number())),
            ">" => Value::Push(self.items(number())),
            "%" => Value::Map(self.items(2 * number())),
            "," => Value::Double(rest.to_owned()),
            "_" => Value::Null,
            other => panic!("{other:?} begins no reply"),
        }
    }

    fn items(&mut self, count: i64) -> Vec<Value> {
        (0..count).map(|_| self.read()).collect()
    }

    fn text(&mut self, length: i64) -> String {
        let mut bytes = vec![0; length as usize + 2];
        let read = self.stream.read_exact(&mut bytes);
        read.expect("the text follows");
        bytes.truncate(bytes.len() - 2);
        String::from_utf8_lossy(&bytes).into_owned()
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
