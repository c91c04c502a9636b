//! The open streams of all clients, with the permits that limit their number.

use std::sync::Arc;

use crate::permits::StreamPermits;
use crate::stream_registry::StreamRegistry;

/// The open streams of all clients, and the permits in use.
#[derive(Debug, Default)]
pub struct OpenStreams {
    /// The streams, by their owners.
    pub registry: Arc<StreamRegistry>,
    /// Permits for open listen and GET streams.
    pub permits: Arc<StreamPermits>,
    /// Permits for resources that clients subscribed to.
    pub subscription_permits: Arc<StreamPermits>,
}
