//! Hash maps for the way of a call.
//!
//! std's hasher withstands an attacker who picks keys at leisure, at a hundred instructions a
//! look-up. The maps here are looked into a dozen times a call, and their keys come from the
//! operator's config, from counters, or in bounded number from upstreams: a hasher with a seed of
//! its own for each process is enough.

/// A map with the fast hasher.
pub type FastMap<K, V> = std::collections::HashMap<K, V, FastState>;

/// The fast hasher's seeds.
pub type FastState = foldhash::fast::RandomState;
