//! The connections of a client: one for each request, or a pool.

use std::{fmt, io};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::header_text::insert;
use crate::owned_task::OwnedTask;

/// A pool of connections, like that of an ordinary client. A request is sent again on another
/// connection if its first one was closed, or refused the request, before reading it.
#[derive(Clone, Debug)]
pub(super) struct KeptConnections(Client<HttpConnector, Full<Bytes>>);

impl KeptConnections {
    pub(super) fn new(http2: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(
            Client::builder(TokioExecutor::new())
                .http2_only(http2)
                .build(connector),
        )
    }

    /// Sends the request and waits for the head of the answer.
    pub(super) async fn exchange(
        &self,
        url: &Uri,
        mut request: Request<Full<Bytes>>,
    ) -> io::Result<Response<Incoming>> {
        *request.uri_mut() = url.clone();
        self.0.request(request).await.map_err(io::Error::other)
    }
}

/// The protocols below the requests of a client.
#[derive(Clone, Default)]
pub(super) struct ConnectionProtocols {
    /// HTTP/2 with prior knowledge instead of HTTP/1.1.
    pub(super) http2: bool,
    /// TLS with a server whose certificate is for `localhost`.
    pub(super) tls: Option<TlsConnector>,
}

impl fmt::Debug for ConnectionProtocols {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectionProtocols")
            .field("http2", &self.http2)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// Connects, sends and waits for the head of the answer. The connection lives as long as its task.
pub(super) async fn exchange(
    url: &Uri,
    protocols: &ConnectionProtocols,
    request: Request<Full<Bytes>>,
) -> io::Result<(Response<Incoming>, OwnedTask)> {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    match &protocols.tls {
        None => Box::pin(exchange_over(stream, url, protocols.http2, request)).await,
        Some(tls) => {
            let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
            let stream = Box::pin(tls.connect(name, stream)).await?;
            Box::pin(exchange_over(stream, url, protocols.http2, request)).await
        }
    }
}

async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &Uri,
    http2: bool,
    mut request: Request<Full<Bytes>>,
) -> io::Result<(Response<Incoming>, OwnedTask)> {
    if http2 {
        *request.uri_mut() = url.clone();
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
        let owned = OwnedTask::spawn(async { drop(connection.await) });
        return Ok((
            sender
                .send_request(request)
                .await
                .map_err(io::Error::other)?,
            owned,
        ));
    }
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(io::Error::other)?;
    if !request.headers().contains_key(header::HOST) {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        insert(request.headers_mut(), "host", authority);
    }
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    let owned = OwnedTask::spawn(async { drop(connection.await) });
    Ok((
        sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?,
        owned,
    ))
}
