//! The person's choices for a login.

/// The person's choices on the command line.
#[derive(Debug, Default)]
pub struct LoginChoices {
    /// A client id that the authorization server knows; without one this client registers itself.
    pub client_id: Option<String>,
    /// Scopes, separated by spaces, beyond those that the server asks for.
    pub scope: Option<String>,
    /// The authorization server, if the resource names several.
    pub issuer: Option<String>,
    /// The port of the redirect, if the authorization server requires a certain one.
    pub port: Option<u16>,
}
