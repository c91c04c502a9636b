//! The client's own token, on its way to the one server that may use it: the authorization server
//! at which weir exchanges it for a token of an upstream (RFC 8693).
//!
//! It is no part of the call: rules and audit never see it. It never goes to an upstream, and it
//! cannot be printed.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::port::borrowed_secret::BorrowedSecret;

/// A bearer token that the verifier found good for its sender. Only
/// [`crate::Authenticated::with_verified_token`] makes one.
#[derive(Clone)]
pub struct ClientToken(Arc<str>);

impl ClientToken {
    /// Only the gate may call this.
    pub(crate) fn mint(text: BorrowedSecret<'_>) -> Self {
        Self(text.expose().into())
    }

    /// The text, for the authorization server that exchanges it.
    #[must_use]
    pub fn expose(&self) -> BorrowedSecret<'_> {
        BorrowedSecret::new(&self.0)
    }

    /// A key for the token that it was exchanged for. Not reversible.
    #[must_use]
    pub fn digest(&self) -> [u8; 16] {
        let full: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        let mut digest = [0; 16];
        digest.copy_from_slice(&full[..16]);
        digest
    }
}

impl fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::authenticate;
    use crate::failure::Failure;
    use crate::names::EndpointId;
    use crate::port::{BoxFuture, Evidence, Verifier};
    use crate::principal::{Subject, VerifiedIdentity};

    #[derive(Debug)]
    struct TestVerifier(Option<bool>);

    impl Verifier for TestVerifier {
        fn verify<'a>(
            &'a self,
            _: &'a Evidence<'a>,
        ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
            let identity = match self.0 {
                None => VerifiedIdentity::Anonymous,
                Some(by_token) => {
                    let mut subject = Subject::new("iss", "ada");
                    subject.is_by_token = by_token;
                    VerifiedIdentity::Subject(Arc::new(subject))
                }
            };
            Box::pin(async move { Ok(identity) })
        }
    }

    // Proves C20.
    #[tokio::test]
    async fn only_the_verified_token_is_kept_and_it_does_not_print() {
        let endpoint = EndpointId::new("/mcp");
        let shown = Evidence {
            bearer: Some(BorrowedSecret::new("CANARY-token")),
            ..Evidence::none([127, 0, 0, 1].into(), &endpoint)
        };
        for (by, kept) in [(Some(true), true), (Some(false), false), (None, false)] {
            let known = authenticate(&TestVerifier(by), &shown)
                .await
                .unwrap()
                .with_verified_token(&shown);
            assert_eq!(known.token().is_some(), kept, "{by:?}");
            assert!(!format!("{known:?}").contains("CANARY"));
        }
        let known = authenticate(&TestVerifier(Some(true)), &shown)
            .await
            .unwrap();
        assert!(known.token().is_none(), "nobody asked for it");
        let item = known.with_verified_token(&shown).for_payload("a call");
        assert_eq!(item.token().unwrap().expose().expose(), "CANARY-token");
    }
}
