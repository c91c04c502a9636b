//! Calls through the router.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_catalog::CatalogSettings;
use weir_core::call::RequestName;
use weir_core::endpoint::{NamePrefix, ToolRules};
use weir_core::names::EndpointId;
use weir_core::port::Evidence;
use weir_core::upstream::CallDeadlines;
use weir_core::{
    Authenticated, Call, Failure, FailureKind, Reply, ReplyEnd, ReplyEvent, authenticate,
};
use weir_router::Router;
use weir_schema::{CheckMode, Validation};
use weir_wire::Revision;
use weir_wire::method::Method;
use weir_wire::params::Params;

use crate::support::{
    AcceptingVerifier, CatalogWorld, ScriptedGate, ScriptedUpstream, endpoint, transparent,
};

pub(crate) fn raw(params: &Value) -> Bytes {
    Bytes::from(params.to_string())
}

/// A call by a principal of this name, with a change.
pub(crate) async fn asked_with(
    who: &str,
    to: &EndpointId,
    method: Method,
    params: Bytes,
    change: impl FnOnce(&mut Call),
) -> Authenticated<Arc<Call>> {
    let mut call = Call::new(
        to.clone(),
        method,
        Params::parse(Some(&params)).unwrap(),
        RequestName::from_bits(1),
    );
    change(&mut call);
    authenticate(
        &AcceptingVerifier::name(who),
        &Evidence::none(std::net::Ipv4Addr::LOCALHOST.into(), to),
    )
    .await
    .unwrap()
    .map(|()| Arc::new(call))
}

/// A call by a principal of this name.
pub(crate) async fn asked_by(
    who: &str,
    to: &EndpointId,
    method: Method,
    params: Bytes,
) -> Authenticated<Arc<Call>> {
    asked_with(who, to, method, params, |_| {}).await
}

pub(crate) async fn asked(
    to: &EndpointId,
    method: Method,
    params: Bytes,
) -> Authenticated<Arc<Call>> {
    asked_by("somebody", to, method, params).await
}

pub(crate) async fn end(mut reply: Reply) -> ReplyEnd {
    loop {
        match reply.next().await.unwrap() {
            ReplyEvent::End(end) => return end,
            ReplyEvent::Note(_) | ReplyEvent::Ask(_) => {}
        }
    }
}

pub(crate) fn failure(end: ReplyEnd) -> Box<Failure> {
    match end {
        ReplyEnd::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// A world with a router over it.
pub(crate) struct RouterWorld {
    pub(crate) world: CatalogWorld,
    pub(crate) gate: Arc<ScriptedGate>,
    pub(crate) router: Router,
}

impl RouterWorld {
    pub(crate) fn of(world: CatalogWorld) -> Self {
        let gate = world.gate.clone();
        Self {
            router: Router::new(world.catalog.clone(), gate.all()),
            gate,
            world,
        }
    }

    pub(crate) async fn call(&self, params: Value) -> ReplyEnd {
        self.send(Method::ToolsCall, raw(&params)).await
    }

    pub(crate) async fn call_by(&self, who: &str, params: Value) -> ReplyEnd {
        let call = asked_by(who, &endpoint(), Method::ToolsCall, raw(&params)).await;
        end(self.router.call(call).await).await
    }

    pub(crate) async fn send(&self, method: Method, params: Bytes) -> ReplyEnd {
        end(self
            .router
            .call(asked(&endpoint(), method, params).await)
            .await)
        .await
    }
}

/// An upstream with a tool that has a schema for its arguments.
pub(crate) fn strict() -> Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new("up", &["free"]);
    let tool = json!({ "name": "strict", "inputSchema": {
        "type": "object",
        "properties": { "path": { "type": "string" }, "depth": { "type": "integer", "minimum": 0 } },
        "required": ["path"],
    }});
    fake.set(|script| script.tools.push(raw(&tool)));
    fake
}

fn ruled(fake: &Arc<ScriptedUpstream>, validation: Validation) -> RouterWorld {
    let mut world = CatalogWorld::empty(CatalogSettings::default());
    world.rules.validation = validation;
    world.show(&[fake], NamePrefix::Always, 1000);
    RouterWorld::of(world)
}

// Proves R123, B15.
#[tokio::test(start_paused = true)]
async fn unknown_and_ambiguous_tools_are_refused_alike_without_a_request() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["search"]),
        ScriptedUpstream::new("two", &["search"]),
    );
    let world = RouterWorld::of(CatalogWorld::of(&[&one, &two]));
    for name in ["nothing", "search", "one__nothing", "ONE__search", ""] {
        let failure = failure(world.call(json!({ "name": name })).await);
        assert_eq!(failure.kind(), &FailureKind::InvalidParams);
        assert_eq!(failure.message(), Failure::unknown_tool(name).message());
    }
    assert_eq!(
        ScriptedUpstream::count(&one.calls) + ScriptedUpstream::count(&two.calls),
        0
    );
    assert_eq!(world.gate.refused(), ["invalid_params"; 5]);
}

#[tokio::test(start_paused = true)]
async fn refusal_before_a_call_is_sent_is_no_call_of_its_upstream() {
    let fake = ScriptedUpstream::new("up", &["any"]);
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    let count = || world.world.catalog.status()[0].recent.calls;
    for (kind, is_sent, counts) in [
        (FailureKind::BadArguments, false, false),
        (FailureKind::Denied, false, false),
        (FailureKind::Overloaded, false, false),
        // The server itself refuses a call that it got.
        (FailureKind::BadArguments, true, true),
        (FailureKind::Denied, true, true),
        // An upstream that cannot be reached fails the call.
        (FailureKind::Unavailable, false, true),
        (FailureKind::Busy, false, true),
    ] {
        let before = count();
        let answer = kind.clone();
        fake.set(|script| {
            script.answer = Box::new(move |outbound| {
                if is_sent {
                    outbound.carried_revision.note(Revision::MODERN);
                }
                Reply::ended(Failure::new(answer.clone(), "no"))
            });
        });
        let failed = failure(world.call(json!({ "name": "any" })).await);
        assert_eq!(*failed.kind(), kind);
        assert_eq!(count() - before, u64::from(counts), "{kind:?}, {is_sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_reaches_the_one_upstream_by_its_own_name_with_the_rules_of_the_tool() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["search", "slow"]),
        ScriptedUpstream::new("two", &["search"]),
    );
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    two.set(|script| {
        script.answer = Box::new(move |outbound| {
            noted.lock().push((
                outbound.native.to_string(),
                outbound.deadlines,
                outbound.call.params.raw().clone(),
            ));
            Reply::ended(Failure::new(FailureKind::TimedOut, "late"))
        });
    });
    let slow = CallDeadlines {
        idle: Duration::from_secs(1),
        ..CallDeadlines::CALL
    };
    let mut world = CatalogWorld::empty(CatalogSettings::default());
    world.rules.tools = vec![(
        "search".to_owned(),
        ToolRules {
            deadlines: Some(slow),
            ..ToolRules::default()
        },
    )];
    world.show(&[&one, &two], NamePrefix::Always, 1000);
    let world = RouterWorld::of(world);
    let params = json!({ "name": "two__search", "arguments": { "q": 1 }, "odd": [1.50] });
    assert_eq!(
        failure(world.call(params.clone()).await).kind(),
        &FailureKind::TimedOut
    );
    assert_eq!(*seen.lock(), [("search".to_owned(), slow, raw(&params))]);
    assert_eq!(ScriptedUpstream::count(&one.calls), 0);
    assert_eq!(world.gate.outcomes(), ["timed_out"]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_can_shorten_the_deadlines_of_its_calls_but_not_stretch_them() {
    let one = ScriptedUpstream::new("one", &["search"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    one.set(|script| {
        script.answer = Box::new(move |outbound| {
            noted.lock().push(outbound.deadlines);
            Reply::ended(Failure::new(FailureKind::TimedOut, "late"))
        });
    });
    let world = CatalogWorld::empty(CatalogSettings::default());
    let mut endpoint = (*crate::support::aggregate(&["one"], NamePrefix::Always, 1000)).clone();
    let hard = Duration::from_secs(7);
    endpoint.deadlines = Some(CallDeadlines {
        connect: Duration::MAX,
        idle: Duration::MAX,
        hard,
        own_silence: None,
    });
    world.apply(vec![Arc::new(endpoint)], &[&one]);
    let world = RouterWorld::of(world);
    failure(world.call(json!({ "name": "one__search" })).await);
    assert_eq!(
        *seen.lock(),
        [CallDeadlines {
            hard,
            own_silence: Some(CallDeadlines::CALL.idle),
            ..CallDeadlines::CALL
        }]
    );
}

#[tokio::test(start_paused = true)]
async fn right_after_a_start_a_call_waits_for_the_first_walk() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    fake.set(|script| script.page_delay = Duration::from_millis(700));
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    assert!(matches!(
        world.call(json!({ "name": "up__a" })).await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(world.gate.outcomes(), ["complete"]);
}

// Proves E16.
#[tokio::test(start_paused = true)]
async fn a_tool_of_an_upstream_that_is_down_is_unavailable_and_not_unknown() {
    let (down, good) = (
        ScriptedUpstream::new("down", &["a"]),
        ScriptedUpstream::new("good", &["b"]),
    );
    down.set(|script| script.refuse = true);
    let world = CatalogWorld::empty(CatalogSettings::default());
    let alone = transparent("down");
    world.apply(
        vec![
            crate::support::aggregate(&["down", "good"], NamePrefix::Always, 1000),
            alone.clone(),
        ],
        &[&down, &good],
    );
    let world = RouterWorld::of(world);
    let lost = failure(world.call(json!({ "name": "down__a" })).await);
    assert_eq!(
        (lost.kind(), lost.upstream().unwrap().as_str()),
        (&FailureKind::Unavailable, "down")
    );
    assert_eq!(
        failure(world.call(json!({ "name": "downtown" })).await).kind(),
        &FailureKind::InvalidParams
    );
    assert_eq!(
        failure(world.call(json!({ "name": "good__a" })).await).kind(),
        &FailureKind::InvalidParams
    );
    let reply = world
        .router
        .call(asked(&alone.id, Method::ToolsCall, raw(&json!({ "name": "a" }))).await)
        .await;
    assert_eq!(failure(end(reply).await).kind(), &FailureKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn other_methods_and_nameless_calls_are_refused() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    assert_eq!(
        failure(world.send(Method::Ping, raw(&json!({ "name": "a" }))).await).kind(),
        &FailureKind::MethodNotFound
    );
    assert_eq!(
        failure(world.call(json!({})).await).kind(),
        &FailureKind::InvalidParams
    );
    assert_eq!(
        failure(world.call(json!({ "name": 5 })).await).kind(),
        &FailureKind::InvalidParams
    );
    assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
}

// Proves B24.
#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_match_never_reach_the_upstream() {
    let fake = strict();
    let world = ruled(&fake, Validation::default());
    let secret = "s".repeat(65);
    let bad = [
        json!({}),
        json!({ "path": secret, "depth": -1 }),
        json!({ "path": ["x"], "depth": secret }),
        json!({ "path": { "deep": secret } }),
    ];
    for arguments in bad {
        let failure = failure(
            world
                .call(json!({ "name": "up__strict", "arguments": arguments }))
                .await,
        );
        assert_eq!(failure.kind(), &FailureKind::BadArguments, "{arguments}");
        assert!(
            failure.message().contains("up__strict") && !failure.message().contains("sssss"),
            "{failure}"
        );
    }
    let absent = failure(world.call(json!({ "name": "strict" })).await);
    assert!(
        absent.message().contains("\"path\" is a required property"),
        "{absent}"
    );
    let depth = failure(
        world
            .call(json!({ "name": "strict", "arguments": { "path": "p", "depth": "x" } }))
            .await,
    );
    assert!(
        depth.message().contains("/depth") && depth.message().contains("integer"),
        "{depth}"
    );
    for odd in [json!([]), json!("x"), json!(5), json!(null), json!(true)] {
        let failure = failure(
            world
                .call(json!({ "name": "strict", "arguments": odd }))
                .await,
        );
        assert!(
            matches!(
                failure.kind(),
                FailureKind::InvalidParams | FailureKind::BadArguments
            ),
            "{odd}"
        );
    }
    let twice = Bytes::from_static(br#"{"name":"strict","arguments":{"path":"a","path":"b"}}"#);
    assert_eq!(
        failure(world.send(Method::ToolsCall, twice).await).kind(),
        &FailureKind::BadArguments
    );
    assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
    assert!(matches!(
        world
            .call(json!({ "name": "strict", "arguments": { "path": "p" } }))
            .await,
        ReplyEnd::Complete(_)
    ));
    assert!(matches!(
        world
            .call(json!({ "name": "free", "arguments": { "x": [1] } }))
            .await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(ScriptedUpstream::count(&fake.calls), 2);
}

// Proves B24.
#[tokio::test(start_paused = true)]
async fn schema_refusal_of_a_call_lists_at_most_five_mismatches() {
    let fake = ScriptedUpstream::new("up", &[]);
    let tool =
        json!({ "name": "n", "inputSchema": { "additionalProperties": { "type": "integer" } } });
    fake.set(|script| script.tools.push(raw(&tool)));
    let world = ruled(&fake, Validation::default());
    let arguments: serde_json::Map<String, Value> =
        (0..50).map(|at| (format!("k{at}"), json!("no"))).collect();
    let failure = failure(
        world
            .call(json!({ "name": "n", "arguments": arguments }))
            .await,
    );
    assert_eq!(failure.message().matches("\n- /k").count(), 5, "{failure}");
}

// Proves B24.
#[tokio::test(start_paused = true)]
async fn arguments_pass_untouched_if_validation_is_off() {
    for input in [CheckMode::Warn, CheckMode::Off] {
        let fake = strict();
        let world = ruled(
            &fake,
            Validation {
                input,
                output: CheckMode::Off,
            },
        );
        assert!(matches!(
            world
                .call(json!({ "name": "strict", "arguments": { "path": 5 } }))
                .await,
            ReplyEnd::Complete(_)
        ));
        assert_eq!(ScriptedUpstream::count(&fake.calls), 1);
    }
}

// Proves B23, R121.
#[tokio::test(start_paused = true)]
async fn tool_with_too_costly_schema_is_listed_and_callable_without_validation() {
    let fake = ScriptedUpstream::new("up", &[]);
    let mut defs = serde_json::Map::new();
    for at in 0..26 {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        defs.insert(format!("d{at}"), json!({ "allOf": [next, next] }));
    }
    defs.insert("d26".to_owned(), json!({ "type": "string" }));
    let tool = json!({ "name": "bomb", "inputSchema": { "$defs": defs, "$ref": "#/$defs/d0" } });
    fake.set(|script| script.tools.push(raw(&tool)));
    let world = ruled(&fake, Validation::default());
    assert!(matches!(
        world.call(json!({ "name": "bomb", "arguments": {} })).await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(world.world.catalog.status()[0].lists[0].unchecked, 1);
}

// Proves G02.
#[tokio::test(start_paused = true)]
async fn a_call_in_flight_survives_the_reload_that_takes_its_upstream_away() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let go = Arc::new(tokio::sync::Notify::new());
    let wait = go.clone();
    fake.set(|script| {
        script.answer = Box::new(move |_| {
            let wait = wait.clone();
            Reply::live(Box::pin(futures_util::stream::once(async move {
                wait.notified().await;
                ReplyEvent::End(Failure::new(FailureKind::Busy, "done").into())
            })))
        });
    });
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    let reply = world
        .router
        .call(asked(&endpoint(), Method::ToolsCall, raw(&json!({ "name": "a" }))).await)
        .await;
    world.world.apply(Vec::new(), &[]);
    world.world.rest().await;
    go.notify_one();
    assert_eq!(failure(end(reply).await).kind(), &FailureKind::Busy);
}
