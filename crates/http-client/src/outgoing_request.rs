//! A request as a connection writes it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri};

/// A header field of a request.
pub type HeaderField = (HeaderName, HeaderValue);

/// One request. Its own fields replace the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) usual: &'a [HeaderField],
    pub(crate) own: &'a [HeaderField],
    pub(crate) body: &'a Bytes,
}

impl<'a> OutgoingRequest<'a> {
    /// Returns the fields to send.
    pub(super) fn fields(self) -> impl Iterator<Item = &'a HeaderField> {
        let usual = self
            .usual
            .iter()
            .filter(move |(name, _)| self.own.iter().all(|(other, _)| other != name));
        usual.chain(self.own)
    }
}
