//! The refusals of a request before its message is read.

/// A refusal by a request's head, its sender or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// Too many requests are in flight, or memory is short.
    Overloaded,
    /// The head has too many header lines.
    TooManyHeaders,
    /// `Host` is absent, given twice, or no host name.
    MalformedHost,
    /// `Host` names a host that is not served.
    UnknownHost,
    /// `Origin` names an origin that is not allowed.
    UnknownOrigin,
    /// No endpoint has this path.
    UnknownPath,
    /// The path may belong to a config file with errors.
    UnservedPath,
    /// A document is only to be read.
    ReadOnlyDocument,
    /// A header's name has an underscore.
    UnderscoreInHeaderName,
    /// A token stands in the URL.
    TokenInQuery,
    /// The endpoint does not take this method.
    MethodNotAllowed,
    /// A path of HTTP+SSE does not take this method.
    SseMethodNotAllowed,
    /// The client accepts no JSON or no event stream.
    NotAcceptable,
    /// The client accepts no event stream.
    EventStreamNotAccepted,
    /// The body is no JSON.
    NoJsonBody,
    /// The body is compressed.
    CompressedBody,
    /// A GET announces a body.
    BodyOfGet,
    /// A credential is given twice, or has other characters than visible ASCII.
    MalformedCredentials,
    /// The request has no credentials.
    CredentialsMissing,
    /// The credentials are not valid.
    CredentialsInvalid,
    /// Credentials cannot be checked now.
    VerifierUnavailable,
    /// An operator blocks this caller.
    Blocked,
    /// The credentials lack scopes of the endpoint.
    ScopesMissing,
    /// A rate limit is exhausted.
    RateLimited,
    /// The body is too large.
    BodyTooLarge,
    /// The body came too slowly.
    BodyTooSlow,
    /// The client broke the body off.
    BodyBrokenOff,
    /// Other requests hold all the memory for bodies.
    NoMemoryForBody,
    /// The caller has too many sessions.
    TooManySessions,
    /// No session can be opened or stored now.
    NoRoomForSession,
    /// Sessions cannot be read now.
    UnreadableSessions,
    /// The replica that owns the session cannot be reached, and none can take it over now.
    OwnerUnreachable,
    /// The replica that owns the session ended before it answered: the request may have run.
    OwnerLost,
    /// Another replica owns the session. Replicas alone hear this, over their own listener.
    NotOwner,
    /// The session to end is unknown.
    UnknownSession,
    /// The HTTP+SSE stream of a message is unknown.
    UnknownStream,
    /// The caller has too many open streams.
    TooManyStreams,
    /// As many streams are open as may be.
    NoRoomForStream,
    /// Too many messages of one HTTP+SSE client are being answered.
    TooManyMessages,
}

impl RequestRefusal {
    /// All refusals, in the order that requests meet them.
    pub(super) const ALL: [Self; 39] = [
        Self::Overloaded,
        Self::TooManyHeaders,
        Self::MalformedHost,
        Self::UnknownHost,
        Self::UnknownOrigin,
        Self::UnknownPath,
        Self::UnservedPath,
        Self::ReadOnlyDocument,
        Self::UnderscoreInHeaderName,
        Self::TokenInQuery,
        Self::MethodNotAllowed,
        Self::SseMethodNotAllowed,
        Self::NotAcceptable,
        Self::EventStreamNotAccepted,
        Self::NoJsonBody,
        Self::CompressedBody,
        Self::BodyOfGet,
        Self::MalformedCredentials,
        Self::CredentialsMissing,
        Self::CredentialsInvalid,
        Self::VerifierUnavailable,
        Self::Blocked,
        Self::ScopesMissing,
        Self::RateLimited,
        Self::BodyTooLarge,
        Self::BodyTooSlow,
        Self::BodyBrokenOff,
        Self::NoMemoryForBody,
        Self::TooManySessions,
        Self::NoRoomForSession,
        Self::UnreadableSessions,
        Self::OwnerUnreachable,
        Self::OwnerLost,
        Self::NotOwner,
        Self::UnknownSession,
        Self::UnknownStream,
        Self::TooManyStreams,
        Self::NoRoomForStream,
        Self::TooManyMessages,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_refusals_is_complete() {
        // The last variant's number is one less than their count.
        assert_eq!(
            RequestRefusal::TooManyMessages as usize + 1,
            RequestRefusal::ALL.len()
        );
        for (number, refusal) in RequestRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, number);
        }
    }
}
