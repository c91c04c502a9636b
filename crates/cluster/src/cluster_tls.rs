//! TLS between replicas: both sides prove that they have a sealing key of the other side.
//!
//! The keys are raw public keys (RFC 7250): there are no certificates, no names and no expiry. In
//! the handshake each side names the keys that it accepts, and the other side shows its newest one
//! among them. So replicas connect while a key is rotated, if they have one key in common.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::cluster_key::{ClusterKey, ClusterSecret};

/// The name that rustls wants of a server. It is neither sent nor checked.
const SERVER_NAME: &str = "replica.weir.invalid";

/// The TLS configs of one replica, as a server and as a client of others: TLS 1.3 and HTTP/2 only.
#[derive(Clone, Debug)]
pub struct ClusterTls {
    /// The config of the cluster listener.
    pub server: Arc<ServerConfig>,
    /// The config of connections to other replicas.
    pub client: Arc<ClientConfig>,
    /// The server name for connections to other replicas.
    pub server_name: ServerName<'static>,
}

impl ClusterTls {
    /// Derives the keys from the sealing keys, newest first. All of them are accepted.
    ///
    /// # Errors
    /// There is no sealing key, or the TLS library refuses a derived key.
    pub fn new(secrets: &[ClusterSecret]) -> Result<Self, Error> {
        let keys: Vec<_> = secrets
            .iter()
            .map(ClusterKey::derive)
            .collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(Error::General("there is no sealing key".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let keys = Arc::new(ClusterKeys {
            accepted: keys.iter().map(|key| key.fingerprint.clone()).collect(),
            keys,
            provider: provider.clone(),
        });
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(keys.clone())
            .with_cert_resolver(keys.clone());
        server.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would outlive the rotation of its key.
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(keys.clone())
            .with_client_cert_resolver(keys);
        client.alpn_protocols = vec![b"h2".to_vec()];
        client.enable_sni = false;
        client.resumption = Resumption::disabled();
        let server_name =
            ServerName::try_from(SERVER_NAME).map_err(|error| Error::General(error.to_string()))?;
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
            server_name,
        })
    }
}

/// The keys of a replica, newest first: those that it may show are also those that it accepts.
#[derive(Debug)]
struct ClusterKeys {
    keys: Vec<ClusterKey>,
    /// The fingerprints of the keys.
    accepted: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClusterKeys {
    /// The newest key that the other side accepts. A side that accepts none gets the newest of all,
    /// and refuses it.
    fn choose(&self, accepted: &[&[u8]]) -> Option<Arc<CertifiedKey>> {
        let common = self
            .keys
            .iter()
            .find(|key| accepted.contains(&key.fingerprint.as_ref()));
        common
            .or_else(|| self.keys.first())
            .map(|key| key.pair.clone())
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if self.keys.iter().any(|key| key.public() == shown.as_ref()) {
            Ok(())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }
}

/// The methods that verify signatures: both sides verify those of the other one alike.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _shown: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            // It is not offered.
            Err(Error::General("TLS 1.2 between replicas".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ResolvesServerCert for ClusterKeys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let accepted = hello.certificate_authorities().unwrap_or_default();
        let accepted: Vec<_> = accepted.iter().map(AsRef::as_ref).collect();
        self.choose(&accepted)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

impl ResolvesClientCert for ClusterKeys {
    fn resolve(
        &self,
        accepted: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.choose(accepted)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for ClusterKeys {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        Some(&self.accepted)
    }
}

impl ClientCertVerifier for ClusterKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.accepted
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}

#[cfg(test)]
mod tests;
