//! Requests that one replica forwards to another: the one that owns their session or parked call.
//! The processes of a graceful restart forward requests to each other in the same form.
//!
//! The whole request of the client goes over, with its credentials, and the other replica checks it
//! like one of its own clients. What only the connection of the client knows goes in a header of
//! weir's own, which is read on the cluster listener alone.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use weir_core::call::RequestName;
use weir_core::port::{BoxFuture, ReplicaId};

use crate::request_body::BodyError;

/// The beginning of the names of all headers between processes of weir. No process sends such
/// headers of a client on.
const INTERNAL_PREFIX: &str = "weir-";

/// Removes the headers that only processes of weir may send to each other.
pub fn remove_internal_headers(headers: &mut HeaderMap) {
    let internal = |name: &&HeaderName| name.as_str().starts_with(INTERNAL_PREFIX);
    let names: Vec<_> = headers.keys().filter(internal).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The header with the [`ForwardedClient`] of a request.
pub const FORWARDED_HEADER: HeaderName = HeaderName::from_static("weir-forwarded");

/// The header of the answer of a replica that does not own the subject of the request, and has not
/// carried the request out. It names the owner.
pub const NOT_OWNER_HEADER: HeaderName = HeaderName::from_static("weir-not-owner");

/// The header that names the replica that answers, beside [`NOT_OWNER_HEADER`]. A replica that was
/// started at the address of another one is told from it by this.
pub const ANSWERED_BY_HEADER: HeaderName = HeaderName::from_static("weir-answered-by");

/// The header of a replica's own request for a task that another one keeps, with a
/// [`KeptTaskPart`].
pub const KEPT_TASK_HEADER: HeaderName = HeaderName::from_static("weir-kept-task");

/// The part of a kept task that a replica asks another one for, in the name of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptTaskPart {
    /// The state without the result, which the client does not get.
    Status,
    /// The state with the result, which the client gets.
    Whole,
}

impl KeptTaskPart {
    /// The value of [`KEPT_TASK_HEADER`].
    #[must_use]
    pub const fn to_header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Status => "status",
            Self::Whole => "whole",
        })
    }

    /// Reads a header value. `None` for an unknown one.
    #[must_use]
    pub fn from_header(value: &HeaderValue) -> Option<Self> {
        let parts = [Self::Status, Self::Whole];
        parts.into_iter().find(|part| part.to_header() == *value)
    }
}

/// [`ANSWERED_BY_HEADER`] with this replica. It is always there, because it is visible ASCII.
#[must_use]
pub fn answered_by_header(own: &ReplicaId) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::try_from(BASE64URL_NOPAD.encode(&own.0)).ok()?;
    Some((ANSWERED_BY_HEADER, value))
}

/// [`NOT_OWNER_HEADER`] with this owner. It is always there, because it is visible ASCII.
#[must_use]
pub fn not_owner_header(owner: &ReplicaId) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::try_from(BASE64URL_NOPAD.encode(&owner.0)).ok()?;
    Some((NOT_OWNER_HEADER, value))
}

/// The replica that a value of [`NOT_OWNER_HEADER`] or of [`ANSWERED_BY_HEADER`] names.
#[must_use]
pub fn replica_of_header(value: &HeaderValue) -> Option<ReplicaId> {
    ReplicaId::from_bytes(&BASE64URL_NOPAD.decode(value.as_bytes()).ok()?)
}

/// The other process of a graceful restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherProcess {
    /// The process that this one replaced.
    Predecessor,
    /// The process that replaces this one.
    Successor,
}

/// The connection of a client, as the replica that it is connected to describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedClient {
    /// The replica that forwards the request.
    pub forwarded_by: ReplicaId,
    /// The name of the request there: its logs, audit records and errors have it on both replicas.
    pub request: RequestName,
    /// The address of the other end of the client's connection.
    pub address: IpAddr,
    /// True if the connection uses TLS.
    pub secure: bool,
    /// The client certificate (DER, leaf), verified by the replica that forwards.
    pub certificate: Option<Arc<[u8]>>,
}

impl ForwardedClient {
    /// The value of [`FORWARDED_HEADER`]. It is always there, because it is visible ASCII.
    #[must_use]
    pub fn to_header(&self) -> Option<HeaderValue> {
        let by = BASE64URL_NOPAD.encode(&self.forwarded_by.0);
        let certificate = self
            .certificate
            .as_deref()
            .map(|certificate| BASE64URL_NOPAD.encode(certificate))
            .unwrap_or_default();
        let (address, secure) = (self.address, u8::from(self.secure));
        let request = self.request.as_str();
        HeaderValue::try_from(format!("1;{by};{request};{address};{secure};{certificate}")).ok()
    }

    /// Reads a header value. `None` for a malformed one, and one of another version.
    #[must_use]
    pub fn from_header(value: &HeaderValue) -> Option<Self> {
        let mut parts = value.to_str().ok()?.split(';');
        if parts.next()? != "1" {
            return None;
        }
        let by = BASE64URL_NOPAD.decode(parts.next()?.as_bytes()).ok()?;
        let request = u64::from_str_radix(parts.next()?, 16).ok()?;
        let address = parts.next()?.parse().ok()?;
        let secure = match parts.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let certificate = BASE64URL_NOPAD.decode(parts.next()?.as_bytes()).ok()?;
        let is_whole = parts.next().is_none();
        is_whole.then_some(Self {
            forwarded_by: ReplicaId::from_bytes(&by)?,
            request: RequestName::from_bits(request),
            address,
            secure,
            certificate: (!certificate.is_empty()).then(|| certificate.into()),
        })
    }
}

/// The kind of the sender of a forwarded request: it decides which service answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedSender {
    /// A client, of the clients' listener.
    Client,
    /// An operator, of the operators' listener.
    Operator,
    /// A replica, for a client of it whose task the other replica keeps.
    KeptTask(KeptTaskPart),
}

/// A request on its way to another replica.
pub struct ForwardedRequest {
    /// The kind of its sender.
    pub sender: ForwardedSender,
    /// Method, URI and headers, as the client sent them.
    pub head: Parts,
    /// The whole body.
    pub body: Bytes,
    /// The connection that it came over.
    pub client: ForwardedClient,
}

/// Without the head, which may have credentials.
impl fmt::Debug for ForwardedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedRequest")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The body of a forwarded answer. Dropping it ends the request at the other replica.
pub type ForwardedBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError> + Send>>;

/// The reason that a request was not answered by the other replica.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// The request did not run: there was no connection, or the other replica refused it unread.
    #[error("replica unreachable: {0}")]
    NotSent(String),
    /// The other replica did not carry the request out, because it is not the owner. It may know
    /// the owner.
    #[error("the replica does not own the session")]
    NotOwner(Option<ReplicaId>),
    /// The connection broke before an answer: the request may have run.
    #[error("connection to the replica lost: {0}")]
    Lost(String),
}

/// Sends requests of clients to other replicas, or to another process of a graceful restart.
pub trait RequestForwarder: fmt::Debug + Send + Sync {
    /// Sends a request to a replica, and returns its answer. Dropping the future ends the request
    /// there.
    fn forward<'a>(
        &'a self,
        to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>>;

    /// False once no request can be sent any more.
    fn takes_requests(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn forwarded_client_survives_its_header() {
        for (secure, certificate) in [(false, None), (true, Some(Arc::from(&b"der"[..])))] {
            let client = ForwardedClient {
                forwarded_by: ReplicaId(*b"replica1"),
                request: RequestName::from_bits(7),
                address: "2001:db8::7".parse().unwrap(),
                secure,
                certificate,
            };
            let header = client.to_header().unwrap();
            assert_eq!(ForwardedClient::from_header(&header), Some(client));
        }
    }

    #[test]
    fn malformed_forwarded_headers_are_refused() {
        for bad in [
            "",
            "1",
            "2;cmVwbGljYTE;07;::1;0;",
            "1;cmVwbGljYTE;07;::1;2;",
            "1;x;07;::1;0;",
            "1;cmVwbGljYTE;07;host;0;",
            "1;cmVwbGljYTE;07;::1;0;;",
        ] {
            assert_eq!(
                ForwardedClient::from_header(&HeaderValue::from_static(bad)),
                None,
                "{bad}"
            );
        }
    }
}
