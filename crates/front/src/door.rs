//! The doors of both eras: a whole request is decoded, its era is decided once, and it is lifted.

pub(crate) mod legacy;
pub(crate) mod mcp_service;
pub(crate) mod modern;
pub(crate) mod sse_transport;
