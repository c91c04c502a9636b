//! Shared parts of the tests: scripted upstreams, and a world around one catalog.

mod announcements;
mod fake;
mod gate;
mod update_streams;
mod world;

pub(crate) use announcements::ScriptedAnnouncements;
pub(crate) use fake::{ScriptedListFault, ScriptedUpstream, tool};
pub(crate) use gate::{GateRule, ScriptedGate};
pub(crate) use world::{
    AcceptingVerifier, CatalogWorld, FixedPorts, aggregate, endpoint, exposed, id, principal,
    transparent,
};
