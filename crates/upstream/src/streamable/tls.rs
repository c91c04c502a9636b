//! TLS towards upstreams: the machine's roots and the operator's own, nothing else, and no way to look away.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why a server's TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file cannot be read.
    #[error("ca_file `{0}`: {1}")]
    File(String, rustls::pki_types::pem::Error),
    /// The certificate file has no certificate.
    #[error("ca_file `{0}` has no certificate")]
    Empty(String),
    /// A certificate in the file is not valid.
    #[error("ca_file `{0}`: {1}")]
    Certificate(String, rustls::Error),
    /// No TLS at all in this build.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// The root certificates of this machine, read once.
#[derive(Debug)]
pub(crate) struct Roots(RootCertStore);

impl Roots {
    /// Reads them. Certificates that cannot be read are skipped, with a warning: one bad file must not take away all.
    pub(crate) fn native() -> Self {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a root certificate of this machine cannot be read");
        }
        let mut roots = RootCertStore::empty();
        let (_good, bad) = roots.add_parsable_certificates(found.certs);
        if bad > 0 {
            tracing::debug!(bad, "root certificates of this machine were skipped");
        }
        Self(roots)
    }

    /// A client config with these roots and those in `ca_file`. Protocols are left to the connector.
    ///
    /// # Errors
    /// The file is not usable.
    pub(crate) fn config(&self, ca_file: Option<&Path>) -> Result<ClientConfig, TlsError> {
        let mut roots = self.0.clone();
        if let Some(path) = ca_file {
            add(&mut roots, path)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(config)
    }
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    let name = || path.display().to_string();
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::File(name(), error))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty(name()));
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| TlsError::Certificate(name(), error))?;
    }
    Ok(())
}
