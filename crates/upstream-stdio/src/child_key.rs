//! The key of a child: the calls that it serves.

use weir_core::principal::Principal;
use weir_core::upstream::OutboundCall;
use weir_core::{CapabilityClass, SessionKey};

use crate::handshake::ChildClients;

/// The key of a child: two principals never share one, unless the operator allows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChildKey {
    pub(super) principal: Option<Principal>,
    /// The capabilities of its clients; the base class for a child that all clients share.
    pub(super) class: CapabilityClass,
    /// The client's session, if it can be asked, for an HTTP+SSE server. A child process belongs to
    /// no single client.
    pub(super) session: Option<SessionKey>,
    /// The number of the child. One that may ask takes calls of one client at a time: another
    /// client's call at the same time has a second child.
    pub(super) nth: u8,
    /// True for one in the legacy era of a server with other children in the modern era.
    pub(super) is_legacy: bool,
}

impl ChildKey {
    /// The key of the child that all clients share.
    pub(super) const SHARED: Self = Self {
        principal: None,
        class: CapabilityClass::BASE,
        session: None,
        nth: 0,
        is_legacy: false,
    };
    /// The clients of a child for weir's own use.
    pub(super) const NO_CLIENTS: ChildClients = ChildClients {
        class: CapabilityClass::BASE,
        session: None,
        is_owned: false,
    };

    /// Returns the key of the child with this number.
    pub(super) fn with_number(self, nth: u8) -> Self {
        Self { nth, ..self }
    }

    /// Returns the clients behind the call that a child is started for.
    pub(super) fn clients(&self, outbound: &OutboundCall) -> ChildClients {
        let session = outbound
            .call
            .session
            .filter(|_| self.class != CapabilityClass::BASE);
        ChildClients {
            class: self.class,
            session,
            is_owned: self.session.is_some(),
        }
    }
}
