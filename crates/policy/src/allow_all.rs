//! No policy: all callers are the anonymous principal, may see and call all tools, without limits
//! and without records.
//!
//! The config allows this on loopback only, or if the operator forces it by name; that is not
//! checked again here.

use std::net::IpAddr;

use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{
    Audience, AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, EndedCall, Evidence,
    Fut, GateDecision, Limiter, OperatorAction, PermitWait, RateDecision, SenderEntrance, Verifier,
    Visibility,
};
use weir_core::principal::{Principal, VerifiedIdentity};

/// A verifier without credentials. A token that is sent all the same proves no identity and is
/// ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAccessVerifier;

impl Verifier for OpenAccessVerifier {
    fn verify<'a>(
        &'a self,
        _evidence: &'a Evidence<'a>,
    ) -> Fut<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(std::future::ready(Ok(VerifiedIdentity::Anonymous)))
    }
}

/// Every principal sees and calls every tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn may_enter(&self, _principal: &Principal, _endpoint: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn audience(&self, _principal: &Principal, _endpoint: &EndpointId) -> Option<Audience> {
        None
    }

    fn may_see(
        &self,
        _principal: &Principal,
        _endpoint: &EndpointId,
        _item: &CatalogItem,
    ) -> Visibility {
        Visibility::Visible
    }

    fn may_call(
        &self,
        _principal: &Principal,
        _call: &Call,
        _item: &CatalogItem,
    ) -> Result<CallPermission, Failure> {
        Ok(CallPermission::default())
    }
}

/// No rate is limited; the listener's own caps still hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLimits;

impl Limiter for NoLimits {
    fn admit_address(&self, _peer: IpAddr) -> Result<(), Failure> {
        Ok(())
    }

    fn admit_request<'a>(
        &'a self,
        _principal: &'a Principal,
        _endpoint: &'a EndpointId,
    ) -> RateDecision<'a, Failure> {
        RateDecision::Now(Ok(()))
    }

    fn admit_call<'a>(
        &'a self,
        _principal: &'a Principal,
        _call: &'a Call,
        _item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        Ok(PermitWait::Now(CallPermit::free()))
    }

    fn admit_continuation<'a>(
        &'a self,
        _principal: &'a Principal,
        _item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        Ok(PermitWait::Now(CallPermit::free()))
    }
}

/// Nothing is recorded: for tests of a client side. The program records at least in its log.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl AuditLog for NoAudit {
    fn record_entrance(&self, _entrance: &SenderEntrance<'_>) {}

    fn record_decision(
        &self,
        _attempt: &CallAttempt<'_>,
        _decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    fn record_end(&self, _attempt: &CallAttempt<'_>, _ended: &EndedCall) {}

    fn record_operator_action(&self, _action: &OperatorAction<'_>) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::net::Ipv4Addr;

    use weir_core::port::BorrowedSecret;

    use super::*;

    #[tokio::test]
    async fn a_bearer_token_gives_no_identity_where_none_is_asked_for() {
        let endpoint = EndpointId::new("/mcp");
        for bearer in [None, Some(BorrowedSecret::new("eyJhbGciOiJub25lIn0.e30."))] {
            let evidence = Evidence {
                bearer,
                ..Evidence::none(Ipv4Addr::LOCALHOST.into(), &endpoint)
            };
            let proof = weir_core::authenticate(&OpenAccessVerifier, &evidence)
                .await
                .unwrap();
            assert!(proof.principal().is_anonymous());
            assert_eq!(AllowAll.audience(proof.principal(), &endpoint), None);
        }
    }
}
