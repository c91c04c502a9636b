//! The layers that a request passes before its message is read, what they share about it, and the
//! one table that turns failures into responses ([`failure`]).
//!
//! It chooses every HTTP status of the client side, and knows no handler of a method. `front` puts
//! the layers in their order.

pub mod failure;
pub mod http;
pub mod in_flight;
pub mod layer;
pub mod memory_pressure;
pub mod outer_rules;
pub mod outer_state;
pub mod page_cache;
pub mod ports;
pub mod request;
pub mod settings;
pub mod shutdown;
pub mod state;
mod sync;
