//! Checks of the validity of certificates: weir's own, and those of servers.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// A certificate that ends within this time is to be renewed: programs that renew by themselves do
/// it earlier.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Checks the validity of the certificate of the clients' listener, which the check of the config
/// has found usable with its key.
pub(super) fn examine(file: &Path, now: SystemTime) -> MachineFinding {
    let what = format!("the certificate {}", file.display());
    match CertificateDer::from_pem_file(file) {
        Ok(certificate) => times(&what, &certificate, now),
        Err(error) => finding(
            FindingGrade::Error,
            format!("{what} cannot be read: {error}"),
        ),
    }
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
