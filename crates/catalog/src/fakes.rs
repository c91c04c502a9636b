//! Fakes behind the ports, for this crate's own tests and fuzz target.

use std::net::Ipv4Addr;

use futures_util::FutureExt as _;
use weir_core::names::EndpointId;
use weir_core::port::{Evidence, Fut, Random, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::{Failure, Principal, authenticate};

/// Random bytes that are all sevens.
pub(crate) struct Sevens;

impl Random for Sevens {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// A verifier with one identity for every request.
struct FixedIdentity(VerifiedIdentity);

impl Verifier for FixedIdentity {
    fn verify<'a>(
        &'a self,
        _evidence: &'a Evidence<'a>,
    ) -> Fut<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// The principal of an identity.
#[expect(
    clippy::expect_used,
    reason = "the verifier refuses no request and does not wait"
)]
pub(crate) fn principal(identity: VerifiedIdentity) -> Principal {
    let endpoint = EndpointId::new("/mcp");
    let evidence = Evidence::none(Ipv4Addr::LOCALHOST.into(), &endpoint);
    authenticate(&FixedIdentity(identity), &evidence, ())
        .now_or_never()
        .and_then(Result::ok)
        .expect("a request is authenticated")
        .into_parts()
        .principal
}
