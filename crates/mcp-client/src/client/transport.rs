//! HTTP to one URL, with the person's token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::TokioExecutor;
use weir_http_client::{ForwardProxy, ProxiedConnector};
use weir_wire::header::{EVENTS, JSON, JSON_OR_EVENTS};

use crate::client::challenge_headers::read_challenges;
use crate::client::environment_proxy::environment_proxy;
use crate::client::error::ClientError;
use crate::client::error::HttpRefusal;
use crate::client::{no_mcp, unreachable};

/// The longest wait for a TCP connection.
const CONNECT: Duration = Duration::from_secs(10);
/// As much of the body of a refusal as may have its explanation.
const EXPLANATION: usize = 16 << 10;

/// The connections of a command.
pub(crate) type HttpPool = Pool<HttpsConnector<ProxiedConnector>, Full<Bytes>>;

/// A bearer token that cannot be printed.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// A token as `--token` has it; `None` where no header can carry it.
    pub fn new(text: &str) -> Option<Self> {
        bearer(text).map(Self)
    }
}

/// The whole `Authorization` header of a bearer token; `None` where no header can carry it.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

pub(super) struct Transport {
    pool: HttpPool,
    url: Uri,
    token: Option<Token>,
}

/// An answer's head, and its body still to come.
#[derive(Debug)]
pub(super) struct TransportResponse {
    pub(super) url: Uri,
    pub(super) inner: http::Response<Incoming>,
}

impl Transport {
    pub(super) fn new(url: &str, token: Option<Token>) -> Result<Self, ClientError> {
        let wrong = || ClientError::Url(url.to_owned());
        let url: Uri = url.parse().map_err(|_| wrong())?;
        if !matches!(url.scheme_str(), Some("http" | "https"))
            || url.host().is_none_or(str::is_empty)
        {
            return Err(wrong());
        }
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err(ClientError::UserInfo(url));
        }
        let pool = server_pool(url.scheme_str() == Some("https"));
        let pool = pool.map_err(|why| ClientError::Unreachable {
            url: url.clone(),
            why,
        })?;
        Ok(Self { pool, url, token })
    }

    pub(super) fn url(&self) -> &Uri {
        &self.url
    }

    pub(super) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<TransportResponse, ClientError> {
        let accept = match method {
            Method::GET => EVENTS,
            _ => JSON_OR_EVENTS,
        };
        let mut request = Request::new(Full::new(body));
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        if method == Method::POST {
            request
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        }
        *request.method_mut() = method;
        request
            .headers_mut()
            .insert(header::ACCEPT, HeaderValue::from_static(accept));
        if let Some(Token(token)) = &self.token {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, token.clone());
        }
        let sent = self.pool.request(request).await;
        let inner = sent.map_err(|error| {
            let why = unreachable::explain(&self.url, &error);
            ClientError::Unreachable {
                url: self.url.clone(),
                why,
            }
        })?;
        if matches!(
            inner.status(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            return Err(ClientError::Unauthorized(Box::new(
                self.refusal(inner).await,
            )));
        }
        Ok(TransportResponse {
            url: self.url.clone(),
            inner,
        })
    }
}

impl Transport {
    /// A 401 or 403, with the server's explanation.
    async fn refusal(&self, inner: http::Response<Incoming>) -> HttpRefusal {
        let (head, body) = inner.into_parts();
        let headers = head.headers.get_all(header::WWW_AUTHENTICATE).iter();
        let challenge = read_challenges(headers.filter_map(|value| value.to_str().ok()));
        // An endless or overlong body is no explanation.
        let body = tokio::time::timeout(CONNECT, Limited::new(body, EXPLANATION).collect()).await;
        let body = body
            .ok()
            .and_then(Result::ok)
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let kind = head
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        HttpRefusal {
            url: self.url.clone(),
            status: head.status.as_u16(),
            challenge,
            said: no_mcp::explanation(kind, &body),
            with_token: self.token.is_some(),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({})", self.url)
    }
}

impl TransportResponse {
    /// True for a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        let kind = self.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case(EVENTS)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.inner.status()
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        self.inner
            .headers()
            .get(name)?
            .to_str()
            .ok()
            .map(str::to_owned)
    }
}

/// A connection pool to one of weir's own listeners; for `https` with the machine's trusted roots.
/// No redirect is followed.
///
/// # Errors
/// In words: TLS cannot be set up.
pub fn pool(https: bool) -> Result<HttpPool, String> {
    pool_through(None, https)
}

/// A connection pool to an MCP server or its authorization server: `https` servers are reached
/// through the forward proxy of the environment.
///
/// # Errors
/// In words: TLS cannot be set up, or the environment names an invalid proxy.
pub(crate) fn server_pool(https: bool) -> Result<HttpPool, String> {
    let proxy = if https { environment_proxy()? } else { None };
    pool_through(proxy, https)
}

fn pool_through(proxy: Option<Arc<ForwardProxy>>, https: bool) -> Result<HttpPool, String> {
    let mut roots = rustls::RootCertStore::empty();
    if https {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = ProxiedConnector::new(proxy, CONNECT);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions();
    Ok(Pool::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp)))
}
