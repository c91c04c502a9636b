//! The layers of a request, a file each; the router of `front` puts them in order. None of them knows
//! MCP.

pub mod answer_request;
pub mod authenticate;
pub mod check;
pub mod cors;
pub mod cors_refusals;
pub mod endpoint_check;
mod help_page;
pub mod isolate_panics;
pub mod observe;
pub mod principal_rate;
pub mod read_body;
pub mod respond;
pub mod sender_check;
pub mod shed;
