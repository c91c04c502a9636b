//! TLS: both HTTP versions by ALPN, certificates replaced during operation, and handshakes that
//! never finish.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_front::settings::ListenerTlsFiles;
use weir_testkit::TestFolder;

use crate::test_front::{TestFront, settings};

/// A certificate and its key in a folder.
pub(crate) struct CertificateFiles {
    pub(crate) tls: ListenerTlsFiles,
    _folder: TestFolder,
}

impl CertificateFiles {
    pub(crate) fn new(name: &str) -> Self {
        let folder = TestFolder::new(name);
        let tls = ListenerTlsFiles {
            cert: folder.file("cert.pem"),
            key: folder.file("key.pem"),
            clients: None,
        };
        Self {
            tls,
            _folder: folder,
        }
    }

    /// Writes a new certificate for `localhost`.
    pub(crate) fn write(&self) -> CertificateDer<'static> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&self.tls.cert, cert.pem()).unwrap();
        std::fs::write(&self.tls.key, signing_key.serialize_pem()).unwrap();
        cert.der().clone()
    }
}

async fn connect(
    world: &TestFront,
    root: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(world.front.local_addr()).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

/// Asks for the list of tools over an open connection.
pub(crate) async fn list(
    world: &TestFront,
    stream: TlsStream<TcpStream>,
) -> (http::Version, Value) {
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (headers, message) = world.client().modern().envelope("tools/list", json!({}));
    let body = Full::new(bytes::Bytes::from(message.to_string()));
    let uri = if h2 { "https://localhost/mcp" } else { "/mcp" };
    let mut request = http::Request::post(uri).body(body).unwrap();
    *request.headers_mut() = headers;
    let io = hyper_util::rt::TokioIo::new(stream);
    let response = if h2 {
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
            .await
            .unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        request
            .headers_mut()
            .insert("host", "localhost".parse().unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    assert_eq!(response.status(), StatusCode::OK);
    let version = response.version();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (version, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn both_versions_are_served_by_alpn() {
    let files = CertificateFiles::new("alpn");
    let root = files.write();
    let mut settings = settings();
    settings.tls = Some(files.tls.clone());
    let world = TestFront::anonymous(settings).await;
    let table: [(&[&[u8]], http::Version); 4] = [
        (&[b"h2", b"http/1.1"], http::Version::HTTP_2),
        (&[b"h2"], http::Version::HTTP_2),
        (&[b"http/1.1"], http::Version::HTTP_11),
        (&[], http::Version::HTTP_11),
    ];
    for (protocols, version) in table {
        let stream = connect(&world, &root, protocols).await.unwrap();
        let (seen, answer) = list(&world, stream).await;
        assert_eq!(seen, version, "{protocols:?}");
        assert_eq!(
            answer["result"]["tools"].as_array().unwrap().len(),
            4,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn reload_applies_new_certificates_and_ignores_broken_ones() {
    let files = CertificateFiles::new("reload");
    let old = files.write();
    let mut settings = settings();
    settings.tls = Some(files.tls.clone());
    let world = TestFront::anonymous(settings.clone()).await;
    let kept = connect(&world, &old, &[b"http/1.1"]).await.unwrap();
    std::fs::write(&files.tls.key, "no key at all").unwrap();
    let error = world
        .front
        .reload(settings.clone())
        .unwrap_err()
        .to_string();
    assert!(error.contains("key.pem"), "{error}");
    connect(&world, &old, &[]).await.unwrap();
    let new = files.write();
    world.front.reload(settings).unwrap();
    connect(&world, &new, &[]).await.unwrap();
    assert!(
        connect(&world, &old, &[]).await.is_err(),
        "the old certificate is not shown any more"
    );
    // An open connection goes on.
    assert_eq!(
        list(&world, kept).await.1["result"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

// Proves A15.
#[tokio::test]
async fn garbage_and_stalled_handshakes_are_closed_and_others_served() {
    let files = CertificateFiles::new("garbage");
    let root = files.write();
    let mut settings = settings();
    settings.tls = Some(files.tls.clone());
    // The last, good handshake has to end in this time as well.
    settings.limits.listener.handshake_time = Duration::from_secs(3);
    settings.limits.listener.handshakes = 1;
    let world = TestFront::anonymous(settings).await;
    let garbage: [&[u8]; 5] = [
        b"POST /mcp HTTP/1.1\r\n\r\n",
        &[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0; 4096],
        &[0x16, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff],
    ];
    for sent in garbage {
        let mut stream = TcpStream::connect(world.front.local_addr()).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let mut rest = Vec::new();
        // Closed or reset: either way it ends by itself.
        drop(stream.read_to_end(&mut rest).await);
        assert!(!rest.starts_with(b"HTTP/"), "no clear text comes back");
    }
    let stream = connect(&world, &root, &[]).await.unwrap();
    list(&world, stream).await;
}

/// A front with few handshakes at a time, each of which may take longer than any test.
async fn front_of_few_handshakes(files: &CertificateFiles) -> TestFront {
    let mut settings = settings();
    settings.tls = Some(files.tls.clone());
    settings.limits.listener.handshake_time = Duration::from_secs(3600);
    settings.limits.listener.handshakes = 16;
    TestFront::anonymous(settings).await
}

// Proves A15.
#[tokio::test]
async fn silent_connections_of_an_address_take_no_handshake_from_it() {
    let files = CertificateFiles::new("same-address");
    let root = files.write();
    let world = front_of_few_handshakes(&files).await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(TcpStream::connect(world.front.local_addr()).await.unwrap());
    }
    let connecting = connect(&world, &root, &[]);
    let connected = tokio::time::timeout(Duration::from_secs(30), connecting).await;
    list(&world, connected.expect("a handshake").unwrap()).await;
    drop(silent);
}

// Proves A15.
#[tokio::test]
async fn stalled_handshakes_of_a_few_addresses_do_not_block_others() {
    let files = CertificateFiles::new("silent");
    let root = files.write();
    let world = front_of_few_handshakes(&files).await;
    let mut stalled = Vec::new();
    for number in 0..32 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let own = format!("127.0.0.{}:0", 2 + number % 2);
        socket.bind(own.parse().unwrap()).unwrap();
        let mut stream = socket.connect(world.front.local_addr()).await.unwrap();
        // Half of them are silent, the others begin a handshake.
        if number < 16 {
            stream.write_all(&[0x16, 3, 1]).await.unwrap();
        }
        stalled.push(stream);
    }
    let stream = connect(&world, &root, &[]).await.unwrap();
    list(&world, stream).await;
    drop(stalled);
}
