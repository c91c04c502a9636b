//! `weir stdio`: a gateway over standard streams, with hosts of every revision, by hand and of the
//! SDKs.

mod odd_frames;
mod stdio_ends;
pub mod stdio_host;
mod stdio_long_running;
mod stdio_revisions;
mod stdio_sdks;
