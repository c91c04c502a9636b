//! The fetcher of documents and tokens for parts that may not open sockets. It has two clients: one
//! for URLs of the operator, and a guarded one for URLs of outsiders. Answers are bounded in bytes
//! and time. Redirects are not followed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::ResponseFuture;
use weir_core::port::{BoxFuture, DocumentFetcher, FetchRequest, FetchResponse, UrlSource};
use weir_core::upstream::CallDeadlines;
use weir_core::{Failure, FailureKind};

use crate::advice::with_trust_advice;
use crate::connector::tcp_connector;
use crate::dns::SystemLookup;
use crate::document_client::{PooledClient, pooled_client};
use crate::forward_proxy::{ForwardProxy, ProxiedConnector};
use crate::guard;
use crate::guard::guarded_connector::{CheckedLookup, GuardedConnector};
use crate::tls::{RootCertificates, TlsError};

const FORM_TYPE: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON_TYPE: HeaderValue = HeaderValue::from_static("application/json");

/// The fetcher.
pub struct Fetcher {
    agent: HeaderValue,
    clients: Result<FetchClients, TlsError>,
}

struct FetchClients {
    operator: PooledClient<ProxiedConnector>,
    outsider: PooledClient<GuardedConnector>,
}

impl Fetcher {
    /// Makes a fetcher that trusts `roots` and has `agent` as its user agent. Connects with the
    /// first request, through the forward proxy if there is one.
    pub fn new(
        agent: HeaderValue,
        roots: &RootCertificates,
        proxy: Option<Arc<ForwardProxy>>,
    ) -> Self {
        let connect = CallDeadlines::LIST.connect;
        let clients = roots.config(None).map(|tls| FetchClients {
            operator: pooled_client(
                ProxiedConnector::new(proxy.clone(), connect),
                tls.clone(),
                connect,
            ),
            outsider: pooled_client(
                GuardedConnector::new(CheckedLookup::public(Arc::new(SystemLookup)), |checked| {
                    ProxiedConnector::around(tcp_connector(checked, connect), proxy, connect)
                }),
                tls,
                connect,
            ),
        });
        Self { agent, clients }
    }

    async fn fetch_document(&self, fetch: FetchRequest<'_>) -> Result<FetchResponse, Failure> {
        let response = self.send(&fetch)?.await;
        let response = response.map_err(|error| {
            unavailable("The document's server cannot be reached").because(with_trust_advice(error))
        })?;
        let (status, max_age) = (response.status().as_u16(), max_age(response.headers()));
        match Limited::new(response.into_body(), fetch.limit)
            .collect()
            .await
        {
            Ok(body) => Ok(FetchResponse {
                status,
                max_age,
                body: body.to_bytes(),
            }),
            Err(error) => Err(Failure::new(
                FailureKind::BadAnswer,
                "The document is too large or broke off",
            )
            .because(error)),
        }
    }

    fn send(&self, fetch: &FetchRequest<'_>) -> Result<ResponseFuture, Failure> {
        let no_tls = |error: &TlsError| {
            unavailable("The document cannot be fetched").because(error.to_string())
        };
        let clients = self.clients.as_ref().map_err(no_tls)?;
        match fetch.url_source {
            UrlSource::Operator => Ok(clients.operator.request(self.request(fetch, fetch.url)?)),
            UrlSource::Outsider => {
                let refused = |why| unavailable("The document's URL is not opened").because(why);
                let url = guard::check_url(fetch.url).map_err(refused)?;
                Ok(clients.outsider.request(self.request(fetch, &url)?))
            }
        }
    }

    fn request(
        &self,
        fetch: &FetchRequest<'_>,
        url: &str,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = match fetch.form {
            None => Request::new(Full::default()),
            Some(form) => {
                let mut request =
                    Request::new(Full::from(Bytes::copy_from_slice(form.expose().as_bytes())));
                *request.method_mut() = Method::POST;
                request
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, FORM_TYPE);
                request
            }
        };
        *request.uri_mut() = url
            .parse::<Uri>()
            .ok()
            .filter(|url| {
                matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
            })
            .ok_or_else(|| unavailable("The document's URL is not valid"))?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, self.agent.clone());
        headers.insert(header::ACCEPT, JSON_TYPE);
        if let Some(authorization) = fetch.authorization {
            let mut value = HeaderValue::try_from(authorization.expose())
                .map_err(|_| unavailable("The credentials are no header value"))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }
}

impl DocumentFetcher for Fetcher {
    fn fetch<'a>(
        &'a self,
        fetch: FetchRequest<'a>,
    ) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        Box::pin(async move {
            match tokio::time::timeout(fetch.timeout, self.fetch_document(fetch)).await {
                Ok(document) => document,
                Err(_) => Err(Failure::new(
                    FailureKind::TimedOut,
                    "The document did not come in time",
                )),
            }
        })
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

fn unavailable(text: &'static str) -> Failure {
    Failure::new(FailureKind::Unavailable, text)
}

/// Returns `max-age` of `Cache-Control`; zero if the answer must not be kept at all (RFC 9111,
/// 5.2.2).
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers
        .get_all(header::CACHE_CONTROL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let directives: Vec<&str> = values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    if directives
        .iter()
        .any(|word| word.eq_ignore_ascii_case("no-store") || word.eq_ignore_ascii_case("no-cache"))
    {
        return Some(Duration::ZERO);
    }
    let (_, seconds) = directives
        .iter()
        .filter_map(|word| word.split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("max-age"))?;
    seconds
        .trim_matches('"')
        .parse()
        .ok()
        .map(Duration::from_secs)
}
