//! Sessions in memory, for the tests of this folder.

use std::sync::Arc;

use weir_core::SessionKey;
use weir_store::{MemoryBus, MemoryRecords, MemoryReplays, RecordCaps, ReplayCaps};
use weir_testkit::{FakeRandom, TokioClock};

use crate::session_ids::SessionIds;
use crate::session_settings::SessionPorts;
use crate::sessions::session_table::LegacySessions;

pub(super) const KEY: SessionKey = SessionKey([1; 16]);

pub(super) fn sessions() -> Arc<LegacySessions> {
    let clock = Arc::new(TokioClock::new());
    Arc::new(LegacySessions::new(SessionPorts {
        ids: SessionIds::Random,
        records: Arc::new(MemoryRecords::new(clock.clone(), RecordCaps::default())),
        bus: Arc::new(MemoryBus::default()),
        replays: Arc::new(MemoryReplays::new(clock.clone(), ReplayCaps::default())),
        clock,
        random: Arc::new(FakeRandom::new(1)),
    }))
}
