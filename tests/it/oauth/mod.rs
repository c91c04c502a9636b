//! Logins through weir: a real authorization server, and clients that know only an endpoint's URL.

mod canary;
mod clients;
mod login;
mod operators;
mod world;
