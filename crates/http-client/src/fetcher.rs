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
use rustls::ClientConfig;
use weir_core::port::{BoxFuture, DocumentFetcher, FetchRequest, FetchResponse, UrlSource};
use weir_core::upstream::CallDeadlines;
use weir_core::{Failure, FailureKind};

use crate::advice::with_trust_advice;
use crate::connector::tcp_connector;
use crate::dns::{AddressLookup, SystemLookup};
use crate::document_client::{PooledClient, pooled_client};
use crate::forward_proxy::{ForwardProxy, ProxiedConnector};
use crate::guard;
use crate::guard::guarded_connector::{CheckedLookup, GuardedConnector, connection_time};
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

impl FetchClients {
    /// Makes the clients. `names` resolves the names of outsiders.
    fn new(
        tls: ClientConfig,
        names: Arc<dyn AddressLookup>,
        proxy: Option<Arc<ForwardProxy>>,
    ) -> Self {
        let connect = CallDeadlines::LIST.connect;
        let outsider_connect = connection_time(connect, proxy.is_some());
        Self {
            operator: pooled_client(
                ProxiedConnector::new(proxy.clone(), connect),
                tls.clone(),
                connect,
            ),
            outsider: pooled_client(
                GuardedConnector::new(CheckedLookup::public(names), |checked| {
                    ProxiedConnector::around(tcp_connector(checked, connect), proxy, connect)
                }),
                tls,
                outsider_connect,
            ),
        }
    }
}

impl Fetcher {
    /// Makes a fetcher that trusts `roots` and has `agent` as its user agent. Connects with the
    /// first request, through the forward proxy if there is one.
    pub fn new(
        agent: HeaderValue,
        roots: &RootCertificates,
        proxy: Option<Arc<ForwardProxy>>,
    ) -> Self {
        let clients = roots
            .config(None)
            .map(|tls| FetchClients::new(tls, Arc::new(SystemLookup), proxy));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::io::{self, Write as _};
    use std::net::{IpAddr, TcpListener, TcpStream};

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

    use super::*;
    use crate::forward_proxy::ProxyBypass;

    /// A resolver that never answers.
    struct SilentNames;

    impl AddressLookup for SilentNames {
        fn addresses(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }

    /// Reads a head from a stream.
    fn read_head(stream: &mut impl io::Read) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// Opens one tunnel, and is the server behind it; returns the first line of the request for the
    /// tunnel.
    fn serve_tunnel(mut stream: TcpStream, tls: ServerConfig) -> String {
        let head = read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let server = ServerConnection::new(Arc::new(tls)).unwrap();
        let mut server = StreamOwned::new(server, stream);
        read_head(&mut server);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        server.write_all(answer).unwrap();
        head.lines().next().unwrap_or_default().to_owned()
    }

    /// Makes the TLS configs of a server with this name and of a client that trusts it.
    fn tls_of(name: &str) -> (ServerConfig, ClientConfig) {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, client)
    }

    #[tokio::test]
    async fn outsider_is_fetched_through_the_proxy_though_no_resolver_answers() {
        let (server, client) = tls_of("keys.example.com");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let proxy = ForwardProxy::new(&url, ProxyBypass::default()).unwrap();
        let tunnel = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve_tunnel(stream, server)
        });
        let clients = FetchClients::new(client, Arc::new(SilentNames), Some(Arc::new(proxy)));
        let fetcher = Fetcher {
            agent: HeaderValue::from_static("weir"),
            clients: Ok(clients),
        };
        let fetched = fetcher.fetch(FetchRequest {
            url: "https://keys.example.com/jwks",
            form: None,
            authorization: None,
            limit: 1024,
            timeout: Duration::from_secs(30),
            url_source: UrlSource::Outsider,
        });
        let fetched = fetched.await.map_err(|failure| failure.cause()).unwrap();
        assert_eq!((fetched.status, &*fetched.body), (200, &b"{}"[..]));
        let connect = tunnel.join().unwrap();
        assert_eq!(connect, "CONNECT keys.example.com:443 HTTP/1.1");
    }
}
