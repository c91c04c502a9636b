//! Child processes that end with weir, and descriptors that move between processes.
//!
//! It knows programs, pipes and sockets, and no messages of MCP.

pub mod descriptors;
pub mod keeper;
