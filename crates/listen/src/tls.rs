//! TLS: one certificate, and the authorities of client certificates. Changed files are read again
//! without an effect on open connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use weir_system::regular_file;

use crate::listener_settings::ListenerTlsFiles;

/// The error of a certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenerTlsError {
    /// A file cannot be read or is not PEM.
    #[error("cannot read {path}: {cause}")]
    File {
        /// The key of the config that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The key is not that of the certificate.
    #[error("the key {0} does not belong to the certificate")]
    ForeignKey(PathBuf),
    /// The chain or the key is of a kind that TLS 1.2 and 1.3 do not know.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The certificate in use.
pub struct ListenerCertificates {
    current: ArcSwap<CertifiedKey>,
    clients: ArcSwap<ClientVerifier>,
    files: Mutex<WatchedFiles>,
    provider: Arc<CryptoProvider>,
}

/// The files of the certificate.
#[derive(Clone)]
struct WatchedFiles {
    files: ListenerTlsFiles,
    /// Their times when they were last read with success.
    written: FileTimes,
    /// The times and the error of the last attempt since then, if it failed.
    failed: Option<(FileTimes, String)>,
}

impl WatchedFiles {
    fn read(files: &ListenerTlsFiles, written: FileTimes) -> Self {
        Self {
            files: files.clone(),
            written,
            failed: None,
        }
    }
}

/// The verifier of client certificates, if they are requested.
type ClientVerifier = Option<Arc<dyn ClientCertVerifier>>;

/// The times the files were last written, compared to detect a change.
type FileTimes = [Option<SystemTime>; 3];

/// Checks that the files of a listener's TLS can be used.
///
/// # Errors
/// A file cannot be read, or its content cannot be used.
pub fn check_tls_files(files: &ListenerTlsFiles) -> Result<(), ListenerTlsError> {
    ListenerCertificates::read(files).map(drop)
}

impl ListenerCertificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// A file cannot be read, or its content cannot be used.
    pub fn read(files: &ListenerTlsFiles) -> Result<Arc<Self>, ListenerTlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let stamp = file_times(files);
        let current = ArcSwap::from_pointee(certified_key(files, &provider)?);
        let clients = ArcSwap::from_pointee(client_verifier(files, &provider)?);
        Ok(Arc::new(Self {
            current,
            clients,
            files: Mutex::new(WatchedFiles::read(files, stamp)),
            provider,
        }))
    }

    /// Reads the files again, or other ones. A broken pair has no effect.
    pub(crate) fn replace(&self, files: &ListenerTlsFiles) -> Result<(), ListenerTlsError> {
        let stamp = file_times(files);
        let key = certified_key(files, &self.provider)?;
        self.clients
            .store(Arc::new(client_verifier(files, &self.provider)?));
        self.current.store(Arc::new(key));
        *self.files.lock() = WatchedFiles::read(files, stamp);
        Ok(())
    }

    /// Reads the files again if they were written since; returns true if so. Blocks on file IO, so
    /// it must not run on a hot path. After a failure each call is a further attempt, because a file
    /// can become readable without being written; the same error is returned once.
    pub(crate) fn refresh(&self) -> Result<bool, ListenerTlsError> {
        let known = self.files.lock().clone();
        let written = file_times(&known.files);
        if written == known.written {
            return Ok(false);
        }
        let Err(error) = self.replace(&known.files) else {
            return Ok(true);
        };
        let failed = Some((written, error.to_string()));
        if failed == known.failed {
            return Ok(false);
        }
        self.files.lock().failed = failed;
        Err(error)
    }

    /// The acceptor's config: TLS 1.2 and 1.3, HTTP/2 preferred.
    pub(crate) fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, ListenerTlsError> {
        let config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?;
        let config = match &**self.clients.load() {
            None => config.with_no_client_auth(),
            Some(verifier) => config.with_client_cert_verifier(verifier.clone()),
        };
        let mut config = config.with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for ListenerCertificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl std::fmt::Debug for ListenerCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerCertificates")
            .finish_non_exhaustive()
    }
}

fn file_times(files: &ListenerTlsFiles) -> FileTimes {
    let ca = files.clients.as_ref().map(|clients| &clients.ca);
    [Some(&files.cert), Some(&files.key), ca].map(|path| {
        path.and_then(|path| {
            std::fs::metadata(path)
                .and_then(|data| data.modified())
                .ok()
        })
    })
}

fn unreadable(key: &'static str, path: &Path, cause: &impl ToString) -> ListenerTlsError {
    ListenerTlsError::File {
        key,
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

/// The certificates of a PEM file, at least one.
fn read_chain(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ListenerTlsError> {
    let text = regular_file::read(path).map_err(|error| unreadable(key, path, &error))?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(key, path, &error))?;
    if chain.is_empty() {
        Err(unreadable(key, path, &"it holds no certificate"))
    } else {
        Ok(chain)
    }
}

fn client_verifier(
    files: &ListenerTlsFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientVerifier, ListenerTlsError> {
    let Some(clients) = &files.clients else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_chain("client_ca", &clients.ca)? {
        roots
            .add(certificate)
            .map_err(|error| unreadable("client_ca", &clients.ca, &error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if clients.required {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    builder
        .build()
        .map(Some)
        .map_err(|error| unreadable("client_ca", &clients.ca, &error))
}

fn certified_key(
    files: &ListenerTlsFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, ListenerTlsError> {
    let chain = read_chain("cert", &files.cert)?;
    let text =
        regular_file::read(&files.key).map_err(|error| unreadable("key", &files.key, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            unreadable("key", &files.key, &"it holds no unencrypted private key")
        } else {
            unreadable("key", &files.key, &error)
        }
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            ListenerTlsError::ForeignKey(files.key.clone())
        } else {
            error.into()
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use weir_testkit::TestFolder;

    use super::*;

    /// Writes a certificate and its key, as of `nth` seconds after a fixed time.
    fn write(files: &ListenerTlsFiles, nth: u64) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        for (path, text) in [
            (&files.cert, made.cert.pem()),
            (&files.key, made.signing_key.serialize_pem()),
        ] {
            put(path, &text, nth);
        }
        made.cert.der().to_vec()
    }

    fn put(path: &PathBuf, text: &str, nth: u64) {
        std::fs::write(path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_542_400 + nth);
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    fn files_in(folder: &TestFolder) -> ListenerTlsFiles {
        ListenerTlsFiles {
            cert: folder.file("cert.pem"),
            key: folder.file("key.pem"),
            clients: None,
        }
    }

    /// A read from a pipe would hang.
    #[test]
    fn pipe_in_the_place_of_a_file_is_refused_without_a_wait() {
        let folder = TestFolder::new("tls-pipe");
        let files = files_in(&folder);
        let first = write(&files, 0);
        let certificates = ListenerCertificates::read(&files).unwrap();
        for file in [&files.key, &files.cert] {
            std::fs::remove_file(file).unwrap();
            let made = std::process::Command::new("mkfifo").arg(file).status();
            assert!(made.unwrap().success());
            let error = certificates.refresh().unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(shown(&certificates), first);
    }

    fn shown(certificates: &ListenerCertificates) -> Vec<u8> {
        certificates.current.load().cert[0].to_vec()
    }

    #[test]
    fn files_are_read_again_when_they_change_and_broken_ones_are_left_alone() {
        let folder = TestFolder::new("tls");
        let files = files_in(&folder);
        let first = write(&files, 0);
        let certificates = ListenerCertificates::read(&files).unwrap();
        assert_eq!(shown(&certificates), first);
        assert!(!certificates.refresh().unwrap());
        // Half of a change: the new certificate is written, its key is not.
        let second = write(&files, 1);
        let key = std::fs::read_to_string(&files.key).unwrap();
        put(&files.key, "", 2);
        assert!(certificates.refresh().is_err());
        assert!(
            !certificates.refresh().unwrap(),
            "one error for each change"
        );
        assert_eq!(shown(&certificates), first);
        put(&files.key, &key, 3);
        assert!(certificates.refresh().unwrap());
        assert_eq!(shown(&certificates), second);
        std::fs::remove_file(&files.cert).unwrap();
        assert!(certificates.refresh().is_err());
        assert_eq!(shown(&certificates), second);
    }

    #[test]
    fn changed_file_that_becomes_readable_later_is_read() {
        let folder = std::env::temp_dir().join(format!("weir-tls-late-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = ListenerTlsFiles {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            clients: None,
        };
        write(&files, 0);
        let certificates = ListenerCertificates::read(&files).unwrap();
        let second = write(&files, 1);
        // A file that cannot be read, also by root. Its time stays when it becomes readable.
        let key = std::fs::read_to_string(&files.key).unwrap();
        std::fs::remove_file(&files.key).unwrap();
        std::fs::create_dir(&files.key).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_542_401);
        let folder_of_key = std::fs::File::open(&files.key).unwrap();
        folder_of_key.set_modified(time).unwrap();
        assert!(certificates.refresh().is_err());
        assert!(!certificates.refresh().unwrap(), "the same error");
        std::fs::remove_dir(&files.key).unwrap();
        put(&files.key, &key, 1);
        assert!(certificates.refresh().unwrap());
        assert_eq!(shown(&certificates), second);
        assert!(!certificates.refresh().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn errors_name_the_file() {
        let files = ListenerTlsFiles {
            cert: "/nowhere/cert.pem".into(),
            key: "/nowhere/key.pem".into(),
            clients: None,
        };
        assert!(
            ListenerCertificates::read(&files)
                .unwrap_err()
                .to_string()
                .contains("/nowhere/cert.pem")
        );
    }
}
