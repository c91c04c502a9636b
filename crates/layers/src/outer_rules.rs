//! The rules of the layers around the router. A request finds them in its facts.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use tower_http::cors::CorsLayer;

use crate::http::cors_headers::{allowed_origins, cors_layer};
use crate::http::head_guard::HeadGuard;
use crate::outer_state::OuterState;
use crate::settings::FrontSettings;

/// The rules of one configuration, shared by all its requests.
#[derive(Debug)]
pub struct OuterRules {
    /// The settings of the configuration.
    pub settings: Arc<FrontSettings>,
    /// The state that survives a reload.
    pub(crate) state: Arc<OuterState>,
    /// The checks of heads.
    pub(crate) guard: HeadGuard,
    /// Paths of documents that pages of every origin may read.
    pub(crate) public_paths: HashSet<String>,
    /// The origins whose pages may read the other answers.
    pub(crate) origins: HashSet<HeaderValue>,
    /// The headers for pages of these origins; absent without origins.
    pub(crate) cors: Option<CorsLayer>,
}

impl OuterRules {
    /// The rules of these settings, for a listener at this address.
    pub fn new(
        settings: Arc<FrontSettings>,
        address: SocketAddr,
        state: Arc<OuterState>,
        public_paths: HashSet<String>,
    ) -> Self {
        Self {
            guard: HeadGuard::new(&settings, address),
            origins: allowed_origins(&settings).collect(),
            cors: cors_layer(&settings),
            settings,
            state,
            public_paths,
        }
    }
}
