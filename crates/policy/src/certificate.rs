//! The validity of a certificate, for a check before it is used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// Its first second.
    pub begin: SystemTime,
    /// Its last second.
    pub end: SystemTime,
}

/// The validity of a certificate in DER, unless the bytes are not a certificate. A time before 1970
/// is 1970.
#[must_use]
pub fn certificate_validity(der: &[u8]) -> Option<CertificateValidity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let time = |seconds: i64| {
        UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    let validity = certificate.validity();
    let (begin, end) = (
        time(validity.not_before.timestamp())?,
        time(validity.not_after.timestamp())?,
    );
    Some(CertificateValidity { begin, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_those_of_the_certificate() {
        let mut plan = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        (plan.not_before, plan.not_after) = (
            rcgen::date_time_ymd(2024, 1, 1),
            rcgen::date_time_ymd(2025, 1, 1),
        );
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = plan.self_signed(&key).expect("a certificate");
        let found = certificate_validity(certificate.der()).expect("its times");
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(
            found,
            CertificateValidity {
                begin: at(1_704_067_200),
                end: at(1_735_689_600)
            }
        );
        assert_eq!(certificate_validity(b"no certificate"), None);
    }
}
