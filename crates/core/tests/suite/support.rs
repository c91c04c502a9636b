//! What the tests share: scripted upstreams, and a world around one catalog.

mod fake;
mod world;

pub(crate) use fake::Fake;
pub(crate) use world::{World, aggregate, endpoint, exposed, id, principal, transparent};
