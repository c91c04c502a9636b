//! Client certificates as credentials. The listener has verified the chain and its times; here a
//! certificate gets a subject.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_core::is_invisible;
use weir_core::principal::Subject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::settings::{CertificateName, CertificateRules, VerifierSettings};
use crate::token::mapping::with_implied;
use crate::token::token_refusal::TokenRefusal;

/// The issuer of a certificate's subject. It is not a URL, so no issuer of tokens can have this
/// name.
const ISSUER: &str = "mtls";
/// The longest name.
const MAX_NAME_BYTES: usize = 256;

/// The mapping of certificates to subjects.
pub(crate) struct CertificateReader {
    rule: CertificateName,
    groups: Arc<[Arc<str>]>,
    scopes: Arc<[Arc<str>]>,
}

impl CertificateReader {
    pub(crate) fn new(rule: &CertificateRules, settings: &VerifierSettings) -> Self {
        Self {
            rule: rule.subject,
            groups: rule.groups.clone().into(),
            scopes: with_implied(rule.scopes.iter().cloned().collect(), &settings.implied),
        }
    }

    /// The subject of a certificate. A connection may outlive its certificate, so the expiry is
    /// checked again.
    pub(crate) fn subject(
        &self,
        der: &[u8],
        now: SystemTime,
    ) -> Result<Arc<Subject>, TokenRefusal> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| TokenRefusal::Malformed)?;
        if !rest.is_empty() {
            return Err(TokenRefusal::Malformed);
        }
        let end = u64::try_from(certificate.validity().not_after.timestamp())
            .map_err(|_| TokenRefusal::Expired)?;
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(end));
        if end.is_some_and(|end| end <= now) {
            return Err(TokenRefusal::Expired);
        }
        let mut subject = self.named(&name(&certificate, self.rule)?);
        subject.expires = end;
        Ok(Arc::new(subject))
    }

    /// The subject of a certificate with this name.
    pub(crate) fn named(&self, name: &str) -> Subject {
        let mut subject = Subject::new(ISSUER, name);
        subject.groups = self.groups.clone();
        subject.scopes = self.scopes.clone();
        subject
    }
}

/// The one name of the configured kind. With two names, another reader might take the other; a name
/// with invisible characters looks like another one.
fn name(certificate: &X509Certificate<'_>, rule: CertificateName) -> Result<String, TokenRefusal> {
    let names: Vec<&str> = match rule {
        CertificateName::CommonName => {
            let names = certificate
                .subject()
                .iter_common_name()
                .map(|name| name.as_str());
            names
                .collect::<Result<_, _>>()
                .map_err(|_| TokenRefusal::Claims)?
        }
        CertificateName::Uri | CertificateName::Dns => {
            let extension = certificate
                .subject_alternative_name()
                .map_err(|_| TokenRefusal::Malformed)?;
            let names = extension
                .map(|extension| extension.value.general_names.as_slice())
                .unwrap_or_default();
            let fitting = names.iter().filter_map(|name| match (rule, name) {
                (CertificateName::Uri, GeneralName::URI(uri)) => Some(*uri),
                (CertificateName::Dns, GeneralName::DNSName(name)) => Some(*name),
                _ => None,
            });
            fitting.collect()
        }
    };
    match names.as_slice() {
        [one]
            if !one.is_empty() && one.len() <= MAX_NAME_BYTES && !one.chars().any(is_invisible) =>
        {
            Ok((*one).to_owned())
        }
        _ => Err(TokenRefusal::Claims),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[&str], alternatives: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = alternatives;
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    fn read(rule: CertificateName, der: &[u8], now: u64) -> Result<Arc<Subject>, TokenRefusal> {
        let rule = CertificateRules {
            subject: rule,
            groups: vec!["machines".into()],
            scopes: vec!["read".into()],
        };
        CertificateReader::new(&rule, &VerifierSettings::open())
            .subject(der, UNIX_EPOCH + Duration::from_secs(now))
    }

    const NOW: u64 = 1_785_542_400;

    #[test]
    fn a_certificate_names_its_subject_by_the_part_that_the_config_says() {
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
        let both = certificate(
            &["build"],
            vec![uri("spiffe://example.com/build"), dns("build.example.com")],
        );
        for (rule, name) in [
            (CertificateName::CommonName, "build"),
            (CertificateName::Uri, "spiffe://example.com/build"),
            (CertificateName::Dns, "build.example.com"),
        ] {
            let subject = read(rule, &both, NOW).unwrap();
            assert_eq!((subject.issuer(), subject.subject()), ("mtls", name));
            assert_eq!(
                (&*subject.groups[0], &*subject.scopes[0]),
                ("machines", "read")
            );
            assert!(!subject.is_by_token);
        }
        let nameless = certificate(&[], vec![]);
        let two = certificate(&["x"], vec![dns("a.example.com"), dns("b.example.com")]);
        let odd = certificate(&["a\nb"], vec![]);
        let reversed = certificate(&["\u{202e}dliub"], vec![]);
        let twin = certificate(&["build\u{200b}"], vec![]);
        for (rule, der) in [
            (CertificateName::CommonName, &nameless),
            (CertificateName::CommonName, &odd),
            (CertificateName::CommonName, &reversed),
            (CertificateName::CommonName, &twin),
            (CertificateName::Uri, &nameless),
            (CertificateName::Uri, &two),
            (CertificateName::Dns, &two),
        ] {
            assert_eq!(read(rule, der, NOW).unwrap_err(), TokenRefusal::Claims);
        }
    }

    // Proves C12.
    #[test]
    fn expired_and_malformed_certificates_are_refused() {
        let der = certificate(&["build"], vec![]);
        let end = 1_798_761_600;
        assert!(read(CertificateName::CommonName, &der, end - 1).is_ok());
        assert_eq!(
            read(CertificateName::CommonName, &der, end).unwrap_err(),
            TokenRefusal::Expired
        );
        for bad in [
            &der[1..],
            &der[..der.len() - 1],
            &[der.as_slice(), b"x"].concat(),
            b"",
        ] {
            assert_eq!(
                read(CertificateName::CommonName, bad, NOW).unwrap_err(),
                TokenRefusal::Malformed
            );
        }
    }
}
