#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::mpsc;

use super::*;
use crate::ask::{Hearing, Question, Word};
use crate::principal::Identity;
use crate::reply::Payload;

/// Parks in a map.
#[derive(Default)]
struct Lot {
    calls: Mutex<HashMap<(Principal, ParkedId), Parked>>,
    named: AtomicU8,
    /// The description of each.
    told: Mutex<Vec<Stay>>,
}

impl Parking for Lot {
    fn park(
        &self,
        stay: Stay,
        again: Option<ParkedId>,
        parked: Parked,
    ) -> Result<ParkedId, Failure> {
        let id =
            again.unwrap_or_else(|| ParkedId([self.named.fetch_add(1, Ordering::Relaxed); 16]));
        self.calls
            .lock()
            .unwrap()
            .insert((stay.principal.clone(), id), parked);
        self.told.lock().unwrap().push(stay);
        Ok(id)
    }

    fn take(&self, principal: &Principal, id: ParkedId) -> Option<Parked> {
        self.calls.lock().unwrap().remove(&(principal.clone(), id))
    }

    fn sweep(&self) {}

    fn waiting(&self) -> Vec<ParkedCall> {
        let told = self.told.lock().unwrap();
        let seen = |(number, stay): (u64, &Stay)| ParkedCall {
            number,
            stay: stay.clone(),
            age: Duration::ZERO,
            left: Duration::MAX,
        };
        (1..).zip(&*told).map(seen).collect()
    }

    fn stop(&self, _: &dyn Fn(u64, &Stay) -> bool) -> usize {
        std::mem::take(&mut *self.calls.lock().unwrap()).len()
    }
}

/// A reply with the events that the test sends.
struct Scripted(mpsc::Receiver<Event>);

impl ReplySource for Scripted {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        self.0.poll_recv(cx).map(|event| event.unwrap())
    }
}

struct World {
    place: Place,
    events: mpsc::Sender<Event>,
}

fn world() -> (World, Reply) {
    let (events, script) = mpsc::channel(16);
    let stay = Stay {
        principal: Principal::mint(Identity::subject("iss", "ada")),
        request: RequestName::from_bits(7),
        endpoint: EndpointId::new("/mcp"),
        upstream: UpstreamId::new("u").unwrap(),
        method: "tools/call",
        exposed: "u__t".into(),
        questions: Vec::new(),
    };
    let place = Place {
        parking: Arc::new(Lot::default()),
        stay,
    };
    let reply = place.clone().by_rounds(Reply::live(Scripted(script)));
    (World { place, events }, reply)
}

impl World {
    async fn asks(&self, method: Method) -> Hearing {
        let question = Question {
            method,
            params: Bytes::from_static(b"{}"),
        };
        let (ask, hearing) = Ask::new(question, UpstreamId::new("u").unwrap());
        self.events.send(Event::Ask(Box::new(ask))).await.unwrap();
        hearing
    }

    fn resume(&self, id: ParkedId, answers: &'static str) -> Result<Reply, Failure> {
        self.place
            .clone()
            .resume(id, Some(&Bytes::from_static(answers.as_bytes())))
    }
}

async fn parked(reply: &mut Reply) -> (ParkedId, String) {
    match reply.next().await {
        Some(Event::End(End::Parked { id, result })) => {
            (id, String::from_utf8(result.to_vec()).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

async fn word(hearing: &mut Hearing) -> Word {
    std::future::poll_fn(|cx| hearing.poll_word(cx)).await
}

const CANCEL: &str = r#"{"input-1":{"action":"cancel"},"other":{}}"#;

#[tokio::test(start_paused = true)]
async fn r182_r176_r177_what_is_asked_at_once_is_one_round_and_missing_answers_are_asked_for_again()
{
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
        world.place.parking.waiting()[0].stay.questions,
        ["elicitation/create", "roots/list"]
    );
    let mut reply = world.resume(id, CANCEL).unwrap();
    assert_eq!(
        word(&mut form).await,
        Word::Answer(Ok(Bytes::from_static(br#"{"action":"cancel"}"#)))
    );
    let (id, questions) = parked(&mut reply).await;
    assert_eq!(
        world.place.parking.waiting()[1].stay.questions,
        ["roots/list"]
    );
    assert!(
        !questions.contains("input-1") && questions.contains("input-2"),
        "{questions}"
    );
    let mut reply = world.resume(id, r#"{"input-2":{"roots":[]}}"#).unwrap();
    assert_eq!(
        word(&mut roots).await,
        Word::Answer(Ok(Bytes::from_static(br#"{"roots":[]}"#)))
    );
    let end = End::Complete(Payload::Whole(Bytes::from_static(b"{}")));
    world.events.send(Event::End(end)).await.unwrap();
    assert!(matches!(
        reply.next().await,
        Some(Event::End(End::Complete(_)))
    ));
}

#[tokio::test(start_paused = true)]
async fn r175_b19_a_round_is_answered_once_and_by_its_own_principal() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    let other = Principal::mint(Identity::subject("iss", "bob"));
    let mut foreign = world.place.clone();
    foreign.stay.principal = other;
    let foreign = foreign.resume(id, None).unwrap_err();
    assert_eq!(foreign.reason(), "invalid_params");
    let _going_on = world.resume(id, CANCEL).unwrap();
    assert_eq!(
        world.resume(id, CANCEL).unwrap_err().reason(),
        "invalid_params",
        "used"
    );
}

#[tokio::test(start_paused = true)]
async fn r178_a_malformed_answer_is_refused_and_takes_nothing_away() {
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
async fn a_question_taken_back_before_it_was_told_is_not_asked() {
    let (world, mut reply) = world();
    let form = world.asks(Method::ElicitationCreate).await;
    let _roots = world.asks(Method::RootsList).await;
    drop(form);
    let (_, questions) = parked(&mut reply).await;
    assert!(!questions.contains("elicitation"), "{questions}");
}

#[tokio::test(start_paused = true)]
async fn r183_dropping_what_is_parked_drops_the_call() {
    let (world, mut reply) = world();
    let _form = world.asks(Method::ElicitationCreate).await;
    let (id, _) = parked(&mut reply).await;
    assert!(!world.events.is_closed());
    drop(world.place.parking.take(&world.place.stay.principal, id));
    assert!(world.events.is_closed());
}
