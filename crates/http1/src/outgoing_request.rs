//! A request as a connection writes it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri};

/// A header field of a request.
pub type HeaderField = (HeaderName, HeaderValue);

/// One request. Its own fields replace the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URL.
    pub uri: &'a Uri,
    /// The fields of every request.
    pub usual: &'a [HeaderField],
    /// Its own fields.
    pub own: &'a [HeaderField],
    /// Its body.
    pub body: &'a Bytes,
}

impl<'a> OutgoingRequest<'a> {
    /// Returns the fields to send.
    pub fn fields(self) -> impl Iterator<Item = &'a HeaderField> {
        let usual = self
            .usual
            .iter()
            .filter(move |(name, _)| self.own.iter().all(|(other, _)| other != name));
        usual.chain(self.own)
    }
}
