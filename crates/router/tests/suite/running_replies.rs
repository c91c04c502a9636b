//! Replies that run on: an operator's stop, questions, and results that a task keeps.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::poll;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use weir_core::call::{CallResumption, InputMode, TaskMode};
use weir_core::names::UpstreamId;
use weir_core::question::{AnswerEvent, PendingQuestion, UpstreamQuestion};
use weir_core::reply::{PayloadSource, ReplySource};
use weir_core::{Call, Failure, FailureKind, Payload, Reply, ReplyEnd, ReplyEvent};
use weir_router::TaskNames;
use weir_router::live_calls::StopReason;
use weir_seal::Sealer;
use weir_store::{MemoryParking, MemoryTasks, ParkingCaps, TaskCaps};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_with, end, failure, raw};
use crate::support::{CatalogWorld, FixedPorts, ScriptedUpstream, endpoint};

/// A reply, or a result, with the parts that the test sends. Its end is the end of the channel.
struct ChannelSource<T>(mpsc::Receiver<T>);

impl ReplySource for ChannelSource<ReplyEvent> {
    fn poll_event(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<ReplyEvent> {
        self.0.poll_recv(cx).map(|event| event.unwrap())
    }
}

impl PayloadSource for ChannelSource<&'static str> {
    fn poll_chunk(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, Failure>>> {
        let chunk = self.0.poll_recv(cx);
        chunk.map(|chunk| chunk.map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))))
    }
}

/// A result that streams, and its sender.
fn streamed() -> (mpsc::Sender<&'static str>, ReplyEnd) {
    let (chunks, source) = mpsc::channel(4);
    let payload = Payload::Stream(Box::new(ChannelSource(source)));
    (chunks, ReplyEnd::Complete(payload))
}

/// A router with parking and tasks over one upstream, which answers one call with the events of the
/// test.
struct RunningWorld {
    world: RouterWorld,
    events: mpsc::Sender<ReplyEvent>,
}

impl RunningWorld {
    async fn new() -> Self {
        let fake = ScriptedUpstream::new("up", &[]);
        let (events, source) = mpsc::channel(4);
        let source = Mutex::new(Some(source));
        fake.set(|script| {
            let tool = json!({ "name": "t", "execution": { "taskSupport": "optional" } });
            script.tools.push(raw(&tool));
            script.answer =
                Box::new(move |_| Reply::live(ChannelSource(source.lock().take().unwrap())));
        });
        let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
        world.world.settled().await;
        Self { world, events }
    }

    fn with_stores(mut self) -> Self {
        let ports = FixedPorts::new();
        let tasks = TaskNames::new(
            Sealer::ephemeral(&*ports),
            ports.clone(),
            ports.clone(),
            Arc::new(MemoryTasks::new(ports.clone(), TaskCaps::default())),
        );
        let parking = MemoryParking::new(ports.clone(), ports, ParkingCaps::default());
        let router = self.world.router.with_parking(Arc::new(parking));
        self.world.router = router.with_tasks(tasks);
        self
    }

    async fn call(&self, change: impl FnOnce(&mut Call)) -> Reply {
        let params = raw(&json!({ "name": "t" }));
        let call = asked_with("somebody", &endpoint(), Method::ToolsCall, params, change).await;
        self.world.router.call(call).await
    }

    async fn send(&self, event: ReplyEvent) {
        assert!(self.events.send(event).await.is_ok());
    }

    /// Stops all calls, and returns their number.
    fn stop(&self) -> usize {
        let live = self.world.router.live();
        live.stop_all(|_, _| true, StopReason::Cancelled)
    }
}

fn question() -> (ReplyEvent, weir_core::question::AnswerReceiver) {
    let question = UpstreamQuestion {
        method: Method::ElicitationCreate,
        params: Bytes::from_static(b"{}"),
    };
    let (ask, answer) = PendingQuestion::new(question, UpstreamId::new("up").unwrap());
    (ReplyEvent::Ask(Box::new(ask)), answer)
}

fn as_task(call: &mut Call) {
    call.task_mode = TaskMode::Wanted { ttl_ms: None };
}

/// Waits until the reply waits, and then for its end after an operator's stop.
async fn assert_stops(world: &RunningWorld, reply: Reply) {
    let mut ending = Box::pin(end(reply));
    assert!(poll!(&mut ending).is_pending());
    assert_eq!(world.stop(), 1);
    let failure = failure(ending.await);
    assert_eq!(failure.kind(), &FailureKind::ResultUnknown);
    assert_eq!(
        world.world.gate.outcomes(),
        ["cancelled"],
        "the upstream did not fail"
    );
    assert_eq!(world.world.router.live().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn operators_stop_ends_a_call_that_waits_for_its_upstream() {
    let world = RunningWorld::new().await;
    let reply = world.call(|_| {}).await;
    assert_stops(&world, reply).await;
    assert!(world.events.is_closed(), "the call is cancelled there");
}

#[tokio::test(start_paused = true)]
async fn operators_stop_ends_a_call_whose_questions_are_gathered_for_one_round() {
    let world = RunningWorld::new().await.with_stores();
    let reply = world.call(|call| call.input_mode = InputMode::Rounds).await;
    let (ask, _answer) = question();
    world.send(ask).await;
    assert_stops(&world, reply).await;
    assert!(world.events.is_closed());
}

#[tokio::test(start_paused = true)]
async fn operators_stop_ends_a_call_whose_result_arrives_for_a_task() {
    let world = RunningWorld::new().await.with_stores();
    let reply = world.call(as_task).await;
    let (chunks, result) = streamed();
    world.send(ReplyEvent::End(result)).await;
    chunks.send("{\"content\":").await.unwrap();
    assert_stops(&world, reply).await;
    assert!(chunks.is_closed(), "the result is not read on");
}

fn task_result(end: ReplyEnd) -> Value {
    let ReplyEnd::Task(created) = end else {
        panic!("{end:?}")
    };
    serde_json::from_slice(&created).unwrap()
}

#[tokio::test(start_paused = true)]
async fn result_that_streams_becomes_the_one_of_a_task() {
    let world = RunningWorld::new().await.with_stores();
    let (chunks, result) = streamed();
    world.send(ReplyEvent::End(result)).await;
    let reply = world.call(as_task).await;
    chunks.send("{\"content\":").await.unwrap();
    chunks.send("[]}").await.unwrap();
    drop(chunks);
    let created = task_result(end(reply).await);
    assert_eq!(created["result"], json!({ "content": [] }));
    assert_eq!(world.world.gate.outcomes(), ["task"]);
}

#[tokio::test(start_paused = true)]
async fn result_of_a_call_that_was_resumed_becomes_the_one_of_a_task() {
    let world = RunningWorld::new().await.with_stores();
    let rounds = |call: &mut Call| {
        call.input_mode = InputMode::Rounds;
        as_task(call);
    };
    let reply = world.call(rounds).await;
    let (ask, mut answer) = question();
    world.send(ask).await;
    let ReplyEnd::Parked { id, result } = end(reply).await else {
        panic!("the question ends the first call")
    };
    let asked: Value = serde_json::from_slice(&result).unwrap();
    let key = asked["inputRequests"].as_object().unwrap().keys().next();
    let answers = json!({ (key.unwrap()): { "action": "decline" } });
    let (chunks, result) = streamed();
    world.send(ReplyEvent::End(result)).await;
    let reply = world.call(|call| {
        rounds(call);
        call.resume = Some(CallResumption::Parked(id));
        call.input_responses = Some(raw(&answers));
    });
    let reply = reply.await;
    assert!(matches!(
        std::future::poll_fn(|cx| answer.poll_event(cx)).await,
        AnswerEvent::Answer(Ok(_))
    ));
    chunks.send("{\"content\":[]}").await.unwrap();
    drop(chunks);
    let created = task_result(end(reply).await);
    assert_eq!(created["result"], json!({ "content": [] }));
    assert_eq!(world.world.gate.outcomes(), ["input_required", "task"]);
}

#[tokio::test(start_paused = true)]
async fn rounds_of_one_call_are_charged_once() {
    let world = RunningWorld::new().await.with_stores();
    let reply = world.call(|call| call.input_mode = InputMode::Rounds).await;
    let mut ended = end(reply);
    let mut spent = None;
    for round in 0..3 {
        let (ask, _answer) = question();
        world.send(ask).await;
        let ReplyEnd::Parked { id, result } = ended.await else {
            panic!("the question ends the call of round {round}")
        };
        let asked: Value = serde_json::from_slice(&result).unwrap();
        let key = asked["inputRequests"].as_object().unwrap().keys().next();
        let answers = json!({ (key.unwrap()): { "action": "decline" } });
        let reply = world.call(|call| {
            call.input_mode = InputMode::Rounds;
            call.resume = Some(CallResumption::Parked(id));
            call.input_responses = Some(raw(&answers));
        });
        ended = end(reply.await);
        spent = Some(id);
    }
    assert_eq!(world.world.gate.charged(), 1);
    // A state that names no parked call is charged like a new call.
    let again = world.call(|call| {
        call.input_mode = InputMode::Rounds;
        call.resume = spent.map(CallResumption::Parked);
    });
    assert_eq!(
        failure(end(again.await).await).kind(),
        &FailureKind::InvalidParams
    );
    assert_eq!(world.world.gate.charged(), 2);
}

#[tokio::test(start_paused = true)]
async fn calls_that_weir_repeats_for_its_client_are_not_charged() {
    let world = RunningWorld::new().await;
    let whole = Payload::Whole(Bytes::from_static(b"{}"));
    world.send(ReplyEvent::End(ReplyEnd::Complete(whole))).await;
    let reply = world.call(|call| call.is_continuation = true).await;
    assert!(matches!(end(reply).await, ReplyEnd::Complete(_)));
    assert_eq!(world.world.gate.charged(), 0);
}

#[tokio::test(start_paused = true)]
async fn question_without_a_way_to_the_client_gets_no_answer() {
    let world = RunningWorld::new().await;
    let mut reply = world.call(|call| call.input_mode = InputMode::Rounds).await;
    let (ask, mut answer) = question();
    world.send(ask).await;
    let mut next = Box::pin(reply.next());
    assert!(poll!(&mut next).is_pending());
    assert!(matches!(
        std::future::poll_fn(|cx| answer.poll_event(cx)).await,
        AnswerEvent::NoAnswer
    ));
    let whole = Payload::Whole(Bytes::from_static(b"{}"));
    world.send(ReplyEvent::End(ReplyEnd::Complete(whole))).await;
    assert!(matches!(
        next.await,
        Some(ReplyEvent::End(ReplyEnd::Complete(_)))
    ));
    assert_eq!(world.world.gate.outcomes(), ["complete"]);
}
