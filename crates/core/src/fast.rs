//! Hash maps for the hot path of a call.
//!
//! std's hasher withstands an attacker that picks keys at leisure, at a hundred instructions a
//! look-up. A call looks into the maps here a dozen times, and their keys come from the operator's
//! config, from counters, or in bounded number from upstreams. A hasher with a seed of its own for
//! each process is enough.

/// A map with the fast hasher.
pub type FastMap<K, V> = std::collections::HashMap<K, V, FastState>;

/// The fast hasher's seeds.
pub type FastState = foldhash::fast::RandomState;
