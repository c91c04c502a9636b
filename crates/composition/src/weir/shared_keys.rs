//! The config's `keys` in the forms in which they are used.

use weir_cluster::{ClusterSecret, ClusterTls};
use weir_config::SealingKey;
use weir_seal::SealerKey;

/// Returns the keys of a config as they seal and open.
pub(super) fn sealer_keys(keys: &[SealingKey]) -> Vec<SealerKey> {
    let keys = keys.iter();
    keys.map(|key| SealerKey::new(key.id, &key.secret))
        .collect()
}

/// Returns the TLS between replicas with these keys, newest first.
///
/// # Errors
/// There is no key, or the TLS library refuses a derived key.
pub(super) fn cluster_tls(keys: &[SealingKey]) -> Result<ClusterTls, String> {
    let secret = |key: &SealingKey| ClusterSecret {
        id: key.id,
        secret: key.secret,
    };
    let secrets: Vec<_> = keys.iter().map(secret).collect();
    ClusterTls::new(&secrets).map_err(|error| error.to_string())
}
