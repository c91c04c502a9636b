//! Calls of clients without tasks to tools that require a task, for which weir waits, and the waits
//! for the results of tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::poll;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use weir_core::call::TaskMode;
use weir_core::failure::UpstreamError;
use weir_core::upstream::CallDeadlines;
use weir_core::{Call, Failure, FailureKind, Payload, Reply, ReplyEnd, ReplyEvent};
use weir_router::TaskNames;
use weir_router::live_calls::StopReason;
use weir_seal::Sealer;
use weir_store::{MemoryTasks, TaskCaps};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked, asked_with, end, failure, raw};
use crate::support::{CatalogWorld, FixedPorts, GateRule, ScriptedUpstream, endpoint};

/// The answers to the polls of the task, in order; the last one stays.
type PollAnswers = VecDeque<Result<Value, FailureKind>>;

/// Requests about a task: their methods, and their refusals of questions.
type TaskRequestLog = Vec<(Method, Option<Bytes>)>;

/// A router over one upstream with the tool `t`, whose calls become a task.
pub(crate) struct TaskWorld {
    pub(crate) world: RouterWorld,
    pub(crate) polls: Arc<Mutex<PollAnswers>>,
    /// The requests about the task, but for its polls.
    requests: Arc<Mutex<TaskRequestLog>>,
    poll_count: Arc<AtomicUsize>,
    /// True if the server takes refusals of questions.
    takes_refusals: Arc<AtomicBool>,
    /// The error by which the server refuses answers, if it does.
    pub(crate) answer_error: Arc<Mutex<Option<UpstreamError>>>,
}

fn whole(result: &Value) -> Reply {
    Reply::ended(ReplyEnd::Complete(Payload::Whole(raw(result))))
}

pub(crate) fn working() -> Value {
    json!({ "taskId": "native", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 1000 })
}

pub(crate) fn completed() -> Value {
    let result = json!({ "content": [] });
    json!({ "taskId": "native", "status": "completed", "result": result })
}

impl TaskWorld {
    pub(crate) async fn new(polls: impl IntoIterator<Item = Result<Value, FailureKind>>) -> Self {
        let fake = ScriptedUpstream::new("up", &[]);
        let polls = Arc::new(Mutex::new(polls.into_iter().collect::<PollAnswers>()));
        let requests = Arc::<Mutex<TaskRequestLog>>::default();
        let (poll_count, takes_refusals) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (answers, seen) = (polls.clone(), requests.clone());
        let (counted, takes) = (poll_count.clone(), takes_refusals.clone());
        let answer_error = Arc::<Mutex<Option<UpstreamError>>>::default();
        let refused = answer_error.clone();
        fake.set(|script| {
            let tool = json!({ "name": "t", "execution": { "taskSupport": "required" } });
            script.tools.push(raw(&tool));
            script.answer = Box::new(move |outbound| match outbound.call.method {
                Method::ToolsCall => Reply::ended(ReplyEnd::Task(raw(&working()))),
                Method::TasksGet => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut answers = answers.lock();
                    let next = if answers.len() > 1 {
                        answers.pop_front()
                    } else {
                        answers.front().cloned()
                    };
                    match next.unwrap() {
                        Ok(state) => whole(&state),
                        Err(kind) => Reply::ended(Failure::new(kind, "a poll failed")),
                    }
                }
                other => {
                    let refusals = outbound.call.input_refusals.clone();
                    let is_refused = refusals.is_some() && !takes.load(Ordering::SeqCst);
                    seen.lock().push((other, refusals));
                    if is_refused {
                        return Reply::ended(Failure::new(FailureKind::MethodNotFound, "no form"));
                    }
                    let error = refused.lock().clone();
                    if let Some(error) = error.filter(|_| other == Method::TasksUpdate) {
                        let text = error.message.clone();
                        return Reply::ended(Failure::new(FailureKind::Upstream(error), text));
                    }
                    whole(&json!({}))
                }
            });
        });
        let mut world = RouterWorld::of(CatalogWorld::of(&[&fake]));
        world.world.settled().await;
        let ports = FixedPorts::new();
        world.router = world.router.with_tasks(TaskNames::new(
            Sealer::ephemeral(&*ports),
            ports.clone(),
            ports.clone(),
            Arc::new(MemoryTasks::new(ports, TaskCaps::default())),
        ));
        Self {
            world,
            polls,
            requests,
            poll_count,
            takes_refusals,
            answer_error,
        }
    }

    pub(crate) async fn call(&self, task_mode: TaskMode) -> Reply {
        let params = raw(&json!({ "name": "t" }));
        let change = |call: &mut Call| call.task_mode = task_mode;
        let call = asked_with("somebody", &endpoint(), Method::ToolsCall, params, change).await;
        self.world.router.call(call).await
    }

    /// Waits for the result of the task that a call of a client with tasks became.
    pub(crate) async fn task_result(&self) -> Reply {
        let task = self.begin().await;
        self.result_of(&task).await
    }

    /// Makes a call of a client with tasks; returns the name of the task that it became.
    pub(crate) async fn begin(&self) -> Value {
        let wanted = TaskMode::Wanted { ttl_ms: None };
        let ReplyEnd::Task(created) = end(self.call(wanted).await).await else {
            panic!("the call becomes a task")
        };
        let created: Value = serde_json::from_slice(&created).unwrap();
        created["taskId"].clone()
    }

    pub(crate) async fn result_of(&self, task: &Value) -> Reply {
        let params = raw(&json!({ "taskId": task }));
        let call = asked(&endpoint(), Method::TasksResult, params).await;
        self.world.router.tasks().task_result(call)
    }

    /// The methods of the requests about the task, but for its polls.
    pub(crate) fn requests(&self) -> Vec<Method> {
        let requests = self.requests.lock();
        requests.iter().map(|(method, _)| *method).collect()
    }

    pub(crate) fn polls(&self) -> usize {
        self.poll_count.load(Ordering::SeqCst)
    }
}

/// The error of a server that does not know the task.
pub(crate) fn unknown_at_server() -> FailureKind {
    FailureKind::Upstream(invalid_params("no such task"))
}

/// A server's refusal of the parameters of a request.
pub(crate) fn invalid_params(message: &str) -> UpstreamError {
    UpstreamError {
        code: -32602,
        message: message.to_owned(),
        data: None,
    }
}

/// The failures of a server that is away for a while.
fn passing_failures() -> [Result<Value, FailureKind>; 4] {
    [
        Err(FailureKind::Unavailable),
        Err(FailureKind::Busy),
        Err(FailureKind::TimedOut),
        Err(FailureKind::ResultUnknown),
    ]
}

#[tokio::test(start_paused = true)]
async fn failed_polls_do_not_end_the_wait_for_a_task() {
    let polls = || passing_failures().into_iter().chain([Ok(completed())]);
    let world = TaskWorld::new(polls()).await;
    let reply = world.call(TaskMode::AwaitedByWeir).await;
    assert!(matches!(end(reply).await, ReplyEnd::Complete(_)));
    assert_eq!(world.world.gate.outcomes(), ["complete"]);
    assert!(world.requests().is_empty(), "the task is not cancelled");

    let world = TaskWorld::new(polls()).await;
    let reply = world.task_result().await;
    assert!(matches!(end(reply).await, ReplyEnd::Complete(_)));
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_server_that_stays_away_ends_without_a_known_result() {
    for kind in passing_failures() {
        let world = TaskWorld::new([kind.clone()]).await;
        let ended = failure(end(world.call(TaskMode::AwaitedByWeir).await).await);
        assert_eq!(ended.kind(), &FailureKind::ResultUnknown);
        assert_eq!(world.world.gate.outcomes(), ["result_unknown"]);
        assert_eq!(world.requests(), [Method::TasksCancel]);

        let world = TaskWorld::new([kind]).await;
        let ended = failure(end(world.task_result().await).await);
        assert_eq!(ended.kind(), &FailureKind::ResultUnknown);
        assert!(world.requests().is_empty(), "it can be asked for again");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_task_of_a_call_may_have_run() {
    let world = TaskWorld::new([Ok(working()), Err(unknown_at_server())]).await;
    let ended = failure(end(world.call(TaskMode::AwaitedByWeir).await).await);
    assert_eq!(ended.kind(), &FailureKind::ResultUnknown);
}

#[tokio::test(start_paused = true)]
async fn call_that_waits_for_its_task_is_one_of_the_running_calls_until_the_task_ends() {
    let world = TaskWorld::new([Ok(working())]).await;
    let permits = Arc::new(Semaphore::new(1));
    let gate = &world.world.gate;
    gate.rule("somebody", "t", GateRule::Queue(permits.clone()));
    let mut ending = Box::pin(end(world.call(TaskMode::AwaitedByWeir).await));
    assert!(poll!(&mut ending).is_pending());
    assert_eq!(permits.available_permits(), 0);
    assert_eq!(world.world.router.live().count(), 1);
    assert!(gate.outcomes().is_empty());

    world.polls.lock().push_back(Ok(completed()));
    assert!(matches!(ending.await, ReplyEnd::Complete(_)));
    assert_eq!(permits.available_permits(), 1);
    assert_eq!(world.world.router.live().count(), 0);
    assert_eq!(gate.outcomes(), ["complete"]);
    assert!(world.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn result_of_an_awaited_task_is_cleaned_whatever_its_server_states() {
    let content = json!([{ "type": "text", "text": "fine\u{e0049}\u{e0067}" }]);
    let mut state = completed();
    state["result"] = json!({ "content": content, "_meta": { "dev.weir/cleaned": 7 } });
    let world = TaskWorld::new([Ok(state)]).await;
    let ended = end(world.call(TaskMode::AwaitedByWeir).await).await;
    let ReplyEnd::Complete(Payload::Cleaned { result, removed }) = ended else {
        panic!("{ended:?}")
    };
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(
        (&result["content"][0]["text"], removed),
        (&json!("fine"), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_call_cancels_its_task() {
    let world = TaskWorld::new([Ok(working())]).await;
    let mut reply = world.call(TaskMode::AwaitedByWeir).await;
    assert!(matches!(poll!(Box::pin(reply.next())), Poll::Pending));
    drop(reply);
    assert_eq!(world.requests(), [Method::TasksCancel]);
    assert_eq!(world.world.gate.outcomes(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn operators_stop_of_a_call_cancels_its_task() {
    let world = TaskWorld::new([Ok(working())]).await;
    let mut ending = Box::pin(end(world.call(TaskMode::AwaitedByWeir).await));
    assert!(poll!(&mut ending).is_pending());
    let live = world.world.router.live();
    assert_eq!(live.stop_all(|_, _| true, StopReason::Cancelled), 1);
    assert_eq!(failure(ending.await).kind(), &FailureKind::ResultUnknown);
    assert_eq!(world.requests(), [Method::TasksCancel]);
    assert_eq!(world.world.gate.outcomes(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn hard_limit_of_a_call_ends_its_task() {
    let world = TaskWorld::new([Ok(working())]).await;
    let begun = tokio::time::Instant::now();
    let ended = failure(end(world.call(TaskMode::AwaitedByWeir).await).await);
    assert_eq!(ended.kind(), &FailureKind::TimedOut);
    assert_eq!(
        begun.elapsed().as_secs(),
        CallDeadlines::CALL.hard.as_secs()
    );
    assert_eq!(world.requests(), [Method::TasksCancel]);
    assert_eq!(world.world.gate.outcomes(), ["timed_out"]);
}

#[tokio::test(start_paused = true)]
async fn client_with_tasks_that_stops_waiting_leaves_the_task_alone() {
    let world = TaskWorld::new([Ok(working())]).await;
    let mut reply = world.task_result().await;
    let next: Poll<Option<ReplyEvent>> = poll!(Box::pin(reply.next()));
    assert!(next.is_pending());
    drop(reply);
    assert!(world.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn waits_for_one_task_share_its_polls() {
    let world = TaskWorld::new([Ok(working())]).await;
    let task = world.begin().await;
    let waits = (0..20).map(|_| async { end(world.result_of(&task).await).await });
    let mut waits = Box::pin(join_all(waits));
    let time = Duration::from_secs(30);
    assert!(tokio::time::timeout(time, &mut waits).await.is_err());
    let polls = world.polls();
    assert!((20..=40).contains(&polls), "{polls} in 30 intervals");

    world.polls.lock().push_back(Ok(completed()));
    let ended = waits.await;
    assert!(ended.iter().all(|end| matches!(end, ReplyEnd::Complete(_))));
}

#[tokio::test(start_paused = true)]
async fn tasks_are_not_polled_as_often_as_they_like() {
    let mut state = working();
    state["pollIntervalMs"] = json!(1);
    let world = TaskWorld::new([Ok(state)]).await;
    let waiting = end(world.task_result().await);
    let time = Duration::from_secs(10);
    assert!(tokio::time::timeout(time, waiting).await.is_err());
    let polls = world.polls();
    assert!((20..=42).contains(&polls), "{polls} in 10 s");
}

pub(crate) fn asking() -> Value {
    let question = json!({ "method": "sampling/createMessage", "params": {} });
    let requests = json!({ "q-1": question });
    json!({ "taskId": "native", "status": "input_required", "inputRequests": requests })
}

/// Waits for the result of a task that asks for a message, and refuses the question.
async fn refuse_sampling(world: &TaskWorld) -> ReplyEnd {
    let mut reply = world.task_result().await;
    loop {
        match reply.next().await.unwrap() {
            ReplyEvent::Ask(ask) => ask.answer(Err(raw(&json!({ "code": -1, "message": "no" })))),
            ReplyEvent::Note(_) => {}
            ReplyEvent::End(end) => return end,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_question_of_a_task_goes_to_a_server_that_takes_refusals() {
    let world = TaskWorld::new([Ok(asking()), Ok(completed())]).await;
    world.takes_refusals.store(true, Ordering::SeqCst);
    assert!(matches!(
        refuse_sampling(&world).await,
        ReplyEnd::Complete(_)
    ));
    let refused = raw(&json!({ "q-1": { "code": -1, "message": "no" } }));
    let requests = world.requests.lock().clone();
    assert_eq!(requests, [(Method::TasksUpdate, Some(refused))]);
}

#[tokio::test(start_paused = true)]
async fn refused_question_of_a_task_ends_it_at_a_server_without_a_form_for_refusals() {
    let world = TaskWorld::new([Ok(asking()), Ok(completed())]).await;
    let ended = failure(refuse_sampling(&world).await);
    assert_eq!(ended.kind(), &FailureKind::InvalidParams);
    let requests = world.requests();
    assert_eq!(requests, [Method::TasksUpdate, Method::TasksCancel]);
}
