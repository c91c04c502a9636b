//! Waits for a task's result in its client's stead: polls its state until it is over, and asks its
//! questions on the way.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use weir_core::Authenticated;
use weir_core::call::Call;
use weir_core::failure::Failure;
use weir_core::names::UpstreamId;
use weir_core::question::{
    AnswerEvent, AnswerReceiver, ELICITATION_IDS, PendingQuestion, UpstreamQuestion,
};
use weir_core::reply::{NoteKind, Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
use weir_core::upstream::ProgressReports;
use weir_wire::method::Method;
use weir_wire::splice::ObjectEdits;
use weir_wire::{related_task, scan};

use crate::reply_cleaning;
use crate::tasks::TaskRequests;
use crate::tasks::waited_task::{
    MIN_POLL_INTERVAL, TaskAnswers, TaskResultForm, WaitedTask, of_key, poll_interval,
};

/// The longest wait. The task goes on, and can be waited for again.
const MAX_WAIT: Duration = Duration::from_secs(3600);
impl TaskRequests {
    /// Waits for the result of a task (2025-11-25, `tasks/result`). The task's questions come as
    /// questions of the reply, its changes as notes. Dropping the reply ends the waiting, not the
    /// task.
    pub fn task_result(&self, call: Authenticated<Arc<Call>>) -> Reply {
        self.wait(call, TaskResultForm::AsTask, Instant::now() + MAX_WAIT)
    }

    /// Follows the task that a call of a client without tasks became, at most until `until`, and
    /// cancels the task if it is dropped or ends before the task.
    pub(super) fn await_task(&self, call: Authenticated<Arc<Call>>, until: Instant) -> Reply {
        self.wait(call, TaskResultForm::AsCall, until)
    }

    fn wait(&self, call: Authenticated<Arc<Call>>, form: TaskResultForm, until: Instant) -> Reply {
        let (upstream, reports) = self.upstream_of(&call).unzip();
        let task = WaitedTask::new(self.clone(), call, form, upstream);
        let waiting = TaskResultWait {
            changes: task.watch_changes(),
            task,
            reports: reports.flatten(),
            asked_keys: HashSet::new(),
            open: Vec::new(),
            queued: VecDeque::new(),
            status: None,
            next: Instant::now(),
            until,
            is_over: false,
        };
        let events = stream::unfold(Some(waiting), |waiting| async move {
            let mut waiting = waiting?;
            let event = waiting.next().await;
            let rest = if matches!(event, ReplyEvent::End(_)) {
                None
            } else {
                Some(waiting)
            };
            Some((event, rest))
        });
        let events: Pin<Box<dyn futures_util::Stream<Item = ReplyEvent> + Send>> = Box::pin(events);
        Reply::live(events)
    }

    /// The upstream of a task's questions, and its progress notifications.
    fn upstream_of(
        &self,
        call: &Authenticated<Arc<Call>>,
    ) -> Option<(UpstreamId, Option<ProgressReports>)> {
        let name = call.inner().params.task_id().ok().flatten()?;
        let home = self
            .names
            .as_ref()?
            .locate(call.principal(), &call.inner().endpoint, &name)?;
        let upstream = self
            .catalog
            .upstream_of_task(
                &home.upstream,
                home.incarnation,
                call.principal(),
                &home.native,
            )
            .filter(|_| !home.is_own && !self.is_hidden(call, &home));
        let reports =
            upstream.and_then(|upstream| upstream.task_progress(call.principal(), &home.native));
        Some((home.upstream, reports))
    }
}

struct TaskResultWait {
    task: WaitedTask,
    /// Announcements of answers and cancellations, of this wait and of others.
    changes: watch::Receiver<u64>,
    reports: Option<ProgressReports>,
    /// Keys of the questions so far; no key comes twice in the life of a task.
    asked_keys: HashSet<String>,
    open: Vec<OpenTaskQuestion>,
    queued: VecDeque<ReplyEvent>,
    status: Option<String>,
    next: Instant,
    until: Instant,
    /// True once the task was seen to be over.
    is_over: bool,
}

impl Drop for TaskResultWait {
    fn drop(&mut self) {
        // A client without tasks cannot name the task, and so not ask for its result later.
        if self.task.form == TaskResultForm::AsCall && !self.is_over {
            self.task.cancel_unawaited();
        }
    }
}

struct OpenTaskQuestion {
    key: String,
    method: Method,
    answer: AnswerReceiver,
}

impl TaskResultWait {
    async fn next(&mut self) -> ReplyEvent {
        loop {
            if let Some(event) = self.queued.pop_front() {
                return event;
            }
            let Ok(done) = timeout_at(self.until, self.step()).await else {
                return ReplyEvent::End(self.task.waited_too_long().into());
            };
            let end = match done {
                Ok(None) => continue,
                Ok(Some(end)) => end,
                Err(failure) => failure.into(),
            };
            // Progress from before the end is delivered before it.
            while let Some(report) = next_report(&mut self.reports).now_or_never() {
                self.queue_progress(report);
            }
            self.queued.push_back(ReplyEvent::End(end));
        }
    }

    /// Waits for the next answer, progress notification, change or poll; returns the end if the task
    /// is over. Dropping the future may lose an answer.
    async fn step(&mut self) -> Result<Option<ReplyEnd>, Failure> {
        tokio::select! {
            biased;
            (key, method, word) = poll_fn(|cx| poll_answer(&mut self.open, cx)) => self.pass_answer(&key, method, word).await,
            report = next_report(&mut self.reports) => {
                self.queue_progress(report);
                Ok(None)
            }
            // The task owns the sender.
            Ok(()) = self.changes.changed() => {
                self.next = self.next.min(Instant::now() + MIN_POLL_INTERVAL);
                Ok(None)
            }
            () = sleep_until(self.next) => self.poll_task().await,
        }
    }

    /// Queues a progress notification: on its own call's stream under the token of that call, else
    /// under the one of the call that became the task, which it names.
    fn queue_progress(&mut self, params: Bytes) {
        let kind = if self.task.form == TaskResultForm::AsCall {
            NoteKind::Progress
        } else {
            NoteKind::Other(Method::Progress)
        };
        let params = self.related(params);
        self.queued
            .push_back(ReplyEvent::Note(ReplyNote { kind, params }));
    }

    /// Polls the task; returns the end if it is over.
    async fn poll_task(&mut self) -> Result<Option<ReplyEnd>, Failure> {
        let (polled, state) = self.task.state().await?;
        self.next = polled + poll_interval(&state);
        let status = scan::find(&state, "status")
            .and_then(|at| scan::string(&state[at]))
            .unwrap_or_default();
        let has_changed = self
            .status
            .as_deref()
            .is_some_and(|before| before != status);
        self.status = Some(status.to_string());
        self.is_over = matches!(&*status, "completed" | "failed" | "cancelled");
        if has_changed && self.task.form == TaskResultForm::AsTask {
            let note = ReplyNote {
                kind: NoteKind::Other(Method::TasksStatus),
                params: state.clone(),
            };
            self.queued.push_back(ReplyEvent::Note(note));
        }
        match &*status {
            "completed" => {
                let at = scan::find(&state, "result").ok_or_else(|| self.task.without_result())?;
                let result = state.slice(at);
                self.task.note_fetched(&state);
                // The server's own result has no number of weir's: it is cleaned later.
                let removed = match self.task.form {
                    TaskResultForm::AsTask => reply_cleaning::removed_count_of(&result),
                    TaskResultForm::AsCall => 0,
                };
                Ok(Some(reply_cleaning::with_removed_count(
                    removed,
                    ReplyEnd::Complete(Payload::Whole(result)),
                )))
            }
            "failed" => Err(self.task.failed(&state)),
            "cancelled" => Err(self.task.cancelled()),
            _ => {
                self.queue_questions(&state);
                Ok(None)
            }
        }
    }

    /// Queues the task's questions that were not asked yet.
    fn queue_questions(&mut self, state: &Bytes) {
        let (Some(range), Some(upstream)) =
            (scan::find(state, "inputRequests"), &self.task.upstream)
        else {
            return;
        };
        let requests = state.slice(range);
        for member in scan::members(&requests) {
            let (key, request) = (
                member.key.decode().into_owned(),
                requests.slice(member.value),
            );
            let method = scan::find(&request, "method").and_then(|at| scan::string(&request[at]));
            let Some(method) = method.and_then(|method| Method::parse(&method)) else {
                continue;
            };
            if self.task.is_answered(&key) || !self.asked_keys.insert(key.clone()) {
                continue;
            }
            let params = scan::find(&request, "params")
                .map_or(Bytes::from_static(b"{}"), |at| request.slice(at));
            let (mut ask, answers) = PendingQuestion::new(
                UpstreamQuestion {
                    method,
                    params: self.related(params),
                },
                upstream.clone(),
            );
            ask.elicitation = elicitation_id(state, &key);
            self.open.push(OpenTaskQuestion {
                key,
                method,
                answer: answers,
            });
            self.queued.push_back(ReplyEvent::Ask(Box::new(ask)));
        }
    }

    /// Adds the task to a question or a report of it (2025-11-25, "Associating Task-Related
    /// Messages").
    fn related(&self, params: Bytes) -> Bytes {
        let name = self.task.name();
        let name = name.filter(|_| self.task.form == TaskResultForm::AsTask);
        let Some(name) = name else { return params };
        related_task::set(&params, &name)
    }

    /// Passes an answer on to the task.
    async fn pass_answer(
        &mut self,
        key: &str,
        method: Method,
        word: AnswerEvent,
    ) -> Result<Option<ReplyEnd>, Failure> {
        let answer = match (word, method) {
            // Tasks have no progress notifications for questions.
            (AnswerEvent::Progress(_), _) => return Ok(None),
            (AnswerEvent::Answer(Ok(answer)), _) => ObjectEdits::new()
                .remove("_meta")
                .remove("resultType")
                .apply_or_keep(&answer),
            (AnswerEvent::Answer(Err(_)), Method::ElicitationCreate) => {
                Bytes::from_static(br#"{"action":"cancel"}"#)
            }
            (AnswerEvent::NoAnswer, _) => return Err(self.task.unanswered()),
            // The extension has no form for a refusal of sampling and roots.
            (AnswerEvent::Answer(Err(error)), _) => {
                if self.task.refuse(key, &error).await? {
                    self.next = Instant::now() + MIN_POLL_INTERVAL;
                    return Ok(None);
                }
                self.task.cancel().await?;
                self.is_over = true;
                return Err(self.task.without_input());
            }
        };
        let answers = TaskAnswers::Given(of_key(key, &answer));
        self.task.answer(key, answers).await?;
        self.next = Instant::now() + MIN_POLL_INTERVAL;
        Ok(None)
    }
}

/// The next progress notification; pending for ever if there will be none.
async fn next_report(reports: &mut Option<ProgressReports>) -> Bytes {
    if let Some(some) = reports {
        if let Some(report) = some.next().await {
            return report;
        }
        *reports = None;
    }
    std::future::pending().await
}

/// The server's own id of a question of this state, if it is a URL elicitation with one.
fn elicitation_id(state: &[u8], key: &str) -> Option<Arc<str>> {
    let ids = &state[scan::find(state, ELICITATION_IDS)?];
    let id = &ids[scan::find(ids, key)?];
    scan::string(id).map(|id| (*id).into())
}

/// The next event of any of the questions.
fn poll_answer(
    open: &mut Vec<OpenTaskQuestion>,
    cx: &mut Context<'_>,
) -> Poll<(String, Method, AnswerEvent)> {
    let found =
        open.iter_mut()
            .enumerate()
            .find_map(|(nth, one)| match one.answer.poll_event(cx) {
                Poll::Ready(word) => Some((nth, word)),
                Poll::Pending => None,
            });
    let Some((nth, word)) = found else {
        return Poll::Pending;
    };
    let (key, method) = (open[nth].key.clone(), open[nth].method);
    if !matches!(word, AnswerEvent::Progress(_)) {
        open.swap_remove(nth);
    }
    Poll::Ready((key, method, word))
}
