//! The composition of a gateway: the only crate that knows all its parts. It starts them from a
//! config, applies another config to them, hands them over to a new process, and stops them.

mod clients;
mod front_settings;
mod help_page;
mod weir;

pub use weir::Weir;
pub use weir::errors::{ReloadError, StartError};
pub use weir::exposure::Exposure;
