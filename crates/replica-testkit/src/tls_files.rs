//! The files of a server's TLS, with a certificate authority of their own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use weir_testkit::TestFolder;

use crate::free_port::free_port;

/// A certificate for `localhost`, and the authority that signed it. Dropping it removes the files.
#[derive(Debug)]
pub struct TlsFiles {
    folder: TestFolder,
    port: u16,
}

impl TlsFiles {
    /// Writes the files.
    ///
    /// # Panics
    /// They cannot be made or written.
    #[must_use]
    pub fn new() -> Self {
        let folder = TestFolder::new("tls");
        let write = |name: &str, text: String| folder.write(name, &text);
        let authority_key = key();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = authority.self_signed(&authority_key);
        write(
            "ca.pem",
            certificate.unwrap_or_else(|error| panic!("{error}")).pem(),
        );
        let issuer = Issuer::from_params(&authority, &authority_key);
        let server_key = key();
        let server = CertificateParams::new(vec!["localhost".to_owned()])
            .and_then(|params| params.signed_by(&server_key, &issuer));
        write(
            "server.pem",
            server.unwrap_or_else(|error| panic!("{error}")).pem(),
        );
        write("server.key", server_key.serialize_pem());
        Self {
            folder,
            port: free_port(),
        }
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.folder.file("ca.pem")
    }

    /// The certificate of the server, in PEM.
    #[must_use]
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.file("server.pem")
    }

    /// The private key of the server, in PEM.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.folder.file("server.key")
    }

    /// The directives of a server's config: a TLS port beside its plain one.
    pub(crate) fn settings(&self) -> [[String; 2]; 5] {
        let file = |name: &str| self.folder.file(name).display().to_string();
        [
            ["tls-port", &self.port.to_string()],
            ["tls-cert-file", &file("server.pem")],
            ["tls-key-file", &file("server.key")],
            ["tls-ca-cert-file", &file("ca.pem")],
            ["tls-auth-clients", "no"],
        ]
        .map(|line| line.map(str::to_owned))
    }

    /// The URL of the server with these files, for a user.
    #[must_use]
    pub fn url_of_user(&self, name: &str, password: &str) -> String {
        format!("rediss://{name}:{password}@localhost:{}", self.port)
    }
}

impl Default for TlsFiles {
    fn default() -> Self {
        Self::new()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap_or_else(|error| panic!("{error}"))
}
