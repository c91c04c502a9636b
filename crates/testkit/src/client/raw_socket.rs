//! A bare socket, for requests that no HTTP library would send.

use std::io;

use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A TCP connection to an endpoint's host.
#[derive(Debug)]
pub struct RawSocket {
    stream: TcpStream,
    read: Vec<u8>,
}

impl RawSocket {
    /// Connects to the host and port of `url`. Errors if it is not an absolute URL or the
    /// connection is refused.
    pub async fn connect(url: &str) -> io::Result<Self> {
        let url: Uri = url.parse().map_err(io::Error::other)?;
        let authority = url
            .authority()
            .ok_or_else(|| io::Error::other("an absolute URL is needed"))?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: Vec::new(),
        })
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads until `wanted` has come and returns all bytes read since the last call, including
    /// those after it. If the connection ends first, or after 16 MiB, the error has the text that
    /// was read.
    pub async fn read_until(&mut self, wanted: &str) -> io::Result<String> {
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            if text.contains(wanted) {
                self.read.clear();
                return Ok(text);
            }
            if self.read.len() > 16 << 20 || self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::Error::other(format!(
                    "{wanted:?} never came, but: {text:?}"
                )));
            }
        }
    }

    /// The bytes that were read and not returned yet.
    pub fn received(&self) -> &[u8] {
        &self.read
    }

    /// Reads until the other side closes and gives all of it, at most 16 MiB.
    pub async fn read_to_end(mut self) -> io::Result<String> {
        let mut all = self.read;
        (&mut self.stream)
            .take(16 << 20)
            .read_to_end(&mut all)
            .await?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}
