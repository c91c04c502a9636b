#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_core::names::{EndpointId, RequestName, UpstreamId};
use weir_core::parked::{ParkedCall, SharedParkedReply};
use weir_core::principal::Principal;
use weir_core::question::{AnswerEvent, AnswerReceiver, PendingQuestion, UpstreamQuestion};
use weir_core::reply::{NoteKind, Payload, ReplyNote};
use weir_wire::log_level::LogLevel;
use weir_wire::method::Method;

use super::*;

/// Parks in a map.
#[derive(Debug, Default)]
struct MapParking {
    calls: Mutex<HashMap<(Principal, ParkedId), SharedParkedReply>>,
    named: AtomicU8,
    /// The description of each.
    told: Mutex<Vec<ParkedCallDetails>>,
}

impl CallParking for MapParking {
    fn park(
        &self,
        details: ParkedCallDetails,
        again: Option<ParkedId>,
        parked: SharedParkedReply,
    ) -> Result<ParkedId, Failure> {
        let id =
            again.unwrap_or_else(|| ParkedId([self.named.fetch_add(1, Ordering::Relaxed); 16]));
        self.calls
            .lock()
            .insert((details.principal.clone(), id), parked);
        self.told.lock().push(details);
        Ok(id)
    }

    fn take(&self, principal: &Principal, id: ParkedId) -> Option<SharedParkedReply> {
        self.calls.lock().remove(&(principal.clone(), id))
    }

    fn is_parked(&self, principal: &Principal, id: ParkedId) -> bool {
        let calls = self.calls.lock();
        calls.contains_key(&(principal.clone(), id))
    }

    fn sweep(&self) {}

    fn waiting(&self) -> Vec<ParkedCall> {
        let told = self.told.lock();
        let seen = |(number, details): (u64, &ParkedCallDetails)| ParkedCall {
            number,
            details: details.clone(),
            age: Duration::ZERO,
            left: Duration::MAX,
        };
        (1..).zip(&*told).map(seen).collect()
    }

    fn stop(&self, _: &dyn Fn(u64, &ParkedCallDetails) -> bool) -> usize {
        std::mem::take(&mut *self.calls.lock()).len()
    }
}

/// A reply with the events that the test sends.
struct ChannelReply(mpsc::Receiver<ReplyEvent>);

impl ReplySource for ChannelReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        self.0.poll_recv(cx).map(|event| event.unwrap())
    }
}

struct ParkingWorld {
    place: ParkingContext,
    events: mpsc::Sender<ReplyEvent>,
}

/// The events of the upstream that wait to be read.
const UNREAD: usize = 16;

fn world() -> (ParkingWorld, Reply) {
    let (events, script) = mpsc::channel(UNREAD);
    let details = ParkedCallDetails {
        principal: Principal::owner(Some(("iss", "ada"))),
        request: RequestName::from_bits(7),
        endpoint: EndpointId::new("/mcp"),
        upstream: UpstreamId::new("u").unwrap(),
        method: "tools/call",
        exposed: "u__t".into(),
        questions: Vec::new(),
    };
    let place = ParkingContext {
        parking: Arc::new(MapParking::default()),
        details,
    };
    let reply = place.clone().wrap_reply(Reply::live(ChannelReply(script)));
    (ParkingWorld { place, events }, reply)
}

impl ParkingWorld {
    async fn asks(&self, method: Method) -> AnswerReceiver {
        let question = UpstreamQuestion {
            method,
            params: Bytes::from_static(b"{}"),
        };
        let (ask, answers) = PendingQuestion::new(question, UpstreamId::new("u").unwrap());
        self.events
            .send(ReplyEvent::Ask(Box::new(ask)))
            .await
            .unwrap();
        answers
    }

    async fn sends(&self, kind: NoteKind, params: String) {
        let params = Bytes::from(params);
        let note = ReplyEvent::Note(ReplyNote { kind, params });
        let sent = timeout(Duration::from_secs(60), self.events.send(note));
        sent.await.expect("the call is read").unwrap();
    }

    async fn ends(&self) {
        let end = ReplyEnd::Complete(Payload::Whole(Bytes::from_static(b"{}")));
        self.events.send(ReplyEvent::End(end)).await.unwrap();
    }

    /// Waits until all events were read.
    async fn is_read(&self) {
        let unread = timeout(Duration::from_secs(60), self.events.reserve_many(UNREAD));
        unread.await.expect("the call is read").unwrap();
    }

    fn resume(&self, id: ParkedId, answers: &'static str) -> Result<Reply, Failure> {
        self.place
            .clone()
            .resume(id, Some(&Bytes::from_static(answers.as_bytes())))
    }
}

async fn parked(reply: &mut Reply) -> (ParkedId, String) {
    match reply.next().await {
        Some(ReplyEvent::End(ReplyEnd::Parked { id, result })) => {
            (id, String::from_utf8(result.to_vec()).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

async fn word(answers: &mut AnswerReceiver) -> AnswerEvent {
    std::future::poll_fn(|cx| answers.poll_event(cx)).await
}

const CANCEL: &str = r#"{"input-1":{"action":"cancel"},"other":{}}"#;

// Proves R182, R176, R177.
#[tokio::test(start_paused = true)]
async fn concurrent_questions_share_one_round_and_unanswered_ones_are_repeated() {
    let (world, mut reply) = world();
    let (mut form, mut roots) = (
        world.asks(Method::ElicitationCreate).await,
        world.asks(Method::RootsList).await,
    );
    let (id, questions) = parked(&mut reply).await;
    assert!(
        questions.contains(r#""input-1":{"method":"elicitation/create","params":{}}"#),
        "{questions}"
    );
    assert!(
        questions.contains(r#""input-2":{"method":"roots/list""#),
        "{questions}"
    );
    assert_eq!(
        world.place.parking.waiting()[0].details.questions,
        ["elicitation/create", "roots/list"]
    );
    let mut reply = world.resume(id, CANCEL).unwrap();
    assert_eq!(
        word(&mut form).await,
        AnswerEvent::Answer(Ok(Bytes::from_static(br#"{"action":"cancel"}"#)))
    );
    let (id, questions) = parked(&mut reply).await;
    assert_eq!(
        world.place.parking.waiting()[1].details.questions,
        ["roots/list"]
    );
    assert!(
        !questions.contains("input-1") && questions.contains("input-2"),
        "{questions}"
    );
    let mut reply = world.resume(id, r#"{"input-2":{"roots":[]}}"#).unwrap();
    assert_eq!(
        word(&mut roots).await,
        AnswerEvent::Answer(Ok(Bytes::from_static(br#"{"roots":[]}"#)))
    );
    let end = ReplyEnd::Complete(Payload::Whole(Bytes::from_static(b"{}")));
    world.events.send(ReplyEvent::End(end)).await.unwrap();
    assert!(matches!(
        reply.next().await,
        Some(ReplyEvent::End(ReplyEnd::Complete(_)))
    ));
}

// Proves R175, B19.
#[tokio::test(start_paused = true)]
async fn a_round_is_answered_once_and_by_its_own_principal() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    let other = Principal::owner(Some(("iss", "bob")));
    let mut foreign = world.place.clone();
    foreign.details.principal = other;
    let foreign = foreign.resume(id, None).unwrap_err();
    assert_eq!(foreign.reason(), "invalid_params");
    let _going_on = world.resume(id, CANCEL).unwrap();
    assert_eq!(
        world.resume(id, CANCEL).unwrap_err().reason(),
        "invalid_params",
        "used"
    );
}

// Proves R178.
#[tokio::test(start_paused = true)]
async fn a_malformed_answer_is_refused_and_takes_nothing_away() {
    let (world, mut reply) = world();
    let _asked = [
        world.asks(Method::ElicitationCreate).await,
        world.asks(Method::SamplingCreateMessage).await,
        world.asks(Method::RootsList).await,
    ];
    let (id, _) = parked(&mut reply).await;
    for bad in [
        r#"{"input-1":"yes"}"#,
        r#"{"input-1":{"action":"maybe"}}"#,
        r#"{"input-1":{"action":"accept","content":[]}}"#,
        r#"{"input-2":{"role":"assistant","content":"text","model":"m"}}"#,
        r#"{"input-2":{"role":"assistant","content":{}}}"#,
        r#"{"input-3":{"roots":{}}}"#,
    ] {
        assert_eq!(
            world.resume(id, bad).unwrap_err().reason(),
            "invalid_params",
            "{bad}"
        );
    }
    assert!(world.resume(id, CANCEL).is_ok());
}

#[tokio::test(start_paused = true)]
async fn question_withdrawn_before_its_round_is_not_asked() {
    let (world, mut reply) = world();
    let form = world.asks(Method::ElicitationCreate).await;
    let _roots = world.asks(Method::RootsList).await;
    drop(form);
    let (_, questions) = parked(&mut reply).await;
    assert!(!questions.contains("elicitation"), "{questions}");
}

// Proves R183.
#[tokio::test(start_paused = true)]
async fn dropping_a_parked_reply_cancels_the_call() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    assert!(!world.events.is_closed());
    drop(world.place.parking.take(&world.place.details.principal, id));
    assert!(world.events.is_closed());
}

/// The params of the notes that come before the reply waits, or ends.
async fn notes(reply: &mut Reply) -> Vec<(NoteKind, String)> {
    let mut notes = Vec::new();
    while let Ok(Some(ReplyEvent::Note(note))) = timeout(Duration::from_secs(1), reply.next()).await
    {
        let params = String::from_utf8(note.params.to_vec()).unwrap();
        notes.push((note.kind, params));
    }
    notes
}

// Proves R105.
#[tokio::test(start_paused = true)]
async fn parked_call_is_read_on_and_keeps_a_bounded_part_of_its_notes() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    let log = NoteKind::Log(LogLevel::Info);
    for nth in 0..100 {
        world.sends(NoteKind::Progress, format!("p{nth}")).await;
        world.sends(NoteKind::StillWorking, String::new()).await;
        world.sends(log, format!("l{nth}")).await;
    }
    world.is_read().await;
    let mut reply = world.resume(id, CANCEL).unwrap();
    let kept = notes(&mut reply).await;
    assert_eq!(kept.len(), 32, "{kept:?}");
    let progress = (NoteKind::Progress, "p99".to_owned());
    assert_eq!(kept[30..], [progress, (log, "l99".to_owned())]);
    world.ends().await;
    let end = reply.next().await;
    assert!(matches!(end, Some(ReplyEvent::End(ReplyEnd::Complete(_)))));
}

#[tokio::test(start_paused = true)]
async fn long_notes_of_a_parked_call_leave_out_older_ones() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    let log = NoteKind::Log(LogLevel::Info);
    for bytes in [20_000, 10_001, 10_002, 10_003, 40_000] {
        world.sends(log, "x".repeat(bytes)).await;
    }
    world.is_read().await;
    let mut reply = world.resume(id, CANCEL).unwrap();
    let kept = notes(&mut reply).await;
    let sizes: Vec<usize> = kept.iter().map(|(_, params)| params.len()).collect();
    assert_eq!(sizes, [10_001, 10_002, 10_003]);
}

// Proves R105, R176.
#[tokio::test(start_paused = true)]
async fn questions_while_a_call_is_parked_are_asked_in_the_next_round() {
    let (world, mut reply) = world();
    let withdrawn = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    let _roots = world.asks(Method::RootsList).await;
    world.is_read().await;
    drop(withdrawn);
    let mut reply = world.resume(id, CANCEL).unwrap();
    let (id, questions) = parked(&mut reply).await;
    assert!(
        questions.contains(r#""input-2":{"method":"roots/list""#),
        "{questions}"
    );
    assert!(!questions.contains("input-1"), "{questions}");
    // After a malformed answer it is read on, too.
    world.resume(id, r#"{"input-2":5}"#).unwrap_err();
    world.sends(NoteKind::Progress, "p".into()).await;
    world.is_read().await;
    assert!(world.resume(id, r#"{"input-2":{"roots":[]}}"#).is_ok());
}

// Proves R105.
#[tokio::test(start_paused = true)]
async fn end_of_a_parked_call_is_noticed_and_comes_with_the_next_round() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    world.sends(NoteKind::Progress, "last".into()).await;
    world.ends().await;
    // A reply drops its source at its end.
    let closed = timeout(Duration::from_secs(60), world.events.closed());
    closed.await.expect("the end is noticed");
    let mut reply = world.resume(id, CANCEL).unwrap();
    let last = reply.next().await;
    assert!(matches!(last, Some(ReplyEvent::Note(_))), "{last:?}");
    let end = reply.next().await;
    assert!(matches!(end, Some(ReplyEvent::End(ReplyEnd::Complete(_)))));
}

#[tokio::test(start_paused = true)]
async fn parked_call_that_is_dropped_is_cancelled_while_it_is_read() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (_id, _) = parked(&mut reply).await;
    world.sends(NoteKind::Progress, "p".into()).await;
    world.is_read().await;
    assert_eq!(world.place.parking.stop(&|_, _| true), 1);
    assert!(world.events.is_closed());
}
