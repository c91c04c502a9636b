//! What a request does with its session: it is kept in use, and its replay log is written and
//! read.

pub(crate) mod replay;
pub(crate) mod session_use;
