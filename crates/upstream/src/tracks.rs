//! Progress of tasks. A call's token holds until the task that it became is over (2025-11-25, tasks, "Task Progress"), and what
//! comes under it then belongs to no request any more: it is told to the client itself, on its own standing stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weir_core::bell::Ring;
use weir_core::call::AsTask;
use weir_core::{Call, SessionKey};
use weir_era::{asks, hop};
use weir_wire::method::Method;
use weir_wire::{Message, scan};

use crate::site::Site;

/// Calls of one upstream whose progress is led to their clients. Of more nothing is told.
const MOST: usize = 1024;

/// Who hears of what comes under which id.
#[derive(Debug, Default)]
pub(crate) struct Tracks(Mutex<HashMap<u64, Track>>);

#[derive(Debug)]
struct Track {
    client: SessionKey,
    /// The client's own.
    token: Bytes,
    last: f64,
}

/// Dropping it ends the telling.
#[derive(Debug)]
pub(crate) struct Tracked {
    tracks: Arc<Tracks>,
    id: u64,
}

impl Tracks {
    /// Begins to lead the progress of a call that is to become a task; `None` where its client did not ask for any, or cannot
    /// be told.
    pub(crate) fn begin(self: &Arc<Self>, id: u64, call: &Call) -> Option<Tracked> {
        let client = call.session.filter(|_| call.wants_progress && matches!(call.as_task, AsTask::Wanted { .. }))?;
        let token = call.params.meta().ok().flatten()?.progress_token().ok().flatten()?;
        let mut tracks = self.lock();
        if tracks.len() >= MOST {
            return None;
        }
        tracks.insert(id, Track { client, token, last: f64::NEG_INFINITY });
        Some(Tracked { tracks: self.clone(), id })
    }

    /// Takes what belongs to no request; false where it is no progress of a task.
    pub(crate) fn take(&self, site: &Site, message: &Message) -> bool {
        let Message::Notification(told) = message else { return false };
        let (Some(Method::Progress), Some(params)) = (told.method.known(), &told.params) else { return false };
        let at = scan::find(params, "progress")
            .and_then(|range| std::str::from_utf8(&params[range]).ok()?.trim().parse::<f64>().ok());
        let mut tracks = self.lock();
        let Some(track) = hop::addressee(message).and_then(|id| tracks.get_mut(&id)) else { return false };
        let Some(at) = at.filter(|at| *at > track.last) else { return true };
        track.last = at;
        let (client, said) = (track.client, asks::progress(params, &track.token));
        drop(tracks);
        if let Some(said) = said {
            // A client that has no stream now is told of the next.
            let _unheard = site.bells.ring(&client, Ring::Said(said));
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Track>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.tracks.lock().remove(&self.id);
    }
}
