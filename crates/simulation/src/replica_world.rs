//! The parts of the world that a replica is in.

use crate::host::HostClock;
use crate::links::HostName;
use crate::network::Network;
use crate::options::PlantedFault;
use crate::seeded::Seeded;
use crate::tool_server::ToolServer;

/// The parts of the world that a replica is in.
#[derive(Clone)]
pub(crate) struct ReplicaWorld {
    pub(crate) network: Network,
    pub(crate) host: HostName,
    pub(crate) clock: HostClock,
    pub(crate) random: Seeded,
    pub(crate) tools: ToolServer,
    pub(crate) planted: Option<PlantedFault>,
}
