//! `auth: none`: everybody is the anonymous principal and may call everything.
//!
//! The config allows this on loopback only, or where the operator forces it by name; nothing here second-guesses that.

use weir_core::call::Call;
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{Authorizer, Evidence, Fut, Limiter, Verifier, Visible};
use weir_core::principal::{Identity, Principal};

/// Asks nobody for credentials. A token that is sent all the same proves nothing and is ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Verifier for Open {
    fn verify<'a>(&'a self, _evidence: &'a Evidence<'a>) -> Fut<'a, Result<Identity, Failure>> {
        Box::pin(std::future::ready(Ok(Identity::Anonymous)))
    }
}

/// Every principal sees and calls every tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn may_call(&self, _principal: &Principal, _call: &Call) -> Result<(), Failure> {
        Ok(())
    }

    fn visible(&self, _principal: &Principal, _endpoint: &EndpointId) -> Visible {
        Visible::All
    }
}

/// No rate is limited; the listener's own caps still hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limiter for Unlimited {
    fn take(&self, _principal: &Principal, _call: &Call) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::net::{IpAddr, Ipv4Addr};

    use weir_core::port::Secret;

    use super::*;

    #[tokio::test]
    async fn a_bearer_token_gives_no_identity_where_none_is_asked_for() {
        let endpoint = EndpointId::new("/mcp");
        for bearer in [None, Some(Secret::new("eyJhbGciOiJub25lIn0.e30."))] {
            let evidence = Evidence { bearer, peer: IpAddr::V4(Ipv4Addr::LOCALHOST), endpoint: &endpoint };
            let proof = weir_core::authenticate(&Open, &evidence, ()).await.unwrap();
            assert!(proof.principal().is_anonymous());
            assert_eq!(AllowAll.visible(proof.principal(), &endpoint), Visible::All);
        }
    }
}
