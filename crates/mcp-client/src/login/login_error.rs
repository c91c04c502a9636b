//! The reasons why a login fails.

use std::time::Duration;

/// The time that a person may take in the browser.
pub(super) const BROWSER_TIMEOUT: Duration = Duration::from_secs(300);

/// The reason why a login failed. No message has a secret in it.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The URL is not http or https.
    #[error("`{}` is not an http or https URL", weir_text::url_without_credentials(.0))]
    Url(String),
    /// The URL has a user.
    #[error("{0} was given with a user or a password: leave them out")]
    UserInfo(String),
    /// An address that a server named is not safe to use.
    #[error("{what} is {url}, which is neither https nor on this machine")]
    Unsafe {
        /// The address's purpose.
        what: &'static str,
        /// The address.
        url: String,
    },
    /// No response came, or one that is invalid.
    #[error("{url}: {why}")]
    Web {
        /// The URL of the request.
        url: String,
        /// The reason.
        why: String,
    },
    /// The servers, or this machine's environment, lack a feature that a login needs.
    #[error("{0}")]
    Unfit(String),
    /// The authorization server refused.
    #[error("the authorization server refused: {0}")]
    Refused(String),
    /// The authorization server refused to refresh a token: the login has ended.
    #[error("{issuer} refused to refresh the token: {error}")]
    NotRefreshed {
        /// The authorization server.
        issuer: String,
        /// Its error.
        error: String,
    },
    /// The browser's answer is from another authorization server.
    #[error("the response came from another authorization server, and was not used")]
    WrongIssuer,
    /// The browser did not return in time.
    #[error("the browser did not return within {} minutes", BROWSER_TIMEOUT.as_secs() / 60)]
    TooLate,
    /// A file or socket of this machine failed.
    #[error("{what}: {error}")]
    Local {
        /// The operation.
        what: String,
        /// The error.
        error: std::io::Error,
    },
}

/// Returns a server's text without control characters, which could steer the terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
