//! The credentials of an open stream, for checks while it is open.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use weir_core::port::{BorrowedSecret, Evidence};
use weir_core::{EndpointId, Principal};

/// The credentials of a request that opened a stream, or of a message to it. They end with the
/// stream, go to the verifier alone, and cannot be printed.
pub struct StreamCredentials {
    /// The principal that they prove.
    pub principal: Principal,
    /// The bearer token.
    pub bearer: Option<Box<str>>,
    /// The API key.
    pub api_key: Option<Box<str>>,
    /// The certificate of the connection.
    pub certificate: Option<Arc<[u8]>>,
    /// The address of the client.
    pub peer: IpAddr,
    /// The endpoint of the stream.
    pub endpoint: EndpointId,
}

impl StreamCredentials {
    /// The evidence for the verifier.
    #[must_use]
    pub fn evidence(&self) -> Evidence<'_> {
        Evidence {
            bearer: self.bearer.as_deref().map(BorrowedSecret::new),
            api_key: self.api_key.as_deref().map(BorrowedSecret::new),
            certificate: self.certificate.as_deref(),
            peer: self.peer,
            endpoint: &self.endpoint,
        }
    }

    /// The end of the credentials, if it is known.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.principal.expires()
    }

    /// True if a stream of `principal` may go on with these: its rights do not change.
    #[must_use]
    pub fn can_replace(&self, principal: &Principal) -> bool {
        self.principal.has_same_claims(principal)
    }
}

impl fmt::Debug for StreamCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}
