//! Replies of calls: who owns a running call, the questions to its client, and the encoding of its
//! answer.

pub(crate) mod client_asker;
pub(crate) mod client_questions;
pub(crate) mod encode;
pub(crate) mod running_call;
pub(crate) mod url_visits;
