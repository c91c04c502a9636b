//! Logins through weir: a real authorization server, and clients that know only an endpoint's URL.

mod login_command;
mod oauth_clients;
mod oauth_zoo;
mod operator_tokens;
mod planted_secrets;
