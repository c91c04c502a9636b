//! Where weir does not go because somebody else said so: the guard of every URL that an outsider
//! names.
//!
//! What the operator's config names may be anywhere, loopback and private networks included. What
//! an upstream, or a document of one, names may be `https` at a public address only. The name is
//! resolved once, every address of the answer is checked, and the addresses that were checked are
//! the ones that are dialled: there is no second look-up that could give another answer. Redirects
//! are not followed by any client of weir's.

mod address;
mod dial;
mod target;

pub(crate) use dial::{Checked, Guarded};
pub(crate) use target::target;

/// Why a URL of an outsider's is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It is no URL, or one that programs read in different ways.
    #[error("it is not a plain URL")]
    Malformed,
    /// Its scheme is not `https`.
    #[error("it is not https")]
    Scheme,
    /// It carries a user or a password.
    #[error("it has credentials in it")]
    Credentials,
    /// Its port is not one of HTTPS.
    #[error("its port is neither 443 nor 8443")]
    Port,
    /// Its host, or an address that its host resolves to, is not on the public Internet.
    #[error("its host is not a public one")]
    Address,
}
