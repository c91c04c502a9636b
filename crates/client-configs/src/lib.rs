//! The config files of MCP client programs, such as editors and assistants: the entries for weir in
//! them, and the servers that a person imports from them.

pub mod import;
pub mod mcp_clients;
