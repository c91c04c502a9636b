//! Progress of tasks. A call's token holds until the task that it became is over (specification
//! 2025-11-25, Tasks, "Task Progress"), and progress under it then belongs to no request. It goes
//! to the request that waits for the task's result, or else to the client itself, on its own
//! standing stream. If both are missing, the newest report waits for the next request for the
//! result. The replica of the client does the same for a task that runs at another replica.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use weir_core::call::TaskMode;
use weir_core::session_notifier::{SessionMessage, SessionNotifier};
use weir_core::upstream::OutboundCall;
use weir_core::{Principal, SessionKey, UpstreamId};
use weir_era::{server_questions, upstream_messages};
use weir_wire::method::Method;
use weir_wire::{Message, related_task, scan};

/// The most calls of one upstream with tracked progress. Progress of further calls is dropped.
const MAX_TRACKED_CALLS: usize = 1024;
/// The most of them of one principal, so that no client takes the room of all. All anonymous
/// callers share one principal, so only the total binds it.
const MAX_TRACKED_CALLS_OF_A_PRINCIPAL: usize = 256;
/// The most reports that wait for a listener; more are dropped, since each supersedes the one
/// before.
const MAX_WAITING_REPORTS: usize = 8;

/// A task by its owner and the server's own task id.
type TaskProgressKey = (Principal, Arc<str>);

/// The recipients of progress, by request id.
#[derive(Debug)]
pub struct TaskProgress {
    state: Mutex<TaskProgressState>,
    upstream: UpstreamId,
    notifier: Arc<SessionNotifier>,
}

#[derive(Debug, Default)]
struct TaskProgressState {
    tracks: HashMap<u64, TrackedCall>,
    /// The newest listener of each task.
    listeners: HashMap<TaskProgressKey, mpsc::Sender<Bytes>>,
}

#[derive(Debug)]
struct TrackedCall {
    client: SessionKey,
    owner: Principal,
    /// The client's own progress token.
    token: Bytes,
    last: f64,
    /// The task that the call became, once that is known.
    task: Option<TaskProgressKey>,
    /// The newest report that was not delivered.
    undelivered: Option<Bytes>,
}

/// The tracking of one call. Dropping it ends the tracking.
#[derive(Debug)]
pub struct TaskProgressHandle {
    tracks: Arc<TaskProgress>,
    id: u64,
}

/// The tracking of one call's progress, as one process describes it to the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportedTaskProgress {
    /// The id of the call's request, which is its progress token at the server.
    id: u64,
    /// The client's own token, as JSON.
    token: String,
    /// The last progress; absent before the first report.
    last: Option<f64>,
}

/// A stream of the progress `params` of one task, under the client's own token, until the task is
/// over or a newer listener replaces it.
#[derive(Debug)]
pub struct TaskProgressStream {
    tracks: Arc<TaskProgress>,
    reports: mpsc::Receiver<Bytes>,
}

impl TaskProgress {
    /// Makes the tracker of this upstream, which notifies clients by `notifier`.
    pub fn new(upstream: UpstreamId, notifier: Arc<SessionNotifier>) -> Self {
        Self {
            state: Mutex::default(),
            upstream,
            notifier,
        }
    }

    /// Starts to track the progress of a call that is to become a task; absent if its client did
    /// not ask for progress, or cannot be notified.
    pub fn begin(self: &Arc<Self>, id: u64, outbound: &OutboundCall) -> Option<TaskProgressHandle> {
        let call = &outbound.call;
        let client = call
            .session
            .filter(|_| call.wants_progress && matches!(call.task_mode, TaskMode::Wanted { .. }))?;
        let token = call
            .params
            .meta()
            .ok()
            .flatten()?
            .progress_token()
            .ok()
            .flatten()?;
        let track = TrackedCall {
            client,
            owner: outbound.principal.clone(),
            token,
            last: f64::NEG_INFINITY,
            task: None,
            undelivered: None,
        };
        self.track(id, track)
    }

    /// Goes on to track the progress of a call of the previous process, which became this task of
    /// `owner`.
    pub fn import(
        self: &Arc<Self>,
        exported: ExportedTaskProgress,
        owner: &Principal,
        client: SessionKey,
        native: &str,
    ) -> Option<TaskProgressHandle> {
        let track = TrackedCall {
            client,
            owner: owner.clone(),
            token: exported.token.into(),
            last: exported.last.unwrap_or(f64::NEG_INFINITY),
            task: Some((owner.clone(), native.into())),
            undelivered: None,
        };
        self.track(exported.id, track)
    }

    fn track(self: &Arc<Self>, id: u64, track: TrackedCall) -> Option<TaskProgressHandle> {
        let mut state = self.state.lock();
        let owners = state.tracks.values().map(|track| &track.owner);
        if !has_room(&track.owner, owners) {
            return None;
        }
        state.tracks.insert(id, track);
        Some(TaskProgressHandle {
            tracks: self.clone(),
            id,
        })
    }

    /// Takes a message that belongs to no request; false if it is no progress of a task.
    pub fn take_progress(&self, message: &Message) -> bool {
        let Message::Notification(notification) = message else {
            return false;
        };
        let (Some(Method::Progress), Some(params)) =
            (notification.method.known(), &notification.params)
        else {
            return false;
        };
        upstream_messages::request_of(message).is_some_and(|id| self.take_report(id, params))
    }

    /// Takes the `params` of a report about the call of this id; false if the call is not tracked.
    fn take_report(&self, id: u64, params: &Bytes) -> bool {
        let at = scan::find(params, "progress").and_then(|range| {
            std::str::from_utf8(&params[range])
                .ok()?
                .trim()
                .parse::<f64>()
                .ok()
        });
        let mut state = self.state.lock();
        let Some(track) = state.tracks.get_mut(&id) else {
            return false;
        };
        let Some(at) = at.filter(|at| *at > track.last) else {
            return true;
        };
        track.last = at;
        let known = track.task.as_ref().map(|(_, native)| native.clone());
        let (client, report) = (
            track.client,
            server_questions::progress_params(params, &track.token),
        );
        if let Some(report) = report.filter(|report| !state.deliver(id, report)) {
            // The notifier has a lock of its own, and only one lock is held at a time.
            drop(state);
            let task = known.or_else(|| related_task::find(params).map(Arc::from));
            let upstream = self.upstream.clone();
            let message = SessionMessage::TaskProgress(upstream, task, report.clone());
            if self.notifier.notify(&client, message).is_err() {
                self.state.lock().keep(id, report);
            }
        }
        true
    }

    /// Listens to the progress of a task from now on, and gets the undelivered report.
    pub fn listen(self: &Arc<Self>, task: TaskProgressKey) -> Option<TaskProgressStream> {
        let (sender, reports) = mpsc::channel(MAX_WAITING_REPORTS);
        let mut state = self.state.lock();
        let owners = state.listeners.keys().map(|(owner, _)| owner);
        if !has_room(&task.0, owners) {
            return None;
        }
        let own = |track: &&mut TrackedCall| track.task.as_ref() == Some(&task);
        if let Some(unheard) = state
            .tracks
            .values_mut()
            .find(own)
            .and_then(|track| track.undelivered.take())
        {
            // There is room: it is the first.
            let _full = sender.try_send(unheard);
        }
        state.listeners.insert(task, sender);
        Some(TaskProgressStream {
            tracks: self.clone(),
            reports,
        })
    }

    /// True if the progress of a task is tracked.
    pub fn tracks(&self, task: &TaskProgressKey) -> bool {
        let state = self.state.lock();
        let mut tracks = state.tracks.values();
        tracks.any(|track| track.task.as_ref() == Some(task))
    }

    /// Ends the tracking of a task that is over. Its listener still gets the reports from before.
    pub fn end_task(&self, task: &TaskProgressKey) {
        let mut state = self.state.lock();
        state
            .tracks
            .retain(|_, track| track.task.as_ref() != Some(task));
        state.listeners.remove(task);
    }
}

/// True if there is room for a further call of `owner` beside those of `owners`.
fn has_room<'a>(owner: &Principal, owners: impl ExactSizeIterator<Item = &'a Principal>) -> bool {
    owners.len() < MAX_TRACKED_CALLS
        && (owner.is_anonymous()
            || owners.filter(|one| *one == owner).count() < MAX_TRACKED_CALLS_OF_A_PRINCIPAL)
}

impl TaskProgressState {
    /// Sends a report to the listener of its task; false if there is none.
    fn deliver(&self, id: u64, report: &Bytes) -> bool {
        let task = self.tracks.get(&id).and_then(|track| track.task.as_ref());
        let Some(sender) = task
            .and_then(|task| self.listeners.get(task))
            .filter(|sender| !sender.is_closed())
        else {
            return false;
        };
        // A listener that does not read gets a later report.
        let _full = sender.try_send(report.clone());
        true
    }

    /// Keeps a report for the next listener, unless one has come by now.
    fn keep(&mut self, id: u64, report: Bytes) {
        if !self.deliver(id, &report)
            && let Some(track) = self.tracks.get_mut(&id)
        {
            track.undelivered = Some(report);
        }
    }
}

impl TaskProgressHandle {
    /// Describes the tracking for the next process; absent after its end.
    pub fn export(&self) -> Option<ExportedTaskProgress> {
        let state = self.tracks.state.lock();
        let track = state.tracks.get(&self.id)?;
        Some(ExportedTaskProgress {
            id: self.id,
            token: String::from_utf8(track.token.to_vec()).ok()?,
            last: track.last.is_finite().then_some(track.last),
        })
    }

    /// Takes the `params` of a report about the call that came from another replica.
    pub fn take_report(&self, params: &Bytes) {
        // The tracking may have ended with its task.
        let _is_tracked = self.tracks.take_report(self.id, params);
    }

    /// Notes that the call became the task of this answer.
    pub fn set_task(&self, created: &Bytes) {
        let native = scan::find(created, "taskId").and_then(|at| scan::string(&created[at]));
        if let (Some(native), Some(track)) =
            (native, self.tracks.state.lock().tracks.get_mut(&self.id))
        {
            track.task = Some((track.owner.clone(), (*native).into()));
        }
    }
}

impl Drop for TaskProgressHandle {
    fn drop(&mut self) {
        self.tracks.state.lock().tracks.remove(&self.id);
    }
}

impl futures_util::Stream for TaskProgressStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.reports.poll_recv(cx)
    }
}

impl Drop for TaskProgressStream {
    fn drop(&mut self) {
        self.reports.close();
        self.tracks
            .state
            .lock()
            .listeners
            .retain(|_, sender| !sender.is_closed());
    }
}
