//! `weir stdio`: a gateway over standard streams, with hosts of every revision, by hand and of the
//! SDKs.

mod ends;
mod frames;
pub mod host;
mod revisions;
mod running;
mod sdks;
