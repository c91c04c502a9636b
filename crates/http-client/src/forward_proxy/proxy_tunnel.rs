//! A connection to a server through the forward proxy.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderValue, StatusCode, Uri, header};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::ServiceExt as _;
use weir_http1::{ResponseHead, read_response_head};

use crate::connector::ConnectError;
use crate::dns::DnsResolver;
use crate::forward_proxy::proxy_settings::{ForwardProxy, port_of};

/// The most bytes of the proxy's answer to `CONNECT`.
const MAX_ANSWER_BYTES: usize = 8 << 10;
/// The bytes of an answer that are looked at once: usually all of it.
const READ_SIZE: usize = 1 << 10;

/// The connector through a proxy.
#[derive(Clone)]
pub(super) struct ProxyTunnel {
    proxy: Arc<ForwardProxy>,
    /// Connects to the proxy itself.
    tcp: HttpConnector<DnsResolver>,
    within: Duration,
}

impl ProxyTunnel {
    /// `within` is the time for a connection to the proxy and for its answer, together.
    pub(super) fn new(
        proxy: Arc<ForwardProxy>,
        tcp: HttpConnector<DnsResolver>,
        within: Duration,
    ) -> Self {
        Self { proxy, tcp, within }
    }

    pub(super) fn takes(&self, server: &Uri) -> bool {
        self.proxy.takes(server)
    }

    /// Connects to the host and port of `server`. The time begins now, not with the first poll: it
    /// ends before that of the whole connection, so that the error names the proxy.
    pub(super) fn connect(
        self,
        server: &Uri,
    ) -> impl Future<Output = Result<TokioIo<TcpStream>, ConnectError>> + Send + use<> {
        let host = server.host().unwrap_or_default();
        let target = format!("{host}:{}", port_of(server));
        let failed = {
            let (proxy, target) = (self.proxy.clone(), target.clone());
            move |fault| ProxyError {
                proxy,
                target,
                fault,
            }
        };
        let opened = timeout(self.within, async move {
            let proxied = self.tcp.oneshot(self.proxy.uri().clone()).await;
            let mut stream = proxied
                .map_err(|error| ProxyFault::Unreached(error.into()))?
                .into_inner();
            let request = connect_request(&target, &self.proxy);
            stream.write_all(&request).await.map_err(ProxyFault::Lost)?;
            let answer = read_answer(&mut stream).await?;
            if !answer.status.is_success() {
                return Err(ProxyFault::refused(&answer));
            }
            Ok(TokioIo::new(stream))
        });
        async move {
            let opened = opened.await.unwrap_or(Err(ProxyFault::TimedOut));
            opened.map_err(|fault| failed(fault).into())
        }
    }
}

impl fmt::Debug for ProxyTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyTunnel({})", self.proxy)
    }
}

fn connect_request(target: &str, proxy: &ForwardProxy) -> Vec<u8> {
    let mut out = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
    if let Some(authorization) = proxy.authorization() {
        out.extend_from_slice(b"proxy-authorization: ");
        out.extend_from_slice(authorization.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Reads the proxy's answer and no byte after it: the first bytes of the server may be in the same
/// packet, and the caller reads them from the socket.
async fn read_answer(stream: &mut TcpStream) -> Result<ResponseHead, ProxyFault> {
    let mut seen = [0; READ_SIZE];
    let (mut unread, mut interim, mut total) = (BytesMut::new(), 0, 0);
    while total < MAX_ANSWER_BYTES {
        let count = stream.peek(&mut seen).await.map_err(ProxyFault::Lost)?;
        if count == 0 {
            return Err(ProxyFault::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        unread.extend_from_slice(&seen[..count]);
        let head = read_response_head(&mut unread, &mut interim)
            .map_err(|malformed| ProxyFault::Malformed(malformed.0))?;
        let beyond = if head.is_some() { unread.len() } else { 0 };
        let taken = &mut seen[..count.saturating_sub(beyond)];
        stream.read_exact(taken).await.map_err(ProxyFault::Lost)?;
        if let Some(head) = head {
            return Ok(head);
        }
        total += count;
    }
    Err(ProxyFault::Malformed("its head is too long"))
}

/// The error of a connection through the proxy.
#[derive(Debug)]
pub(crate) struct ProxyError {
    proxy: Arc<ForwardProxy>,
    /// The host and the port of the server.
    target: String,
    fault: ProxyFault,
}

/// The kind of an error.
#[derive(Debug)]
enum ProxyFault {
    /// There is no connection to the proxy.
    Unreached(ConnectError),
    /// The proxy did not answer in time.
    TimedOut,
    /// The connection to the proxy ended before its answer.
    Lost(io::Error),
    /// The answer is not HTTP.
    Malformed(&'static str),
    /// The proxy opens no tunnel.
    Refused {
        status: StatusCode,
        /// True if the proxy offers the one kind of authentication that weir has.
        offers_basic: bool,
    },
}

impl ProxyFault {
    fn refused(answer: &ResponseHead) -> Self {
        let offered = answer.headers.get_all(header::PROXY_AUTHENTICATE);
        let is_basic = |value: &HeaderValue| {
            let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
            // A field may have several challenges; the scheme begins one.
            text.split(',')
                .any(|part| part.split_whitespace().next() == Some("basic"))
        };
        Self::Refused {
            status: answer.status,
            offers_basic: offered.iter().any(is_basic),
        }
    }
}

impl ProxyError {
    /// Returns the advice for an operator.
    pub(crate) fn advice(&self) -> &'static str {
        let (status, offers_basic) = match self.fault {
            ProxyFault::Unreached(_) | ProxyFault::TimedOut | ProxyFault::Lost(_) => {
                return "check `forward_proxy` and the proxy, or add the server to its `bypass`";
            }
            ProxyFault::Malformed(_) => {
                return "that is not a forward proxy: correct the host and the port of `forward_proxy`";
            }
            ProxyFault::Refused {
                status,
                offers_basic,
            } => (status, offers_basic),
        };
        match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED if !offers_basic => {
                "the proxy does not offer the scheme Basic, the only one of weir: let it admit this machine without credentials"
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED if self.proxy.authorization().is_some() => {
                "correct the user and the password in the URL of `forward_proxy`"
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                "write the proxy's user and password into the URL of `forward_proxy`"
            }
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                "the proxy does not reach the server: correct the server's URL, or add an inner server to `forward_proxy.bypass`"
            }
            _ => {
                "let the proxy permit CONNECT to this host and port, or add the server to `forward_proxy.bypass`"
            }
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            proxy,
            target,
            fault,
        } = self;
        write!(f, "the forward proxy {proxy} ")?;
        match fault {
            ProxyFault::Unreached(_) => f.write_str("cannot be reached"),
            ProxyFault::TimedOut => write!(f, "opened no tunnel to {target} in time"),
            ProxyFault::Lost(_) => f.write_str("closed the connection before its answer"),
            ProxyFault::Malformed(why) => {
                write!(f, "gave an answer that is not valid HTTP: {why}")
            }
            ProxyFault::Refused { status, .. } => {
                write!(
                    f,
                    "refused a tunnel to {target} with HTTP {}",
                    status.as_u16()
                )
            }
        }
    }
}

impl Error for ProxyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            ProxyFault::Unreached(error) => Some(&**error),
            ProxyFault::Lost(error) => Some(error),
            ProxyFault::TimedOut | ProxyFault::Malformed(_) | ProxyFault::Refused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
