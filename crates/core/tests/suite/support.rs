//! Shared parts of the tests: scripted upstreams, and a world around one catalog.

mod fake;
mod gate;
mod lines;
mod world;

pub(crate) use fake::{Fake, tool};
pub(crate) use gate::{Gate, Rule};
pub(crate) use world::{Says, World, aggregate, endpoint, exposed, id, principal, transparent};
