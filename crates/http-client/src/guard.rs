//! The guard of every URL that an outsider names, against server-side request forgery.
//!
//! A URL of the operator's config may point anywhere, loopback and private networks included. A URL
//! from an upstream, or from a document of one, may only be `https` at a public address. The name
//! is resolved once, every address of the answer is checked, and only the checked addresses are
//! dialled: no second look-up could give another answer. No client of weir follows redirects.
//! A forward proxy dials what it is asked for: it gets no private address, and no name that this
//! machine resolves to one.

pub(crate) mod guarded_connector;
mod public_address;
mod url_check;

pub(crate) use url_check::check_url;

/// The reason for not opening a URL of an outsider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlRefusal {
    /// The text is no URL, or one that programs read in different ways.
    #[error("it is not a plain URL")]
    Malformed,
    /// The scheme is not `https`.
    #[error("it is not https")]
    Scheme,
    /// The URL carries a user or a password.
    #[error("it has credentials in it")]
    Credentials,
    /// The port is not one of HTTPS.
    #[error("its port is neither 443 nor 8443")]
    Port,
    /// The host, or an address that it resolves to, is not on the public Internet.
    #[error("its host is not a public one")]
    Address,
}
