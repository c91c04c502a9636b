//! The HTTP client of one upstream. It knows requests and responses, not messages, tokens or
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, Uri, header};
use weir_core::Budgets;

use crate::connection_pool::ConnectionPool;
use crate::connector::{https_connector, tcp_connector};
use crate::dns::{DnsCache, DnsResolver, SystemLookup};
use crate::forward_proxy::{ForwardProxy, ProxiedConnector};
use crate::http_error::UpstreamHttpError;
use crate::response_body::HttpResponseBody;
use crate::tls::{CaFile, RootCertificates, TlsError};
use weir_http1::{Destination, HeaderField, OutgoingRequest};

/// A server of the config.
#[derive(Debug)]
pub struct HttpServer<'a> {
    /// The server's URL: `http` or `https`, with a host.
    pub url: Uri,
    /// The operator's headers on every request.
    pub headers: Vec<HeaderField>,
    /// Further root certificates for this server.
    pub ca_file: Option<&'a CaFile>,
    /// HTTP/2 without TLS and without negotiation ("prior knowledge"); for `http` URLs.
    pub h2c: bool,
    /// The forward proxy of connections to the server.
    pub forward_proxy: Option<Arc<ForwardProxy>>,
}

/// A pooled client for one server, without an account. Clones share the connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    inner: Arc<HttpClientInner>,
    /// True if every request goes on a connection of its own.
    is_without_reuse: bool,
}

#[derive(Debug)]
struct HttpClientInner {
    pool: Arc<ConnectionPool>,
    to: Destination,
}

impl HttpClient {
    /// Makes a client for `server`. Connects with the first request.
    ///
    /// # Errors
    /// The certificates make no usable verifier.
    pub fn new(
        server: HttpServer<'_>,
        connect: Duration,
        agent: &HeaderValue,
        roots: &RootCertificates,
        budgets: &Budgets,
    ) -> Result<Self, TlsError> {
        let mut headers = vec![(header::USER_AGENT, agent.clone())];
        headers.extend(server.headers);
        // Without this field any coding is acceptable (RFC 9110, 12.5.3), and weir decodes none.
        headers.retain(|(name, _)| name != header::ACCEPT_ENCODING);
        headers.push((
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        ));
        let tls = roots.config(server.ca_file)?;
        let names = DnsCache::new(Arc::new(SystemLookup));
        let tcp = tcp_connector(DnsResolver::new(Arc::new(names)), connect);
        let pool = ConnectionPool::new(
            https_connector(
                ProxiedConnector::around(tcp, server.forward_proxy, connect),
                tls,
                connect,
            ),
            server.url.clone(),
            server.h2c,
            budgets,
        );
        let inner = Arc::new(HttpClientInner {
            pool,
            to: Destination::new(server.url, headers),
        });
        Ok(Self {
            inner,
            is_without_reuse: false,
        })
    }

    /// Returns the same client for another URL of the same origin.
    pub fn with_url(&self, uri: Uri) -> Self {
        let inner = HttpClientInner {
            pool: self.inner.pool.clone(),
            to: self.inner.to.with_uri(uri),
        };
        Self {
            inner: Arc::new(inner),
            ..self.clone()
        }
    }

    /// Returns the same client without reuse of HTTP/1.1 connections. On a new connection a
    /// response can only belong to its own request.
    pub fn without_reuse(&self) -> Self {
        Self {
            is_without_reuse: true,
            ..self.clone()
        }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> &Uri {
        self.inner.to.uri()
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body,
    /// cancels the request: the connection is closed (HTTP/1.1) or the stream reset (HTTP/2). The
    /// headers of the protocol, `own`, override those of the config.
    ///
    /// # Errors
    /// The request got no response.
    pub async fn send(
        &self,
        method: &Method,
        own: &[HeaderField],
        body: &Bytes,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let HttpClientInner { pool, to } = &*self.inner;
        let request = OutgoingRequest {
            method,
            to,
            own,
            body,
        };
        if self.is_without_reuse {
            Box::pin(pool.send_on_new_connection(request)).await
        } else {
            pool.send_request(request).await
        }
    }
}
