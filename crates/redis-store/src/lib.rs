//! State that replicas share, behind core's ports: in Redis or Valkey.

mod settings;

pub use settings::{RedisSettings, RedisTopology};
