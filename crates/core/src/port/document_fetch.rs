//! The port that fetches documents.

use std::time::Duration;

use bytes::Bytes;

use crate::failure::Failure;
use crate::port::BoxFuture;
use crate::port::borrowed_secret::BorrowedSecret;

/// Fetches a document by URL, for crates that may not open sockets: bounded in bytes and time,
/// without redirects.
pub trait DocumentFetcher: std::fmt::Debug + Send + Sync {
    /// Makes a request and reads its response, with any status. Dropping the future ends the
    /// request.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `TimedOut` or `BadAnswer` (too large): no whole response came.
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> BoxFuture<'a, Result<FetchResponse, Failure>>;
}

/// A request for [`DocumentFetcher`].
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// An absolute `http` or `https` URL.
    pub url: &'a str,
    /// The body of a POST, `application/x-www-form-urlencoded`; without one the request is a GET.
    /// May hold secrets.
    pub form: Option<BorrowedSecret<'a>>,
    /// The whole `Authorization` header, if there is one.
    pub authorization: Option<BorrowedSecret<'a>>,
    /// The most bytes of a body.
    pub limit: usize,
    /// The time for all of it.
    pub timeout: Duration,
    /// The source of the URL: one that an outsider names may reach public addresses only.
    pub url_source: UrlSource,
}

/// The source of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// The operator's config: any address, also loopback and private ones.
    Operator,
    /// Any other source, such as an upstream's metadata: `https` and public addresses only (C18).
    Outsider,
}

/// The response to a [`DocumentFetcher`].
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The status of the answer.
    pub status: u16,
    /// The time for which the response may be kept, if its `Cache-Control` has a `max-age`.
    pub max_age: Option<Duration>,
    /// The body.
    pub body: Bytes,
}
