//! The keys of TLS between replicas, derived from the sealing keys.

use std::fmt;
use std::sync::Arc;

use rustls::DistinguishedName;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

/// The label that sets this use of a sealing key apart from all others.
const SEED_LABEL: &[u8] = b"weir cluster listener, Ed25519 key, version 1\0";
/// The label of a public key's fingerprint.
const FINGERPRINT_LABEL: &[u8] = b"weir cluster listener, fingerprint, version 1\0";
/// The bytes of a PKCS#8 key before the seed of an Ed25519 key (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A sealing key that all replicas share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret {
    /// The id of the sealing key.
    pub id: u8,
    /// The 32 bytes of the sealing key.
    pub secret: [u8; 32],
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterSecret({}, <secret>)", self.id)
    }
}

/// The Ed25519 key pair that follows from one sealing key.
#[derive(Debug)]
pub(crate) struct ClusterKey {
    /// The pair, with the public key (RFC 7250) in place of a certificate.
    pub(crate) pair: Arc<CertifiedKey>,
    /// The name of the key in a handshake.
    pub(crate) fingerprint: DistinguishedName,
}

impl ClusterKey {
    pub(crate) fn derive(shared: &ClusterSecret) -> Result<Self, rustls::Error> {
        let seed = Sha256::new()
            .chain_update(SEED_LABEL)
            .chain_update([shared.id])
            .chain_update(shared.secret)
            .finalize();
        let der = [&PKCS8_PREFIX[..], &seed[..]].concat();
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(der))?;
        let public = key
            .public_key()
            .ok_or_else(|| rustls::Error::General("the key has no public key".to_owned()))?;
        let fingerprint = Sha256::new()
            .chain_update(FINGERPRINT_LABEL)
            .chain_update(&public)
            .finalize();
        let public = CertificateDer::from(public.as_ref().to_vec());
        Ok(Self {
            pair: Arc::new(CertifiedKey::new(vec![public], key)),
            fingerprint: DistinguishedName::in_sequence(&fingerprint),
        })
    }

    /// The public key in the form of RFC 7250.
    pub(crate) fn public(&self) -> &[u8] {
        self.pair.cert.first().map_or(&[], |key| key.as_ref())
    }
}
