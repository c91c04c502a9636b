//! Tests of TLS towards servers, and of unread requests over HTTP/2.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, date_time_ymd,
    generate_simple_self_signed,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_core::port::{DocumentFetcher as _, FetchRequest, PostEncoding, UrlSource};
use weir_core::upstream::Upstream;
use weir_testkit::accept::listen_on_loopback;
use weir_testkit::h2_server::h2_answer;
use weir_testkit::{ClosedPort, H2Act, H2Plan, H2Server, MockBehaviour, MockServer, TestFolder};
use weir_upstream::{
    CaFile, CertificateFileError, HttpUpstreamSettings, TransportSettings, UpstreamProtocol,
    UpstreamSettings,
};

use crate::fixtures::*;

/// Terminates TLS for names in front of a mock server, and reports the negotiated protocol.
async fn tls(target: SocketAddr, names: &[&str], protocols: &[&[u8]]) -> (SocketAddr, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    (
        tls_with(target, cert.der().clone(), key, protocols).await,
        cert.pem(),
    )
}

/// Terminates TLS with a certificate of its own in front of a mock server.
async fn tls_with(
    target: SocketAddr,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    protocols: &[&[u8]],
) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listen_on_loopback().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut secure) = acceptor.accept(stream).await else {
                    return;
                };
                let mut plain = TcpStream::connect(target).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
            });
        }
    });
    address
}

fn over_tls(url: &str, ca: Option<&str>, name: &str) -> Result<Arc<dyn Upstream>, String> {
    let ca_file = ca.map(|pem| {
        let path = std::env::temp_dir().join(format!("weir-{}-{name}.pem", std::process::id()));
        std::fs::write(&path, pem).unwrap();
        let file = CaFile::read(&path);
        std::fs::remove_file(path).unwrap();
        file.unwrap()
    });
    let http = HttpUpstreamSettings {
        instances: Vec::new(),
        url: url.parse().unwrap(),
        headers: Vec::new(),
        auth: None,
        ca_file,
        h2c: false,
    };
    let settings = UpstreamSettings {
        transport: TransportSettings::Http(http),
        protocol: UpstreamProtocol::Modern,
        ..settings(url)
    };
    factory()
        .build(settings)
        .map_err(|error| format!("{error}"))
}

// Proves E18.
#[tokio::test]
async fn a_certificate_is_trusted_only_where_the_operator_named_its_root_and_for_its_name() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let (address, pem) = tls(mock.address(), &["localhost"], &[b"http/1.1"]).await;
    let by_name = format!("https://localhost:{}/mcp", address.port());
    let by_address = format!("https://127.0.0.1:{}/mcp", address.port());

    let trusted = over_tls(&by_name, Some(&pem), "trusted").unwrap();
    outcome(call_anonymously(&trusted, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    for (upstream, why) in [
        (
            over_tls(&by_name, None, "unknown").unwrap(),
            "an unknown root",
        ),
        (
            over_tls(&by_address, Some(&pem), "name").unwrap(),
            "another name",
        ),
    ] {
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(failure.reason(), "unavailable", "{why}");
        assert!(
            upstream
                .health()
                .last_error
                .unwrap()
                .contains("certificate"),
            "{why}: operators learn the cause"
        );
    }
    assert_eq!(mock.executions("echo"), 1);
}

#[tokio::test]
async fn a_self_signed_certificate_of_openssl_is_trusted_where_it_is_named_and_for_its_name() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let folder = TestFolder::new("openssl");
    let made = || {
        let files = folder.openssl_certificate("DNS:localhost");
        files.map(|file| std::fs::read_to_string(file).unwrap())
    };
    let [pem, key] = made();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let address = tls_with(mock.address(), certificate, key, &[b"http/1.1"]).await;
    let by_name = format!("https://localhost:{}/mcp", address.port());
    let named = over_tls(&by_name, Some(&pem), "own").unwrap();
    outcome(call_anonymously(&named, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    let [other, _] = made();
    let by_address = format!("https://127.0.0.1:{}/mcp", address.port());
    for (upstream, cause) in [
        (over_tls(&by_name, None, "unnamed").unwrap(), "as `ca_file`"),
        (
            over_tls(&by_name, Some(&other), "another").unwrap(),
            "as `ca_file`",
        ),
        (
            over_tls(&by_address, Some(&pem), "its-name").unwrap(),
            "for another name",
        ),
    ] {
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert!(failure.cause().contains(cause), "{}", failure.cause());
    }
    assert_eq!(mock.executions("echo"), 1);
}

#[tokio::test]
async fn an_expired_self_signed_certificate_is_refused_where_it_is_named_too() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let own = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let address = tls_with(
        mock.address(),
        certificate.der().clone(),
        own,
        &[b"http/1.1"],
    )
    .await;
    let url = format!("https://localhost:{}/mcp", address.port());
    let upstream = over_tls(&url, Some(&certificate.pem()), "expired").unwrap();
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert!(
        failure.cause().contains("has expired"),
        "{}",
        failure.cause()
    );
}

#[tokio::test]
async fn document_that_cannot_be_fetched_or_posted_names_its_cause() {
    let mock = MockServer::modern().start().await;
    let (untrusted, _) = tls(mock.address(), &["localhost"], &[b"http/1.1"]).await;
    let closed = ClosedPort::new();
    let at_untrusted = format!("https://localhost:{}/keys", untrusted.port());
    let at_closed = format!("http://{}/keys", closed.address());
    for (url, causes) in [
        (
            at_untrusted.as_str(),
            [
                "UnknownIssuer",
                "name a file with those and that one in SSL_CERT_FILE",
            ],
        ),
        (
            at_closed.as_str(),
            ["cannot be reached", "Connection refused"],
        ),
    ] {
        let fetch = FetchRequest {
            url,
            form: None,
            authorization: None,
            limit: 1024,
            timeout: Duration::from_secs(30),
            url_source: UrlSource::Operator,
        };
        let failure = factory().fetch(fetch).await.unwrap_err();
        for cause in causes {
            assert!(failure.cause().contains(cause), "{}", failure.cause());
        }
    }
    let collector = HttpUpstreamSettings {
        instances: Vec::new(),
        url: at_closed.parse().unwrap(),
        headers: Vec::new(),
        auth: None,
        ca_file: None,
        h2c: false,
    };
    let poster = factory().document_poster(&collector).unwrap();
    let document = "{}".into();
    let posted = poster.post(PostEncoding::Json, document, Duration::from_secs(30));
    let failure = posted.await.unwrap_err();
    for cause in [at_closed.as_str(), "Connection refused"] {
        assert!(failure.cause().contains(cause), "{}", failure.cause());
    }
    assert_eq!(failure.message(), "The collector cannot be reached");
}

#[tokio::test]
async fn http2_is_agreed_on_by_tls() {
    let mock = MockServer::modern()
        .http2()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let (address, pem) = tls(mock.address(), &["localhost"], &[b"h2", b"http/1.1"]).await;
    let upstream = over_tls(
        &format!("https://localhost:{}/mcp", address.port()),
        Some(&pem),
        "h2",
    )
    .unwrap();
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
}

#[test]
fn a_certificate_file_that_is_none_is_an_error() {
    let folder = TestFolder::new("authorities");
    let empty = CaFile::read(&folder.write("ca.pem", "nothing"));
    assert!(
        matches!(empty, Err(CertificateFileError::Empty)),
        "{empty:?}"
    );
    let absent = CaFile::read(Path::new("/nonexistent.pem"));
    assert!(
        matches!(absent, Err(CertificateFileError::Unreadable(_))),
        "{absent:?}"
    );
}

#[tokio::test]
async fn a_request_that_http2_refuses_unread_is_sent_again_twice() {
    let (listener, address) = listen_on_loopback().await;
    let url = format!("http://{address}/mcp");
    let requests = tokio::spawn(refuse_calls(listener));
    let upstream = over_http2(&url, UpstreamProtocol::Auto);
    let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(
        failure.reason(),
        "unavailable",
        "it did not run: {failure:?}"
    );
    drop(upstream);
    assert_eq!(requests.await.unwrap(), 3);
}

/// As by a proxy that ends each connection after some requests.
#[tokio::test]
async fn a_request_on_connections_that_are_being_ended_is_sent_again_until_one_takes_it() {
    let attempts = AtomicUsize::new(0);
    let server = H2Server::start(
        &["t"],
        H2Plan::on_calls(move |request| {
            if attempts.fetch_add(1, Ordering::SeqCst) < 2 {
                let last = request.stream.saturating_sub(2).to_be_bytes();
                let goaway = frame(GOAWAY, 0, 0, &[last, [0; 4]].concat());
                return vec![H2Act::Write(goaway.into()), H2Act::Close];
            }
            let result = json!({ "resultType": "complete", "content": [] });
            let answer = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result });
            vec![h2_answer(request.stream, 200, &answer)]
        }),
    )
    .await;
    let upstream = over_http2(&server.url(), UpstreamProtocol::Modern);
    let reply = call_anonymously(&upstream, "t", json!({})).await;
    outcome(reply).await.end.unwrap();
    assert_eq!(server.calls(), 3);
}

/// An HTTP/2 server, frame by frame: it answers the probe and refuses every later stream. Returns
/// the number of refused streams.
async fn refuse_calls(listener: TcpListener) -> usize {
    const REFUSED_STREAM: u32 = 7;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let (mut probed, mut refused) = (false, 0);
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return refused;
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let answer = match (head[3], head[4]) {
            (HEADERS, _) if !std::mem::replace(&mut probed, true) => probe_answer(id),
            (HEADERS, _) => {
                refused += 1;
                frame(RST_STREAM, 0, id, &REFUSED_STREAM.to_be_bytes())
            }
            (SETTINGS, 0) => frame(SETTINGS, ACK, 0, &[]),
            _ => continue,
        };
        stream.write_all(&answer).await.unwrap();
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn probe_answer(stream: u32) -> Vec<u8> {
    // `:status: 200` from the static table, then a literal name and value.
    let mut head = vec![0x88, 0x00];
    for text in ["content-type", "application/json"] {
        head.push(u8::try_from(text.len()).unwrap());
        head.extend_from_slice(text.as_bytes());
    }
    let result = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string();
    let mut answer = frame(HEADERS, END_HEADERS, stream, &head);
    answer.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    answer
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}
