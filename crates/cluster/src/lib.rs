//! Requests between replicas: HTTP/2 with mutual TLS, by keys that are derived from the sealing keys
//! that all replicas share.

mod settings;

pub use settings::ClusterSettings;
