//! Whose bytes a part of a byte budget is.

use std::net::IpAddr;

use crate::names::UpstreamId;
use crate::network::SenderNetwork;
use crate::principal::Principal;

/// The owner of bytes: one principal, the network of a client without credentials, or an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetOwner {
    /// The digest of a principal.
    Principal([u8; 16]),
    /// A network of anonymous clients.
    Network(SenderNetwork),
    /// The id of an upstream, in a form that is copied.
    Upstream([u8; UpstreamId::MAX_BYTES]),
}

impl BudgetOwner {
    /// The owner of bytes that a client at this address sends or receives.
    #[must_use]
    pub fn of(principal: &Principal, address: IpAddr) -> Self {
        if principal.is_anonymous() {
            Self::Network(SenderNetwork::of(address))
        } else {
            Self::Principal(*principal.digest())
        }
    }

    /// The owner of bytes that an upstream sends, and of those that wait to be taken by it.
    #[must_use]
    pub fn of_upstream(id: &UpstreamId) -> Self {
        let mut text = [0; UpstreamId::MAX_BYTES];
        text.iter_mut()
            .zip(id.as_str().bytes())
            .for_each(|(to, byte)| *to = byte);
        Self::Upstream(text)
    }
}
