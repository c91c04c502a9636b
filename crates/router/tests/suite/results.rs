//! Results on the way back through the router, and the record of each call.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use serde_json::json;
use weir_catalog::CatalogSettings;
use weir_core::endpoint::NamePrefix;
use weir_core::reply::{NoteKind, PayloadSource, ReplyNote};
use weir_core::{Failure, FailureKind, Payload, Reply, ReplyEnd, ReplyEvent};
use weir_schema::{CheckMode, Validation};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked, raw};
use crate::support::{CatalogWorld, ScriptedUpstream, endpoint};

/// A router over one tool that promises `{ "n": integer }` and answers `result`.
fn answering(output: CheckMode, result: &'static str) -> RouterWorld {
    answering_with(output, move || {
        ReplyEnd::Complete(Payload::Whole(Bytes::from_static(result.as_bytes())))
    })
}

fn answering_with(
    output: CheckMode,
    answer: impl Fn() -> ReplyEnd + Send + 'static,
) -> RouterWorld {
    let fake = ScriptedUpstream::new("up", &[]);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    fake.set(|script| {
        script
            .tools
            .push(raw(&json!({ "name": "t", "outputSchema": schema })));
        script.answer = Box::new(move |_| Reply::ended(answer()));
    });
    let mut world = CatalogWorld::empty(CatalogSettings::default());
    world.rules.validation = Validation {
        input: CheckMode::Off,
        output,
    };
    world.show(&[&fake], NamePrefix::Always, 1000);
    RouterWorld::of(world)
}

async fn passes(world: &RouterWorld) -> bool {
    match world.call(json!({ "name": "t" })).await {
        ReplyEnd::Complete(_) => true,
        ReplyEnd::Failed(failure) => {
            assert_eq!(failure.kind(), &FailureKind::BadAnswer);
            assert_eq!(failure.upstream().unwrap().as_str(), "up");
            false
        }
        ReplyEnd::InputRequired(_) | ReplyEnd::Parked { .. } | ReplyEnd::Task(_) => {
            panic!("nobody asked")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn structured_results_are_held_against_the_schema_as_far_as_the_operator_wants() {
    let good = r#"{"content":[],"structuredContent":{"n":1,"more":true}}"#;
    let bad = r#"{"content":[],"structuredContent":{"n":"1"}}"#;
    let none = r#"{"content":[]}"#;
    let error = r#"{"content":[],"isError" : true ,"structuredContent":5}"#;
    for (result, enforced) in [(good, true), (bad, false), (none, false), (error, true)] {
        assert_eq!(
            passes(&answering(CheckMode::Enforce, result)).await,
            enforced,
            "{result}"
        );
        assert!(passes(&answering(CheckMode::Warn, result)).await);
        assert!(passes(&answering(CheckMode::Off, result)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn under_enforce_no_result_passes_for_its_size() {
    let long = |mode, value: &str| {
        let long = format!(
            "{{\"content\":[],\"structuredContent\":{value},\"x\":\"{}\"}}",
            "x".repeat(4 << 20)
        );
        let long = Bytes::from(long);
        answering_with(mode, move || {
            ReplyEnd::Complete(Payload::Whole(long.clone()))
        })
    };
    let (good, bad) = (r#"{"n":1}"#, r#"{"n":"1"}"#);
    assert!(passes(&long(CheckMode::Enforce, good)).await);
    assert!(!passes(&long(CheckMode::Enforce, bad)).await);
    assert!(
        passes(&long(CheckMode::Warn, bad)).await,
        "too long to be looked at only for a warning"
    );
    assert!(!passes(&answering_with(CheckMode::Enforce, || stream(2))).await);
    assert!(passes(&answering_with(CheckMode::Warn, || stream(2))).await);
}

// Proves B24.
#[tokio::test(start_paused = true)]
async fn under_enforce_no_result_passes_that_no_checker_can_read() {
    let values = vec!["0"; 100_001].join(",");
    let many = format!("{{\"content\":[],\"structuredContent\":{{\"n\":1,\"more\":[{values}]}}}}");
    let texts = [
        r#"{"content":[],"structuredContent":{"n":1,"z":1e999}}"#.to_owned(),
        r#"{"content":[],"structuredContent":{"n":1,"z":"\ud800"}}"#.to_owned(),
        r#"{"content":[],"structuredContent":{"n":1,"\udc00":0}}"#.to_owned(),
        many,
    ];
    for text in texts {
        let result = Bytes::from(text);
        let of = |mode| {
            let result = result.clone();
            answering_with(mode, move || {
                ReplyEnd::Complete(Payload::Whole(result.clone()))
            })
        };
        assert!(
            !passes(&of(CheckMode::Enforce)).await,
            "{:.60}",
            String::from_utf8_lossy(&result)
        );
        assert!(passes(&of(CheckMode::Warn)).await);
    }
}

// Proves B23.
#[tokio::test(start_paused = true)]
async fn tool_with_unusable_output_schema_is_not_called_under_enforce() {
    for (output, runs) in [
        (CheckMode::Enforce, false),
        (CheckMode::Warn, true),
        (CheckMode::Off, true),
    ] {
        let fake = ScriptedUpstream::new("up", &[]);
        let schema = json!({ "type": "object", "$ref": "https://example.com/schema.json" });
        fake.set(|script| {
            script
                .tools
                .push(raw(&json!({ "name": "t", "outputSchema": schema })))
        });
        let mut world = CatalogWorld::empty(CatalogSettings::default());
        world.rules.validation = Validation {
            output,
            ..Validation::default()
        };
        world.show(&[&fake], NamePrefix::Always, 1000);
        let world = RouterWorld::of(world);
        assert_eq!(passes(&world).await, runs, "{output:?}");
        assert_eq!(
            fake.calls.load(Ordering::Relaxed),
            usize::from(runs),
            "{output:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_end_leaves_one_record() {
    let outcome = |end: fn() -> ReplyEnd| async move {
        let world = answering_with(CheckMode::Off, end);
        world.call(json!({ "name": "t" })).await;
        world.gate.outcomes()
    };
    let whole = |text: &'static str| Payload::Whole(Bytes::from_static(text.as_bytes()));
    assert_eq!(
        outcome(|| ReplyEnd::Complete(Payload::Whole(Bytes::from_static(b"{}")))).await,
        ["complete"]
    );
    assert_eq!(
        outcome(|| Failure::new(FailureKind::ResultUnknown, "").into()).await,
        ["result_unknown"]
    );
    let world = answering_with(CheckMode::Off, move || {
        ReplyEnd::Complete(whole("{\"isError\":true}"))
    });
    world.call(json!({ "name": "t" })).await;
    let desk2 = answering_with(CheckMode::Off, move || ReplyEnd::InputRequired(whole("{}")));
    desk2.call(json!({ "name": "t" })).await;
    assert_eq!(
        (world.gate.outcomes(), desk2.gate.outcomes()),
        (vec!["tool_error"], vec!["input_required"])
    );
}

/// So many chunks, then the end: white space, since it is legal at any position in a result.
struct WhitespaceChunks(usize);

impl PayloadSource for WhitespaceChunks {
    fn poll_chunk(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        match self.0 {
            0 => Poll::Ready(None),
            _ => {
                self.0 -= 1;
                Poll::Ready(Some(Ok(Bytes::from_static(b" "))))
            }
        }
    }
}

fn stream(chunks: usize) -> ReplyEnd {
    ReplyEnd::Complete(Payload::Stream(Box::new(WhitespaceChunks(chunks))))
}

#[tokio::test(start_paused = true)]
async fn a_long_result_ends_with_its_last_byte_and_is_cancelled_when_it_is_dropped_before() {
    let mut cx = Context::from_waker(Waker::noop());
    let world = answering_with(CheckMode::Off, || stream(2));
    let ReplyEnd::Complete(Payload::Stream(mut chunks)) = world.call(json!({ "name": "t" })).await
    else {
        panic!("no stream")
    };
    for _ in 0..2 {
        assert!(matches!(
            chunks.poll_chunk(&mut cx),
            Poll::Ready(Some(Ok(_)))
        ));
        assert!(world.gate.outcomes().is_empty());
    }
    assert!(matches!(chunks.poll_chunk(&mut cx), Poll::Ready(None)));
    drop(chunks);
    assert_eq!(world.gate.outcomes(), ["complete"]);
    drop(world.call(json!({ "name": "t" })).await);
    assert_eq!(world.gate.outcomes(), ["complete", "cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn notes_pass_in_order_and_a_dropped_reply_is_a_cancelled_call() {
    let fake = ScriptedUpstream::new("up", &["t"]);
    fake.set(|script| {
        script.answer = Box::new(|_| {
            let note = |n: u8| {
                ReplyEvent::Note(ReplyNote {
                    kind: NoteKind::Progress,
                    params: Bytes::from(vec![n]),
                })
            };
            Reply::live(Box::pin(futures_util::stream::iter([
                note(1),
                note(2),
                ReplyEvent::End(ReplyEnd::Complete(Payload::Whole(Bytes::from_static(
                    b"{}",
                )))),
            ])))
        });
    });
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    let call =
        || async { asked(&endpoint(), Method::ToolsCall, raw(&json!({ "name": "t" }))).await };
    let mut reply = world.router.call(call().await).await;
    let mut seen = Vec::new();
    while let Some(ReplyEvent::Note(note)) = reply.next().await {
        seen.push(note.params[0]);
    }
    assert_eq!(
        (seen, world.gate.outcomes()),
        (vec![1, 2], vec!["complete"])
    );
    let mut reply = world.router.call(call().await).await;
    assert!(matches!(reply.next().await, Some(ReplyEvent::Note(_))));
    drop(reply);
    assert_eq!(world.gate.outcomes(), ["complete", "cancelled"]);
    // Also if the client goes away before the upstream has sent an event.
    let hanging = ScriptedUpstream::new("late", &["t"]);
    let world = RouterWorld::of(CatalogWorld::of(&[&hanging]));
    world.world.settled().await;
    hanging.set(|script| script.mute = true);
    {
        let mut calling = pin!(world.router.call(call().await));
        assert!(
            calling
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    assert_eq!(world.gate.outcomes(), ["cancelled"]);
}

// Proves R119.
#[tokio::test(start_paused = true)]
async fn results_pass_byte_for_byte() {
    let odd: &str = r#" { "content" : [ ] , "x" : 1.0e2, "_meta":{"k":18446744073709551616}} "#;
    let world = answering(CheckMode::Off, odd);
    let ReplyEnd::Complete(Payload::Whole(bytes)) = world.call(json!({ "name": "t" })).await else {
        panic!("no result")
    };
    assert_eq!(&bytes[..], odd.as_bytes());
    assert_eq!(world.gate.outcomes(), ["complete"]);
}
