//! A connection to Redis that runs one command after another: RESP2, blocking.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The most time for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A reply of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespValue {
    /// No value.
    Null,
    /// A status such as `OK`, or a string. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// A number.
    Integer(i64),
    /// An error reply.
    Error(String),
    /// Several values.
    Array(Vec<RespValue>),
}

impl RespValue {
    /// The value as text; the empty text for an array or no value.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Null | Self::Array(_) => String::new(),
        }
    }

    /// The texts of an array; none for any other value.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Array(values) => values.iter().map(Self::text).collect(),
            Self::Null | Self::Text(_) | Self::Integer(_) | Self::Error(_) => Vec::new(),
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct RespConnection(BufReader<TcpStream>);

impl RespConnection {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Runs a command and reads its reply.
    pub(super) fn run(&mut self, words: &[&str]) -> io::Result<RespValue> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(command.as_bytes())?;
        self.read_value()
    }

    fn read_value(&mut self) -> io::Result<RespValue> {
        let line = self.read_line()?;
        let mut chars = line.chars();
        let (kind, rest) = (chars.next(), chars.as_str());
        match kind {
            Some('+') => Ok(RespValue::Text(rest.to_owned())),
            Some('-') => Ok(RespValue::Error(rest.to_owned())),
            Some(':') => Ok(RespValue::Integer(number(rest)?)),
            Some('$') => match usize::try_from(number(rest)?) {
                Ok(length) => self.read_text(length),
                Err(_) => Ok(RespValue::Null),
            },
            Some('*') => match usize::try_from(number(rest)?) {
                Ok(length) => (0..length)
                    .map(|_| self.read_value())
                    .collect::<io::Result<_>>()
                    .map(RespValue::Array),
                Err(_) => Ok(RespValue::Null),
            },
            _ => Err(io::Error::other(format!("not a reply: {line}"))),
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn read_text(&mut self, length: usize) -> io::Result<RespValue> {
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(RespValue::Text(
            String::from_utf8_lossy(&bytes).into_owned(),
        ))
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(io::Error::other)
}
