//! The HTTP client of one upstream. It knows requests and responses, not messages, tokens or
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, Uri, header};
use weir_core::Budgets;

use super::ConnectionPool;
use super::connector::{https_connector, tcp_connector};
use super::dns::{DnsCache, DnsResolver, SystemLookup};
use super::http_error::UpstreamHttpError;
use super::outgoing_request::{HeaderField, OutgoingRequest};
use super::response_body::HttpResponseBody;
use super::tls::{RootCertificates, TlsError};
use crate::settings::HttpUpstreamSettings;

/// A pooled client for one server, without an account. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    inner: Arc<HttpClientInner>,
    /// True if every request goes on a connection of its own.
    is_without_reuse: bool,
}

#[derive(Debug)]
struct HttpClientInner {
    pool: Arc<ConnectionPool>,
    uri: Uri,
    headers: Vec<HeaderField>,
}

impl HttpClient {
    /// Makes a client for `settings`. Connects with the first request.
    pub(crate) fn new(
        settings: &HttpUpstreamSettings,
        connect: Duration,
        agent: &HeaderValue,
        roots: &RootCertificates,
        budgets: &Budgets,
    ) -> Result<Self, TlsError> {
        let mut headers = vec![(header::USER_AGENT, agent.clone())];
        headers.extend(
            settings
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().clone())),
        );
        let tls = roots.config(settings.ca_file.as_deref())?;
        let tcp = tcp_connector(DnsResolver::new(Arc::new(DnsCache::new(Arc::new(
            SystemLookup,
        )))));
        let lines = ConnectionPool::new(
            https_connector(tcp, tls, connect),
            settings.url.clone(),
            settings.h2c,
            budgets,
        );
        let inner = Arc::new(HttpClientInner {
            pool: lines,
            uri: settings.url.clone(),
            headers,
        });
        Ok(Self {
            inner,
            is_without_reuse: false,
        })
    }

    /// Returns the same client for another URL of the same origin.
    pub(crate) fn with_url(&self, uri: Uri) -> Self {
        let HttpClientInner {
            pool: lines,
            headers,
            ..
        } = &*self.inner;
        let inner = HttpClientInner {
            pool: lines.clone(),
            uri,
            headers: headers.clone(),
        };
        Self {
            inner: Arc::new(inner),
            ..self.clone()
        }
    }

    /// Returns the same client without reuse of HTTP/1.1 connections. On a new connection a
    /// response can only belong to its own request.
    pub(crate) fn without_reuse(&self) -> Self {
        Self {
            is_without_reuse: true,
            ..self.clone()
        }
    }

    /// Returns the server's URL.
    pub(crate) fn url(&self) -> &Uri {
        &self.inner.uri
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body,
    /// cancels the request: the connection is closed (HTTP/1.1) or the stream reset (HTTP/2). The
    /// headers of the protocol, `own`, override those of the config.
    ///
    /// # Errors
    /// The request got no response.
    pub(crate) async fn send(
        &self,
        method: &Method,
        own: &[HeaderField],
        body: &Bytes,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let HttpClientInner {
            pool: lines,
            uri,
            headers,
        } = &*self.inner;
        let ask = OutgoingRequest {
            method,
            uri,
            usual: headers,
            own,
            body,
        };
        if self.is_without_reuse {
            Box::pin(lines.send_on_new_connection(ask)).await
        } else {
            lines.send_request(ask).await
        }
    }
}
