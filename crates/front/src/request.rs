//! One request: its context, its facts, its labels and its trace.

pub(crate) mod endpoint_meters;
pub(crate) mod endpoint_request;
pub(crate) mod outcome;
pub(crate) mod request_context;
pub(crate) mod request_facts;
pub(crate) mod request_span;
pub(crate) mod request_tracing;
