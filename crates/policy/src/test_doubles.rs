//! No policy, for tests of other crates (feature `test-doubles`): all callers may see and call all
//! tools, without limits and without records. The program has a policy for each of these ports.

use std::net::IpAddr;

use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{
    Audience, AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, EndedCall,
    GateDecision, Limiter, OperatorAction, PermitWait, RateDecision, SenderEntrance, Visibility,
};
use weir_core::principal::Principal;

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

/// No rate is limited.
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

/// Nothing is recorded.
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
