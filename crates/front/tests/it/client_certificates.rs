//! Client certificates: asked for, checked against their authority, and handed to the verifier.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_front::settings::ClientCertificates;

use crate::test_front::{TestFront, settings};
use crate::tls_handshakes::{CertificateFiles, list};

/// An authority that issues certificates.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A client's certificate and its key.
type ClientCredential = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl TestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn issue(&self) -> ClientCredential {
        let params = CertificateParams::new(vec!["build.example.com".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (
            certificate.der().clone(),
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
    }
}

async fn connect(
    world: &TestFront,
    root: &CertificateDer<'static>,
    shown: Option<&ClientCredential>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
            .unwrap(),
    };
    let stream = TcpStream::connect(world.front.local_addr()).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

/// The status of a request on a connection with this certificate; absent if it is not answered.
async fn status(
    world: &TestFront,
    root: &CertificateDer<'static>,
    shown: Option<&ClientCredential>,
) -> Option<u16> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    // In TLS 1.3 a client learns of a refusal only when it reads.
    let mut stream = connect(world, root, shown).await.ok()?;
    let (_, message) = world.client().modern().envelope("tools/list", json!({}));
    let body = message.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn with_clients(
    files: &CertificateFiles,
    authority: &TestAuthority,
    required: bool,
) -> (weir_front::FrontSettings, PathBuf) {
    let ca = files.tls.cert.with_file_name("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let mut settings = settings();
    let clients = Some(ClientCertificates {
        ca: ca.clone(),
        required,
    });
    settings.tls = Some(weir_front::settings::ListenerTlsFiles {
        clients,
        ..files.tls.clone()
    });
    (settings, ca)
}

#[tokio::test]
async fn only_a_certificate_of_the_authority_is_a_credential() {
    let (files, authority) = (CertificateFiles::new("certified"), TestAuthority::new());
    let root = files.write();
    let own = authority.issue();
    let foreign = TestAuthority::new().issue();
    let (optional, _) = with_clients(&files, &authority, false);
    let world = TestFront::with_tokens(optional).await;
    assert_eq!(status(&world, &root, None).await, Some(401));
    assert_eq!(
        status(&world, &root, Some(&foreign)).await,
        None,
        "the handshake fails"
    );
    let stream = connect(&world, &root, Some(&own)).await.unwrap();
    assert_eq!(
        list(&world, stream).await.1["result"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[tokio::test]
async fn connection_without_a_required_certificate_is_refused() {
    let (files, authority) = (CertificateFiles::new("required"), TestAuthority::new());
    let root = files.write();
    let own = authority.issue();
    let (required, ca) = with_clients(&files, &authority, true);
    let world = TestFront::with_tokens(required.clone()).await;
    assert_eq!(status(&world, &root, None).await, None);
    assert!(status(&world, &root, Some(&own)).await.is_some());
    // A reload applies another authority to later connections; a broken file changes no setting.
    let next = TestAuthority::new();
    std::fs::write(&ca, "nothing").unwrap();
    assert!(
        world
            .front
            .reload(required.clone())
            .unwrap_err()
            .to_string()
            .contains("ca.pem")
    );
    assert!(status(&world, &root, Some(&own)).await.is_some());
    std::fs::write(&ca, &next.pem).unwrap();
    world.front.reload(required).unwrap();
    assert_eq!(status(&world, &root, Some(&own)).await, None);
    assert!(status(&world, &root, Some(&next.issue())).await.is_some());
}
