//! TLS: one certificate, read again when its files change, without touching open connections.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::settings::TlsFiles;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("cannot read {path}: {cause}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The chain and the key do not belong together, or are of no kind that TLS 1.2 or 1.3 knows.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The certificate in use.
pub(crate) struct Certificates {
    current: ArcSwap<CertifiedKey>,
    files: Mutex<(TlsFiles, Stamp)>,
    provider: Arc<CryptoProvider>,
}

/// When the two files were last written: what is compared to notice a change.
type Stamp = [Option<SystemTime>; 2];

impl Certificates {
    /// Reads the files for the first time.
    pub(crate) fn read(files: &TlsFiles) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let stamp = stamp(files);
        let key = certified(files, &provider)?;
        Ok(Arc::new(Self { current: ArcSwap::from_pointee(key), files: Mutex::new((files.clone(), stamp)), provider }))
    }

    /// Reads them again, or other ones. A broken pair changes nothing.
    pub(crate) fn replace(&self, files: &TlsFiles) -> Result<(), TlsError> {
        let stamp = stamp(files);
        let key = certified(files, &self.provider)?;
        self.current.store(Arc::new(key));
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = (files.clone(), stamp);
        Ok(())
    }

    /// Reads them again if they were written since; says whether. Two reads of a file, so not for a hot path.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        let (files, known) = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if stamp(&files) == known {
            return Ok(false);
        }
        self.replace(&files).map(|()| true)
    }

    /// The acceptor's config: TLS 1.2 and 1.3, HTTP/2 preferred.
    pub(crate) fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates")
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    [&files.cert, &files.key].map(|path| std::fs::metadata(path).and_then(|data| data.modified()).ok())
}

fn certified(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let unreadable = |path: &PathBuf, cause: String| TlsError::File { path: path.clone(), cause };
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error: io::Error| unreadable(path, error.to_string()));
    let chain = CertificateDer::pem_slice_iter(&read(&files.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(&files.cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(&files.cert, "it holds no certificate".to_owned()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| unreadable(&files.key, error.to_string()))?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    /// Writes a certificate and its key, as of `nth` seconds after a fixed time.
    fn write(files: &TlsFiles, nth: u64) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        for (path, text) in [(&files.cert, made.cert.pem()), (&files.key, made.signing_key.serialize_pem())] {
            put(path, &text, nth);
        }
        made.cert.der().to_vec()
    }

    fn put(path: &PathBuf, text: &str, nth: u64) {
        std::fs::write(path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_542_400 + nth);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    fn shown(certificates: &Certificates) -> Vec<u8> {
        certificates.current.load().cert[0].to_vec()
    }

    #[test]
    fn files_are_read_again_when_they_change_and_broken_ones_are_left_alone() {
        let folder = std::env::temp_dir().join(format!("weir-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        let first = write(&files, 0);
        let certificates = Certificates::read(&files).unwrap();
        assert_eq!(shown(&certificates), first);
        assert!(!certificates.refresh().unwrap());
        // Half of a change: the new certificate has come, its key has not.
        let second = write(&files, 1);
        let key = std::fs::read_to_string(&files.key).unwrap();
        put(&files.key, "", 2);
        assert!(certificates.refresh().is_err());
        assert_eq!(shown(&certificates), first);
        put(&files.key, &key, 3);
        assert!(certificates.refresh().unwrap());
        assert_eq!(shown(&certificates), second);
        std::fs::remove_file(&files.cert).unwrap();
        assert!(certificates.refresh().is_err());
        assert_eq!(shown(&certificates), second);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn errors_name_the_file() {
        let files = TlsFiles { cert: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
        assert!(Certificates::read(&files).unwrap_err().to_string().contains("/nowhere/cert.pem"));
    }
}
