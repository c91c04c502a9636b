//! The layers of a request, a file each; [`crate::router`] puts them in order. None of them knows
//! MCP.

pub(crate) mod authenticate;
pub(crate) mod check;
pub(crate) mod cors;
pub(crate) mod help_page;
pub(crate) mod isolate_panics;
pub(crate) mod observe;
pub(crate) mod read_body;
pub(crate) mod respond;
pub(crate) mod sender_check;
pub(crate) mod shed;
