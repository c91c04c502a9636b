//! Checks of certificates: weir's own with its key, and the validity of any.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use weir_front::settings::ListenerTlsFiles;

use super::machine_finding::{FindingGrade, MachineFinding, finding};

/// A certificate that ends within this time is to be renewed: programs that renew by themselves do
/// it earlier.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Checks the certificate of the clients' listener: its validity, and that the key belongs to it.
pub(super) fn examine(files: &ListenerTlsFiles, now: SystemTime) -> Vec<MachineFinding> {
    let (what, path) = (
        format!("the certificate {}", files.cert.display()),
        &files.cert,
    );
    let Ok(chain) = certificates(path) else {
        let text = format!(
            "{what} is not a PEM file with a certificate: `tls.cert` needs the certificate, then those of its authorities"
        );
        return vec![finding(FindingGrade::Error, text)];
    };
    let mut found = vec![times(&what, &chain[0], now)];
    found.extend(key(files, chain));
    found
}

fn certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    let chain = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() {
        Err(rustls::pki_types::pem::Error::NoItemsFound)
    } else {
        Ok(chain)
    }
}

/// Returns a finding if the key cannot be used with the certificate.
fn key(files: &ListenerTlsFiles, chain: Vec<CertificateDer<'static>>) -> Option<MachineFinding> {
    let (cert, path) = (files.cert.display(), files.key.display());
    let Ok(key) = PrivateKeyDer::from_pem_file(&files.key) else {
        return Some(finding(
            FindingGrade::Error,
            format!(
                "{path} is not a PEM file with a private key: `tls.key` needs an unencrypted key"
            ),
        ));
    };
    let text = match CertifiedKey::from_der(
        chain,
        key,
        &rustls::crypto::aws_lc_rs::default_provider(),
    ) {
        Ok(_) => return None,
        Err(rustls::Error::InconsistentKeys(_)) => {
            format!(
                "the key {path} does not belong to the certificate {cert}: name two files that belong together"
            )
        }
        Err(error) => format!("the certificate {cert} and the key {path} cannot be used: {error}"),
    };
    Some(finding(FindingGrade::Error, text))
}

/// Checks the validity of a certificate.
pub(super) fn times(
    what: &str,
    certificate: &CertificateDer<'_>,
    now: SystemTime,
) -> MachineFinding {
    let Some(validity) = weir_policy::certificate_validity(certificate) else {
        return finding(
            FindingGrade::Warning,
            format!("the validity of {what} cannot be read"),
        );
    };
    let (begin, end) = (date(validity.begin), date(validity.end));
    if now < validity.begin {
        let text = format!(
            "{what} is not valid before {begin}: check the clock of this machine, or use the previous certificate"
        );
        return finding(FindingGrade::Error, text);
    }
    match validity.end.duration_since(now) {
        Err(_) => finding(
            FindingGrade::Error,
            format!("{what} expired on {end}: clients refuse it; renew it"),
        ),
        Ok(left) if left < SOON => finding(
            FindingGrade::Warning,
            format!("{what} expires on {end}: renew it before"),
        ),
        Ok(_) => finding(FindingGrade::Good, format!("{what} is valid until {end}")),
    }
}

/// Returns the day of a time, in UTC.
fn date(time: SystemTime) -> String {
    weir_core::instant::rfc3339(time)
        .split('T')
        .next()
        .unwrap_or_default()
        .to_owned()
}
