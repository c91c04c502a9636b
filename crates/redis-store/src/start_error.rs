//! The errors of settings of the shared store.

/// Invalid settings. An unreachable server is no error of the settings. URLs are not in the texts:
/// they may have a password.
#[derive(Debug, thiserror::Error)]
pub enum RedisStartError {
    /// There is no URL.
    #[error("the shared store needs a URL")]
    NoUrl,
    /// A URL is not one of a server.
    #[error("URL {number} of the shared store is invalid: {reason}")]
    BadUrl {
        /// Its place in the list, from 1.
        number: usize,
        /// The error.
        reason: String,
    },
    /// The URLs do not fit together, or do not fit the kind of servers.
    #[error("the settings of the shared store are invalid: {0}")]
    BadSettings(String),
}
