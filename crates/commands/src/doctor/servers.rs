//! Checks of the servers that the config names by URL, over one connection to each: the difference
//! of their clocks, and the validity of their certificates. Unreachable servers are skipped here;
//! the checks of the upstreams report them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use tower::Service as _;
use weir_config::Config;
use weir_policy::settings::{KeySource, TokenValidation};
use weir_text::count;
use weir_upstream::{CaFile, ProxiedConnector, TokenAuthority, TransportSettings};

use crate::doctor::certificate;
use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// The time limit for one server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest clock difference that verifiers of tokens usually tolerate.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

/// A server, by its origin.
struct NamedServer {
    origin: Uri,
    ca_file: Option<CaFile>,
}

/// The observations of one server.
struct ServerSeen {
    origin: String,
    /// Its clock, and this machine's at the same time.
    clocks: Option<(SystemTime, SystemTime)>,
    certificate: Option<MachineFinding>,
}

/// Examines all servers concurrently.
pub(super) async fn examine(config: &Config) -> Vec<MachineFinding> {
    let servers = named(config);
    let tcp = ProxiedConnector::new(config.forward_proxy.clone(), CHECK_TIMEOUT);
    let looks = servers
        .iter()
        .map(|server| tokio::time::timeout(CHECK_TIMEOUT, examine_server(server, tcp.clone())));
    let seen = futures_util::future::join_all(looks).await;
    let seen: Vec<ServerSeen> = seen
        .into_iter()
        .filter_map(|seen| seen.ok().flatten())
        .collect();
    let mut found = clocks(&seen);
    let certificates = seen.into_iter().filter_map(|seen| seen.certificate);
    // Certificates with a long validity are left out; there may be many.
    found.extend(certificates.filter(|found| found.grade != FindingGrade::Good));
    found
}

/// Returns the upstreams, the issuers of tokens with their keys and introspection endpoints, and the
/// authorization servers of upstreams, each origin once.
fn named(config: &Config) -> Vec<NamedServer> {
    let mut all: BTreeMap<String, NamedServer> = BTreeMap::new();
    let mut add = |url: &str, ca_file: Option<&CaFile>| {
        let Some(origin) = url.parse().ok().and_then(|url| origin(&url)) else {
            return;
        };
        all.entry(origin.to_string()).or_insert(NamedServer {
            origin,
            ca_file: ca_file.cloned(),
        });
    };
    for plan in &config.upstreams {
        let TransportSettings::Http(http) = &plan.settings.transport else {
            continue;
        };
        add(&http.url.to_string(), http.ca_file.as_ref());
        for instance in &http.instances {
            add(&instance.url.to_string(), http.ca_file.as_ref());
        }
        match http.auth.as_ref().map(|auth| &auth.authority) {
            Some(TokenAuthority::Issuer(url) | TokenAuthority::TokenEndpoint(url)) => {
                add(url, None)
            }
            Some(TokenAuthority::Provider(_)) | None => {}
        }
    }
    for issuer in &config.auth.issuers {
        add(&issuer.name, None);
        match &issuer.validation {
            TokenValidation::Keys {
                source: KeySource::Url(url),
                ..
            }
            | TokenValidation::Introspection { url, .. } => add(url, None),
            TokenValidation::Keys {
                source: KeySource::Metadata,
                ..
            } => {}
        }
    }
    all.into_values().collect()
}

fn origin(url: &Uri) -> Option<Uri> {
    let (scheme, authority) = (url.scheme_str()?, url.authority()?);
    Uri::builder()
        .scheme(scheme)
        .authority(authority.clone())
        .path_and_query("/")
        .build()
        .ok()
}

/// Requests the head of a server's root page, without credentials.
async fn examine_server(server: &NamedServer, tcp: ProxiedConnector) -> Option<ServerSeen> {
    let NamedServer { origin, ca_file } = server;
    let tls = weir_upstream::client_tls(ca_file.as_ref()).ok()?;
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1();
    let stream = connector
        .wrap_connector(tcp)
        .call(origin.clone())
        .await
        .ok()?;
    let certificate = match &stream {
        MaybeHttpsStream::Https(stream) => stream.inner().get_ref().1.peer_certificates(),
        MaybeHttpsStream::Http(_) => None,
    };
    let what = format!("the certificate of {origin}");
    let certificate = certificate.and_then(|chain| chain.first());
    let certificate =
        certificate.map(|certificate| certificate::times(&what, certificate, SystemTime::now()));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.ok()?;
    let request = Request::head("/")
        .header(header::HOST, origin.authority()?.as_str())
        .body(Empty::<Bytes>::new());
    let exchange = async move {
        let answer = sender.send_request(request.ok()?).await.ok()?;
        httpdate::parse_http_date(answer.headers().get(header::DATE)?.to_str().ok()?).ok()
    };
    // The connection ends with its sender, or before: a response may come with its end.
    let (date, _ended) = tokio::join!(exchange, connection);
    let clocks = date.map(|theirs| (theirs, SystemTime::now()));
    Some(ServerSeen {
        origin: origin.to_string().trim_end_matches('/').to_owned(),
        clocks,
        certificate,
    })
}

/// Compares this machine's clock with those of the servers that sent a `Date`.
fn clocks(seen: &[ServerSeen]) -> Vec<MachineFinding> {
    let mut found: Vec<MachineFinding> = Vec::new();
    let mut agreeing = 0;
    for ServerSeen { origin, clocks, .. } in seen {
        let Some((theirs, ours)) = clocks else {
            continue;
        };
        let (apart, direction) = match ours.duration_since(*theirs) {
            Ok(ahead) => (ahead, "ahead of"),
            Err(behind) => (behind.duration(), "behind"),
        };
        if apart <= MAX_CLOCK_SKEW {
            agreeing += 1;
            continue;
        }
        let text = format!(
            "the clock of this machine is {} s {direction} that of {origin}: the validity of tokens and certificates is checked with it; set it \
             (`timedatectl` shows whether it is synchronized), or tell the operator of that server",
            apart.as_secs()
        );
        found.push(finding(FindingGrade::Warning, text));
    }
    if agreeing > 0 {
        found.push(finding(
            FindingGrade::Good,
            format!(
                "the clock of this machine agrees with that of {}",
                count(agreeing, "server")
            ),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ahead: i64) -> ServerSeen {
        let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let theirs =
            SystemTime::UNIX_EPOCH + Duration::from_secs((1_000_000 - ahead).cast_unsigned());
        ServerSeen {
            origin: "https://a.example".to_owned(),
            clocks: Some((theirs, ours)),
            certificate: None,
        }
    }

    #[test]
    fn a_minute_is_no_difference_and_more_is_one_in_its_direction() {
        let all = [seen(60), seen(-60), seen(61), seen(-3600)];
        let found: Vec<(FindingGrade, String)> = clocks(&all)
            .into_iter()
            .map(|found| (found.grade, found.text))
            .collect();
        assert!(
            found[0].0 == FindingGrade::Warning
                && found[0]
                    .1
                    .contains("61 s ahead of that of https://a.example"),
            "{found:?}"
        );
        assert!(
            found[1].0 == FindingGrade::Warning && found[1].1.contains("3600 s behind that of"),
            "{found:?}"
        );
        assert_eq!(
            found[2],
            (
                FindingGrade::Good,
                "the clock of this machine agrees with that of 2 servers".to_owned()
            )
        );
    }

    #[test]
    fn servers_of_keys_and_introspection_are_examined() {
        let config = super::super::tests::config(
            "{ upstreams: {}, auth: { mode: oauth, issuers: [ \
             { issuer: \"https://a.example\", jwks_uri: \"https://keys.example/a\" }, \
             { issuer: \"https://b.example\", introspection: { url: \"https://ask.example/b\", client_id: c, client_secret: kept-between-us } } ] } }",
        );
        let found: Vec<_> = named(&config)
            .iter()
            .map(|server| server.origin.to_string())
            .collect();
        let hosts = ["a", "ask", "b", "keys"];
        assert_eq!(found, hosts.map(|host| format!("https://{host}.example/")));
    }

    #[test]
    fn a_server_without_a_clock_is_not_judged() {
        let silent = ServerSeen {
            clocks: None,
            ..seen(0)
        };
        assert!(clocks(&[silent]).is_empty());
    }
}
