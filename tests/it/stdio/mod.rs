//! `weir stdio`: a gateway over standard streams, with hosts of every revision, by hand and of the SDKs.

mod ends;
mod frames;
mod host;
mod revisions;
