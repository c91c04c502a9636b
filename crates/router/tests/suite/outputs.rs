//! Hidden characters in servers' messages.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_catalog::CatalogSettings;
use weir_core::endpoint::{
    Endpoint, NamePrefix, OversizedAction, ResultLimit, ToolRules, UpstreamRules,
};
use weir_core::failure::UpstreamError;
use weir_core::names::EndpointId;
use weir_core::question::{PendingQuestion, UpstreamQuestion};
use weir_core::reply::{NoteKind, Payload, PayloadSource, ReplyEvent, ReplyNote, ReplySource};
use weir_core::secrets::{SecretAction, SecretPattern, SecretPatterns, SecretSearch};
use weir_core::upstream::ListKind;
use weir_core::{CapabilityClass, Failure, FailureKind, Reply, ReplyEnd};
use weir_schema::{CheckMode, Validation};
use weir_wire::method::Method;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::calls::{RouterWorld, asked, end, raw};
use crate::support::{
    CatalogWorld, ScriptedUpstream, aggregate, endpoint, exposed, id, transparent,
};

/// Text that hides an instruction in tags and a sequence that clears a terminal.
const POISONED: &str = "fine\u{1b}[2J\u{e0049}\u{e0067}";

fn result() -> Value {
    json!({
        "content": [{ "type": "text", "text": POISONED }, { "type": "image", "data": "AAAA", "mimeType": POISONED }],
        "structuredContent": { "note": POISONED, "\u{202e}key": 1 },
        "_meta": { "x/y": POISONED },
    })
}

fn answering(answer: impl Fn() -> ReplyEnd + Send + 'static) -> Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new("up", &["a"]);
    fake.set(|script| script.answer = Box::new(move |_| Reply::ended(answer())));
    fake
}

/// The endpoints that clean texts.
#[derive(Clone, Copy)]
struct CleaningEndpoints {
    aggregate: bool,
    transparent: bool,
}

impl CleaningEndpoints {
    const ALL: Self = Self {
        aggregate: true,
        transparent: true,
    };
    const NONE: Self = Self {
        aggregate: false,
        transparent: false,
    };
    const AGGREGATE: Self = Self {
        aggregate: true,
        transparent: false,
    };
}

/// A router with an aggregating and a transparent endpoint over an upstream, and the operator's
/// rules for its tool.
fn world(fake: &Arc<ScriptedUpstream>, rules: ToolRules, cleans: CleaningEndpoints) -> RouterWorld {
    desk_with(
        fake,
        UpstreamRules {
            tools: vec![("a".to_owned(), rules)],
            ..UpstreamRules::default()
        },
        cleans,
    )
}

/// The same with the operator's rules for the upstream.
fn desk_with(
    fake: &Arc<ScriptedUpstream>,
    rules: UpstreamRules,
    cleans: CleaningEndpoints,
) -> RouterWorld {
    let mut world = CatalogWorld::empty(CatalogSettings::default());
    world.rules = rules;
    let of = |endpoint: Arc<Endpoint>, clean| {
        Arc::new(Endpoint {
            clean,
            ..Endpoint::clone(&endpoint)
        })
    };
    let endpoints = vec![
        of(aggregate(&["up"], NamePrefix::None, 100), cleans.aggregate),
        of(transparent("up"), cleans.transparent),
    ];
    world.apply(endpoints, &[fake]);
    RouterWorld::of(world)
}

async fn called(world: &RouterWorld, to: &EndpointId) -> ReplyEnd {
    let params = raw(&json!({ "name": "a", "arguments": {} }));
    end(world
        .router
        .call(asked(to, Method::ToolsCall, params).await)
        .await)
    .await
}

/// Removals from [`result`]: a sequence and two tags in the text and in the note.
const REMOVED: u64 = 6;

fn whole(end: ReplyEnd) -> Value {
    match end {
        ReplyEnd::Complete(Payload::Whole(result)) => serde_json::from_slice(&result).unwrap(),
        ReplyEnd::Complete(Payload::Cleaned { result, removed }) => {
            assert_eq!(removed, REMOVED);
            serde_json::from_slice(&result).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn results_are_cleaned_where_the_endpoint_or_the_tool_says_so() {
    let fake = answering(|| ReplyEnd::Complete(Payload::Whole(result().to_string().into())));
    let aggregating = endpoint();
    let own = transparent("up").id.clone();
    let cleaned = json!({
        "content": [{ "type": "text", "text": "fine" }, { "type": "image", "data": "AAAA", "mimeType": POISONED }],
        "structuredContent": { "note": "fine", "\u{202e}key": 1 },
        "_meta": { "x/y": POISONED },
    });
    let usual = world(&fake, ToolRules::default(), CleaningEndpoints::AGGREGATE);
    let end = called(&usual, &aggregating).await;
    assert!(
        matches!(end, ReplyEnd::Complete(Payload::Cleaned { .. })),
        "{end:?}"
    );
    assert_eq!(whole(end), cleaned);
    let end = called(&usual, &own).await;
    assert!(
        matches!(end, ReplyEnd::Complete(Payload::Whole(_))),
        "{end:?}"
    );
    assert_eq!(whole(end), result(), "nothing is changed");
    for (says, expected) in [(true, &cleaned), (false, &result())] {
        let rules = ToolRules {
            clean: Some(says),
            ..ToolRules::default()
        };
        let by_endpoint = if says {
            CleaningEndpoints::NONE
        } else {
            CleaningEndpoints::ALL
        };
        let other = world(&fake, rules, by_endpoint);
        assert_eq!(&whole(called(&other, &aggregating).await), expected);
        assert_eq!(&whole(called(&other, &own).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_held_against_its_schema_after_it_was_cleaned() {
    let fake = answering(|| ReplyEnd::Complete(Payload::Whole(result().to_string().into())));
    let schema = json!({ "type": "object", "properties": { "note": { "maxLength": 4 } } });
    let tool = json!({ "name": "a", "inputSchema": { "type": "object" }, "outputSchema": schema });
    fake.set(|script| script.tools = vec![Bytes::from(tool.to_string())]);
    let enforced = Validation {
        output: CheckMode::Enforce,
        ..Validation::default()
    };
    let of = |clean| ToolRules {
        clean: Some(clean),
        validation: Some(enforced),
        ..ToolRules::default()
    };
    let cleaned = world(&fake, of(true), CleaningEndpoints::ALL);
    assert_eq!(
        whole(called(&cleaned, &endpoint()).await)["structuredContent"]["note"],
        "fine"
    );
    let as_it_is = world(&fake, of(false), CleaningEndpoints::ALL);
    assert!(matches!(
        called(&as_it_is, &endpoint()).await,
        ReplyEnd::Failed(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn errors_and_definitions_are_always_cleaned() {
    let fake = answering(|| {
        let data = json!({ "why": POISONED, "uri": POISONED }).to_string();
        let error = UpstreamError {
            code: -32000,
            message: POISONED.to_owned(),
            data: Some(data.into()),
        };
        Failure::new(FailureKind::Upstream(error), "an error of the upstream").into()
    });
    let tool = json!({ "name": "a", "description": POISONED, "inputSchema": { "type": "object", "default": POISONED } });
    fake.set(|script| script.tools = vec![Bytes::from(tool.to_string())]);
    let world = world(
        &fake,
        ToolRules {
            clean: Some(false),
            ..ToolRules::default()
        },
        CleaningEndpoints::NONE,
    );
    let own = transparent("up").id.clone();
    let view = world
        .world
        .catalog
        .settled_view(&own, ListKind::Tools, CapabilityClass::BASE)
        .await;
    assert_eq!(exposed(&view), ["a"]);
    let listed: Value = serde_json::from_slice(&view.items[0].tool.raw).unwrap();
    assert_eq!(
        listed,
        json!({ "name": "a", "description": "fine", "inputSchema": { "type": "object", "default": POISONED } })
    );
    let ReplyEnd::Failed(failure) = called(&world, &own).await else {
        panic!("it failed")
    };
    let FailureKind::Upstream(error) = failure.kind() else {
        panic!("{failure:?}")
    };
    assert_eq!(error.message, "fine");
    let data: Value = serde_json::from_slice(error.data.as_ref().unwrap()).unwrap();
    assert_eq!(data, json!({ "why": "fine", "uri": POISONED }));
}

/// A result in chunks.
struct ChunkedResult(VecDeque<Bytes>);

impl PayloadSource for ChunkedResult {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_streams_is_cleaned_as_a_whole_one_wherever_it_is_cut() {
    let text = result().to_string();
    let fake = answering(|| ReplyEnd::Complete(Payload::Whole(result().to_string().into())));
    let desk_of_whole = world(&fake, ToolRules::default(), CleaningEndpoints::ALL);
    let expected = whole(called(&desk_of_whole, &endpoint()).await);
    for size in [1, 2, 3, 7, 64, 4096] {
        let chunks: VecDeque<Bytes> = text
            .as_bytes()
            .chunks(size)
            .map(Bytes::copy_from_slice)
            .collect();
        let streaming = answering(move || {
            ReplyEnd::Complete(Payload::Stream(Box::new(ChunkedResult(chunks.clone()))))
        });
        let world = world(&streaming, ToolRules::default(), CleaningEndpoints::ALL);
        let ReplyEnd::Complete(Payload::Stream(mut source)) = called(&world, &endpoint()).await
        else {
            panic!("a stream")
        };
        let mut got = Vec::new();
        while let Some(chunk) = std::future::poll_fn(|cx| source.poll_chunk(cx)).await {
            got.extend_from_slice(&chunk.unwrap());
        }
        assert_eq!(source.removed(), REMOVED, "chunks of {size}");
        assert_eq!(
            serde_json::from_slice::<Value>(&got).unwrap(),
            expected,
            "chunks of {size}"
        );
    }
}

const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

fn secrets(answers: SecretAction) -> UpstreamRules {
    let pattern = SecretPattern {
        name: "key".to_owned(),
        regex: "AKIA[0-9A-Z]{16}".to_owned(),
    };
    let patterns = Arc::new(SecretPatterns::new(&[pattern]).unwrap());
    let secrets = SecretSearch {
        patterns,
        refuses_arguments: true,
        answers: Some(answers),
    };
    UpstreamRules {
        secrets: Some(Arc::new(secrets)),
        ..UpstreamRules::default()
    }
}

/// Sends a secret in a note, and ends with a result without one.
struct SecretNoteReply(bool);

impl ReplySource for SecretNoteReply {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<ReplyEvent> {
        Poll::Ready(if std::mem::replace(&mut self.0, true) {
            ReplyEvent::End(ReplyEnd::Complete(Payload::Whole(Bytes::from_static(
                b"{\"content\":[]}",
            ))))
        } else {
            let params = json!({ "progressToken": SECRET, "progress": 1, "message": SECRET });
            ReplyEvent::Note(ReplyNote {
                kind: NoteKind::Progress,
                params: params.to_string().into(),
            })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_are_masked_in_notifications_whatever_happens_to_results() {
    for action in [SecretAction::Mask, SecretAction::Refuse] {
        let fake = ScriptedUpstream::new("up", &["a"]);
        fake.set(|script| script.answer = Box::new(|_| Reply::live(SecretNoteReply(false))));
        let world = desk_with(&fake, secrets(action), CleaningEndpoints::NONE);
        let params = raw(&json!({ "name": "a", "arguments": {} }));
        let mut reply = world
            .router
            .call(asked(&endpoint(), Method::ToolsCall, params).await)
            .await;
        let Some(ReplyEvent::Note(note)) = reply.next().await else {
            panic!("a note comes first")
        };
        let note: Value = serde_json::from_slice(&note.params).unwrap();
        assert_eq!(
            (&note["message"], &note["progressToken"]),
            (&json!("[masked: key]"), &json!(SECRET))
        );
        assert!(matches!(
            reply.next().await,
            Some(ReplyEvent::End(ReplyEnd::Complete(_)))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn log_message_outside_of_calls_is_cleaned_masked_and_named_like_one_of_a_call() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = desk_with(&fake, secrets(SecretAction::Mask), CleaningEndpoints::NONE);
    let edited = |path: &str, upstream: &str| {
        let params = json!({ "level": "info", "logger": "db", "data": [POISONED, SECRET] });
        let to = EndpointId::new(path);
        let edited = world
            .router
            .edit_log(&to, &id(upstream), params.to_string().into())?;
        Some(serde_json::from_slice::<Value>(&edited).unwrap())
    };
    for (path, logger) in [("/mcp", "up/db"), ("/mcp/up", "db")] {
        let expected =
            json!({ "level": "info", "logger": logger, "data": ["fine", "[masked: key]"] });
        assert_eq!(edited(path, "up"), Some(expected), "{path}");
    }
    assert_eq!(edited("/mcp", "not-there"), None);
}

#[tokio::test(start_paused = true)]
async fn question_outside_of_calls_is_cleaned_masked_and_named_like_one_of_a_call() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    for action in [SecretAction::Mask, SecretAction::Refuse] {
        let world = desk_with(&fake, secrets(action), CleaningEndpoints::NONE);
        let edited = |path: &str, upstream: &str| {
            let question = UpstreamQuestion {
                method: Method::ElicitationCreate,
                params: raw(&json!({ "message": format!("{POISONED} {SECRET}") })),
            };
            let (ask, _answer) = PendingQuestion::new(question, id(upstream));
            let to = EndpointId::new(path);
            let ask = world.router.edit_question(&to, Box::new(ask))?;
            Some(serde_json::from_slice::<Value>(&ask.question.params).unwrap())
        };
        for (path, message) in [
            ("/mcp", "[up] fine [masked: key]"),
            ("/mcp/up", "fine [masked: key]"),
        ] {
            let expected = json!({ "message": message });
            assert_eq!(edited(path, "up"), Some(expected), "{path}");
        }
        assert_eq!(edited("/mcp", "not-there"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn progress_outside_of_calls_is_cleaned_and_masked_like_that_of_a_call() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = desk_with(&fake, secrets(SecretAction::Mask), CleaningEndpoints::NONE);
    let edited = |upstream: &str| {
        let params = json!({ "progressToken": "t", "progress": 1, "message": format!("{POISONED} {SECRET}") });
        let edited = world
            .router
            .edit_progress(&endpoint(), &id(upstream), raw(&params))?;
        Some(serde_json::from_slice::<Value>(&edited).unwrap())
    };
    let expected = json!({ "progressToken": "t", "progress": 1, "message": "fine [masked: key]" });
    assert_eq!(edited("up"), Some(expected));
    assert_eq!(edited("not-there"), None);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_to_come_whole_and_streams_is_refused() {
    let limit = ResultLimit {
        bytes: 4096,
        action: OversizedAction::Cut,
    };
    let bounded = UpstreamRules {
        results: Some(limit),
        ..UpstreamRules::default()
    };
    for rules in [secrets(SecretAction::Mask), bounded] {
        let chunks = VecDeque::from([Bytes::from_static(b"{\"content\":[]}")]);
        let fake = answering(move || {
            ReplyEnd::Complete(Payload::Stream(Box::new(ChunkedResult(chunks.clone()))))
        });
        let world = desk_with(&fake, rules, CleaningEndpoints::ALL);
        let ReplyEnd::Failed(failure) = called(&world, &endpoint()).await else {
            panic!("nobody looked at it")
        };
        assert_eq!(*failure.kind(), FailureKind::BadAnswer);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_with_secrets_reach_no_upstream() {
    let fake = answering(|| panic!("it was asked"));
    let world = desk_with(&fake, secrets(SecretAction::Mask), CleaningEndpoints::ALL);
    let params = raw(&json!({ "name": "a", "arguments": { "k": [SECRET] } }));
    let ReplyEnd::Failed(failure) = end(world
        .router
        .call(asked(&endpoint(), Method::ToolsCall, params).await)
        .await)
    .await
    else {
        panic!("it was called")
    };
    assert_eq!(*failure.kind(), FailureKind::BadArguments);
    assert!(
        failure.message().contains("at /k/0 (pattern `key`)")
            && !failure.message().contains(SECRET),
        "{failure}"
    );
}
