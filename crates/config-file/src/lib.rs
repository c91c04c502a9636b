//! The config file, from text to the declared types: documents with positions, references to the
//! environment, the declarations of all keys, and files of other programs. No value is checked here:
//! that is `weir-config`.
//!
//! The declarations in [`raw`] are the one place of a key: its JSON Schema, its row of
//! `docs/configuration.md`, and the knowledge that it protects or not are made of them.

pub mod config_files;
pub mod config_report;
pub mod config_secret;
pub mod config_tree;
mod configuration_page;
pub mod decode;
pub mod document;
pub mod edit;
pub mod env;
pub mod foreign;
pub mod host_pattern;
pub mod http_url;
pub mod json;
mod line_index;
pub mod local_host;
pub mod placeholder;
pub mod raw;
pub mod schema;
pub mod team_trees;
mod toml;
pub mod upstream_slug;

pub use configuration_page::configuration_page;
