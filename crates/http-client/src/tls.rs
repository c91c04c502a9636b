//! TLS towards upstreams: it trusts the machine's roots and the operator's own, and verification
//! cannot be turned off.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use weir_system::regular_file;

/// The most bytes of a file of certificates. The roots of an operating system have less than a tenth
/// of it.
const MAX_FILE: u64 = 8 << 20;

/// The error of a file of certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It has more bytes than any file of certificates.
    #[error("is larger than 8 MiB")]
    TooLarge,
    /// It is not in the PEM format.
    #[error("is not a PEM file: {0}")]
    Format(rustls::pki_types::pem::Error),
    /// It has no certificate.
    #[error("has no certificate")]
    Empty,
    /// One of its certificates is not valid.
    #[error("has a certificate that cannot be used: {0}")]
    Certificate(rustls::Error),
}

/// The error of a server's TLS settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates make no usable verifier.
    #[error("certificates cannot be verified: {0}")]
    Verifier(String),
    /// TLS cannot be set up in this build.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// The root certificates of this machine, read once.
#[derive(Debug)]
pub struct RootCertificates(RootCertStore);

impl RootCertificates {
    /// Reads the certificates. Unreadable ones are skipped with a warning: one bad file must not
    /// disable all of them.
    pub fn native() -> Self {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "root certificate cannot be read");
        }
        let mut roots = RootCertStore::empty();
        let (_good, bad) = roots.add_parsable_certificates(found.certs);
        if bad > 0 {
            tracing::debug!(bad, "invalid root certificates skipped");
        }
        Self(roots)
    }

    /// Makes a client config with these roots and those in `ca_file`. The connector sets the
    /// protocols.
    ///
    /// # Errors
    /// The certificates make no usable verifier.
    pub fn config(&self, ca_file: Option<&CaFile>) -> Result<ClientConfig, TlsError> {
        let mut roots = self.0.clone();
        let named = ca_file.map_or(&[][..], |file| &file.certificates).to_vec();
        roots.add_parsable_certificates(named.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?;
        if named.is_empty() {
            return Ok(builder.with_root_certificates(roots).with_no_client_auth());
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let usual = usual.map_err(|error| TlsError::Verifier(error.to_string()))?;
        let verifier = Arc::new(NamedVerifier { usual, named });
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth())
    }
}

/// Makes the TLS config for one connection to an upstream with this `ca_file`. The roots of this
/// machine are read for it.
///
/// # Errors
/// The certificates make no usable verifier.
pub fn client_tls(ca_file: Option<&CaFile>) -> Result<ClientConfig, TlsError> {
    RootCertificates::native().config(ca_file)
}

/// The contents of the `ca_file` of a server. Settings have them instead of its path, so that settings
/// with changed contents differ, and a reload replaces the client.
#[derive(Clone, PartialEq, Eq)]
pub struct CaFile {
    pem: Arc<[u8]>,
    certificates: Arc<[CertificateDer<'static>]>,
}

impl CaFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is not usable.
    pub fn read(path: &Path) -> Result<Self, CertificateFileError> {
        let mut pem = Vec::new();
        regular_file::open(path)?
            .take(MAX_FILE + 1)
            .read_to_end(&mut pem)?;
        if pem.len() as u64 > MAX_FILE {
            return Err(CertificateFileError::TooLarge);
        }
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(CertificateFileError::Format)?;
        if certificates.is_empty() {
            return Err(CertificateFileError::Empty);
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots
                .add(certificate.clone())
                .map_err(CertificateFileError::Certificate)?;
        }
        Ok(Self {
            pem: pem.into(),
            certificates: certificates.into(),
        })
    }

    /// The file as it was read.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }
}

impl fmt::Debug for CaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaFile({} certificates)", self.certificates.len())
    }
}

/// The usual verifier, which also accepts a server's own certificate that the operator named. A
/// self-signed certificate, as OpenSSL makes it by default, is marked as an authority, and is
/// refused as a server's certificate for that alone.
#[derive(Debug)]
struct NamedVerifier {
    usual: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self
            .usual
            .verify_server_cert(certificate, intermediates, name, ocsp, now)
        {
            // The usual verifier has checked its validity, but not its name.
            Err(error)
                if is_authority_error(&error)
                    && self.named.iter().any(|named| named == certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// True if a certificate is refused because it is an authority's. The verifier has no error kind
/// for that.
fn is_authority_error(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}
