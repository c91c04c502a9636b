//! Looks at records that other replicas took over or ended: each look is a write of the copy that is
//! here, which the store refuses if the copy is of no use.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;
use weir_core::port::{BusMessage, RecordKey, ReplicaId};

use crate::record_notices::OWN_BYTES;
use crate::record_seal::{RecordName, record_name};
use crate::record_writer::RecordWriter;

/// The time for further notices before a look: a replica that ends moves many records at once.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// The records to look at.
#[derive(Default)]
struct NoticedRecords {
    names: HashSet<RecordName>,
    /// Notices were missed.
    has_gap: bool,
}

/// Looks at the records that others moved. It ends with the bus.
pub(crate) async fn keep_looking(
    own: ReplicaId,
    writer: Arc<RecordWriter>,
    mut notices: Receiver<BusMessage>,
) {
    loop {
        let mut noticed = NoticedRecords::default();
        match notices.recv().await {
            Ok(message) => noticed.add(&own, &message.body),
            Err(RecvError::Lagged(_)) => noticed.has_gap = true,
            Err(RecvError::Closed) => return,
        }
        if noticed.is_empty() {
            continue;
        }
        sleep(GATHER_TIME).await;
        loop {
            match notices.try_recv() {
                Ok(message) => noticed.add(&own, &message.body),
                Err(TryRecvError::Lagged(_)) => noticed.has_gap = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        writer.write_again(|key| noticed.has(key));
    }
}

impl NoticedRecords {
    fn add(&mut self, own: &ReplicaId, body: &[u8]) {
        if let Some((sender, name)) = body.split_first_chunk::<OWN_BYTES>()
            && *sender != own.0
            && let Ok(name) = name.try_into()
        {
            self.names.insert(name);
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_gap
    }

    fn has(&self, key: &RecordKey) -> bool {
        self.has_gap || self.names.contains(&record_name(key))
    }
}
