//! A verifier in its smallest form: a token is the name of its bearer.

use weir_core::failure::AuthenticationDenial;
use weir_core::port::{Evidence, Fut, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::{Failure, FailureKind};

/// The issuer of all principals.
pub(crate) const ISSUER: &str = "world";

/// Takes a token as the name of its bearer.
pub(crate) struct NameVerifier;

impl Verifier for NameVerifier {
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> Fut<'a, Result<VerifiedIdentity, Failure>> {
        let name = evidence.bearer.map(|bearer| bearer.expose().to_owned());
        Box::pin(async move {
            name.map(|name| VerifiedIdentity::subject(ISSUER, &*name))
                .ok_or_else(|| {
                    let missing = FailureKind::Unauthenticated(AuthenticationDenial::Missing);
                    Failure::new(missing, "no token")
                })
        })
    }
}
