//! The binary `weir`: the table of commands, and the commands that run a gateway in their process.
//!
//! It holds no logic of the protocol: it never parses JSON-RPC by itself.

pub mod cli;
mod quickstart;
mod reload;
mod serve;
