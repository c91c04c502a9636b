//! Folders of tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of one test. It is removed when the value is dropped.
#[derive(Debug)]
pub struct TestFolder(PathBuf);

impl TestFolder {
    /// A folder among the temporary files.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::within(&std::env::temp_dir(), name)
    }

    /// A folder in memory, where the system has a place for it: a disk that is busy with a build
    /// takes seconds for each file that is synchronized.
    #[must_use]
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Self::within(memory, name)
        } else {
            Self::new(name)
        }
    }

    fn within(place: &Path, name: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("weir-test-{}-{number}-{name}", std::process::id()));
        // An earlier process with the same id may have left one.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for a test");
        Self(path)
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder, which need not exist.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and makes the folders that it is in; returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.file(name);
        let folder = file.parent().expect("a file in a folder");
        std::fs::create_dir_all(folder).expect("a folder for a test");
        std::fs::write(&file, text).expect("a file of a test");
        file
    }

    /// Has OpenSSL make a self-signed certificate for a name, such as `DNS:localhost`. As it does by
    /// default, it marks it as an authority. Returns the files of the certificate and of its key.
    pub fn openssl_certificate(&self, name: &str) -> [PathBuf; 2] {
        let options = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext";
        let made = Command::new("openssl")
            .args(options.split(' '))
            .arg(format!("subjectAltName={name}"))
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&self.0)
            .output()
            .expect("OpenSSL");
        assert!(made.status.success(), "{made:?}");
        ["cert.pem", "key.pem"].map(|name| self.file(name))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
