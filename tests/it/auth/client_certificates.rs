//! Client certificates, through the binary: the ones that are accepted, the principals that they
//! become, and that no header replaces one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType,
};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use weir_testkit::accept::listen_on_loopback;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use crate::audit::{AuditFolder, of_kind};
use crate::harness::Weir;

/// A certificate authority.
pub struct IssuingAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub own: Certificate,
}

/// A certificate and its key.
pub struct IssuedCertificate {
    pub certificate: Certificate,
    pub key: KeyPair,
}

impl IssuingAuthority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            own,
        }
    }

    pub fn issue(&self, name: SanType, usage: ExtendedKeyUsagePurpose) -> IssuedCertificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![usage];
        self.sign(&params)
    }

    /// Signs any certificate.
    pub fn sign(&self, params: &CertificateParams) -> IssuedCertificate {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        IssuedCertificate { certificate, key }
    }

    /// Issues the certificate of a machine with this URI.
    pub fn machine(&self, uri: &str) -> IssuedCertificate {
        self.issue(
            SanType::URI(uri.try_into().unwrap()),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }
}

/// Writes a PEM file into a folder.
pub fn pem(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A port that forwards plain HTTP to weir over TLS, with this certificate. It closes when the
/// value is dropped.
pub struct TlsTunnel {
    url: String,
    _tasks: JoinSet<()>,
}

impl TlsTunnel {
    pub async fn open(
        weir: SocketAddr,
        trusted: &IssuingAuthority,
        own: Option<IssuedCertificate>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.own.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = config.with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                config
                    .with_client_auth_cert(vec![own.certificate.der().clone()], key)
                    .unwrap()
            }
        };
        let connector = TlsConnector::from(Arc::new(config));
        let (listener, address) = listen_on_loopback().await;
        let url = format!("http://{address}/mcp");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut plain, _)) = listener.accept().await {
                let connector = connector.clone();
                connections.spawn(async move {
                    let outer = TcpStream::connect(weir).await.unwrap();
                    // A refused handshake is a connection that ends.
                    if let Ok(mut secure) =
                        connector.connect(ServerName::from(weir.ip()), outer).await
                    {
                        let _ended = tokio::io::copy_bidirectional(&mut plain, &mut secure).await;
                    }
                });
            }
        });
        Self { url, _tasks: tasks }
    }

    pub fn client(&self) -> RawClient {
        RawClient::new(&self.url)
    }
}

// Proves C01, C22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_operators_authority_is_a_principal_and_nothing_else_is() {
    let folder = AuditFolder::new("mtls");
    let (servers, machines, others) = (
        IssuingAuthority::new(),
        IssuingAuthority::new(),
        IssuingAuthority::new(),
    );
    let own = servers.issue(
        SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
        ExtendedKeyUsagePurpose::ServerAuth,
    );
    let chain = pem(folder.0.path(), "server.pem", &own.certificate.pem());
    let key = pem(folder.0.path(), "server.key", &own.key.serialize_pem());
    let clients = pem(folder.0.path(), "clients.pem", &machines.own.pem());
    let upstream = MockServer::dual().tools(1).start().await;
    let weir = Weir::with_config(json!({
        "tls": { "cert": chain, "key": key, "client_ca": clients, "client_auth": "optional" },
        "auth": { "mode": "required", "mtls": { "subject": "uri" } },
        "upstreams": { "one": { "url": upstream.url() } },
        "audit": { "file": { "path": folder.file() } },
    }));
    let address: SocketAddr = weir.url("").trim_start_matches("http://").parse().unwrap();
    let known = TlsTunnel::open(
        address,
        &servers,
        Some(machines.machine("spiffe://example.com/build")),
    )
    .await;
    let call = async |client: &RawClient| client.call("one__tool_0000", json!({ "n": 1 })).await;
    crate::harness::wait_until_async("the tool", async || {
        (call(&known.client().modern()).await.unwrap().last()["result"]["isError"] != json!(true))
            .then_some(())
    })
    .await;
    assert_eq!(
        call(&known.client().modern()).await.unwrap().text(),
        r#"{"n":1}"#
    );
    let legacy = known
        .client()
        .legacy(Revision::NEWEST_LEGACY)
        .initialize()
        .await
        .unwrap();
    assert_eq!(call(&legacy).await.unwrap().text(), r#"{"n":1}"#);
    let before = upstream.total_executions();
    // Without a certificate, even if headers claim one.
    let nobody = TlsTunnel::open(address, &servers, None).await;
    for (header, value) in [
        ("x-own", "none"),
        (
            "x-forwarded-client-cert",
            "By=x;URI=spiffe://example.com/build",
        ),
        ("x-client-cert", "spiffe://example.com/build"),
        ("x-ssl-client-verify", "SUCCESS"),
    ] {
        let answer = call(&nobody.client().modern().with_header(header, value))
            .await
            .unwrap();
        assert_eq!(answer.status, 401, "{header}");
    }
    // One of another authority, and one of the right authority that is not a client certificate:
    // the connection is never established.
    let server = machines.issue(
        SanType::URI("spiffe://example.com/build".try_into().unwrap()),
        ExtendedKeyUsagePurpose::ServerAuth,
    );
    for wrong in [others.machine("spiffe://example.com/build"), server] {
        let tunnel = TlsTunnel::open(address, &servers, Some(wrong)).await;
        assert!(call(&tunnel.client().modern()).await.is_err());
    }
    // A certificate without a URI is no principal.
    let nameless = machines.issue(
        SanType::DnsName("build.example.com".try_into().unwrap()),
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    let nameless = TlsTunnel::open(address, &servers, Some(nameless)).await;
    assert_eq!(call(&nameless.client().modern()).await.unwrap().status, 401);
    // Another machine cannot use a session of this one.
    let other = TlsTunnel::open(
        address,
        &servers,
        Some(machines.machine("spiffe://example.com/other")),
    )
    .await;
    let thief = other
        .client()
        .legacy(Revision::NEWEST_LEGACY)
        .with_header("mcp-session-id", legacy.session().unwrap());
    assert_eq!(call(&thief).await.unwrap().status, 404);
    assert_eq!(
        upstream.total_executions(),
        before,
        "none of them reached anything"
    );
    crate::harness::wait_until("the records", || {
        let calls = of_kind(&folder.file(), "call");
        let last = calls.last().cloned().unwrap_or_default();
        (last["principal"]["subject"] == "spiffe://example.com/build"
            && last["principal"]["issuer"] == "mtls")
            .then_some(())
    });
}
