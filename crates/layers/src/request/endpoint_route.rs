//! The route of a request: the endpoint, with all that its layers and methods share.

use std::sync::Arc;

use weir_core::EndpointId;
use weir_era::render::WeirIdentity;

use crate::request::endpoint_meters::EndpointMeters;
use crate::settings::FrontSettings;
use crate::state::FrontState;

/// An endpoint of one configuration.
#[derive(Debug)]
pub struct EndpointRoute {
    /// The state that survives a reload.
    pub shared: Arc<FrontState>,
    /// The settings of its configuration.
    pub settings: Arc<FrontSettings>,
    /// The name and version of weir in results.
    pub identity: Arc<WeirIdentity>,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The metrics of the endpoint.
    pub meters: Arc<EndpointMeters>,
}
