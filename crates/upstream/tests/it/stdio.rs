//! Tests of child processes: start, calls, isolation, restart, and end with all descendants.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::call::LogMessages;
use weir_core::reply::NoteKind;
use weir_core::upstream::{ListKind, OutboundCall, Upstream};
use weir_core::{Budgets, CapabilityClass, SessionKey};
use weir_upstream::{
    ClientImplementation, SecretText, SessionSharing, UpstreamBounds, UpstreamFactory,
    UpstreamPorts, UpstreamSettings,
};
use weir_wire::LogLevel;

use crate::child::{settings, with};
use crate::fixtures::*;

pub(crate) async fn pid(upstream: &Arc<dyn Upstream>) -> u32 {
    text(call_anonymously(upstream, "pid", json!({})).await)
        .await
        .parse()
        .unwrap()
}

/// True while a process lives; one that ended and was not waited for does not.
pub(crate) fn lives(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

pub(crate) async fn until_gone(pid: u32) {
    for _ in 0..1000 {
        if !lives(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {pid} lives on");
}

// Proves R068.
#[tokio::test]
async fn children_of_both_eras_are_spoken_to() {
    for (manner, revision) in [
        ("modern", "2026-07-28"),
        ("legacy", "2025-11-25"),
        ("exit-on-probe", "2025-11-25"),
    ] {
        let upstream = build(settings(manner));
        assert_eq!(
            text(call_anonymously(&upstream, "echo", json!({"a": "é\n"})).await).await,
            r#"{"a":"é\n"}"#,
            "{manner}"
        );
        assert_eq!(upstream.health().revision, Some(revision), "{manner}");
        assert_eq!(upstream.health().sessions, 1, "{manner}");
        let mut call = call("progress", json!({}));
        call.wants_progress = true;
        call.log_messages = LogMessages::From(LogLevel::Info);
        let outcome = outcome(
            upstream
                .clone()
                .call(outbound("progress", call).await)
                .await,
        )
        .await;
        let kinds: Vec<_> = outcome.notes.iter().map(|note| note.kind).collect();
        assert_eq!(
            kinds,
            [
                NoteKind::Progress,
                NoteKind::Progress,
                NoteKind::Log(LogLevel::Error)
            ],
            "{manner}"
        );
        assert_eq!(
            text(call_anonymously(&upstream, "big", json!({})).await)
                .await
                .len(),
            3 << 20,
            "{manner}"
        );
        upstream.retire(Duration::from_secs(1)).await;
    }
}

// Proves R068.
#[tokio::test]
async fn child_that_ignores_the_probe_is_initialized() {
    let upstream = build(settings("silent"));
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(upstream.health().revision, Some("2025-11-25"));
}

#[tokio::test]
async fn child_environment_has_only_listed_and_standard_variables() {
    // Cargo sets this for the test itself: it stands for any variable of weir's own environment.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    let listed = with(settings("legacy"), |stdio| {
        stdio
            .env
            .push(("TOKEN".to_owned(), SecretText::new("listed")))
    });
    let shown = format!("{listed:?}");
    assert!(!shown.contains("listed"), "{shown}");
    let variables = text(call_anonymously(&build(listed), "env", json!({})).await).await;
    assert!(variables.contains("TOKEN=listed"));
    let usual = [
        "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER",
    ];
    let network = [
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    ];
    let proxies = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];
    let allowed = [
        &usual[..],
        &network,
        &proxies,
        &["TOKEN", "WEIR_TEST_CHILD"],
    ]
    .concat();
    for line in variables.lines() {
        let name = line.split('=').next().unwrap();
        let name = if name.ends_with("_proxy") {
            &name.to_uppercase()
        } else {
            name
        };
        // The variables that the test harness sets are not weir's doing.
        assert!(
            allowed.contains(&name) || name.starts_with("RUST_TEST"),
            "{name} was handed on"
        );
    }
}

/// Once such a start failed at random: the end of the child ended both requests of the handshake.
#[tokio::test]
async fn child_that_ends_on_the_probe_after_initialize_was_sent_is_started_without_a_probe() {
    let calls = (0..8).map(|_| async {
        let upstream = build(settings("late-exit-on-probe"));
        text(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(upstream.health().revision, Some("2025-11-25"));
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn a_shared_child_serves_calls_side_by_side_and_cancels_only_the_dropped_one() {
    for manner in ["modern", "legacy"] {
        let upstream = build(settings(manner));
        let first = pid(&upstream).await;
        let hanging = tokio::spawn({
            let upstream = upstream.clone();
            async move { outcome(call_anonymously(&upstream, "hang", json!({})).await).await }
        });
        let calls = (0..50).map(|n| {
            let upstream = &upstream;
            async move {
                text(call_anonymously(upstream, "echo", json!(n)).await)
                    .await
                    .parse::<u32>()
                    .unwrap()
            }
        });
        assert_eq!(
            futures_util::future::join_all(calls).await,
            (0..50).collect::<Vec<_>>(),
            "{manner}"
        );
        hanging.abort();
        let mut cancelled = String::new();
        for _ in 0..200 {
            cancelled = text(call_anonymously(&upstream, "cancelled", json!({})).await).await;
            if cancelled != "[]" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(cancelled.matches(',').count(), 0, "{manner}: {cancelled}");
        assert_ne!(cancelled, "[]", "{manner}");
        assert_eq!(
            pid(&upstream).await,
            first,
            "{manner}: the same process all along"
        );
    }
}

#[tokio::test]
async fn child_that_reads_no_answers_is_ended() {
    let upstream = build(settings("legacy"));
    let first = pid(&upstream).await;
    let deaf = call_anonymously(
        &upstream,
        "deaf",
        json!({"asks": "no/such", "for_ever": true}),
    )
    .await;
    assert_eq!(failure(deaf).await.reason(), "result_unknown");
    until_gone(first).await;
    // It is not started again in the same moment.
    while outcome(call_anonymously(&upstream, "pid", json!({})).await)
        .await
        .end
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_flood_of_pings_is_answered_by_the_newest_answers_alone() {
    let upstream = build(settings("legacy"));
    let first = pid(&upstream).await;
    assert_eq!(
        text(call_anonymously(&upstream, "deaf", json!({"asks": "ping"})).await).await,
        "asked"
    );
    // It answers the answers with errors, which belong to no request.
    assert_eq!(pid(&upstream).await, first);
}

#[tokio::test]
async fn descriptors_of_children_are_counted_when_they_are_started() {
    let budgets = Budgets::default();
    // 64 are kept for others, and a fourth of the rest for clients: 30 are left for upstreams, five
    // for each child.
    budgets.descriptors.observe(64 + 40, 0);
    let ports = UpstreamPorts { budgets, ..ports() };
    let factory = UpstreamFactory::new(ports, ClientImplementation::new("weir", "0.1.0"));
    let upstream = factory
        .build(UpstreamSettings {
            session: SessionSharing::Principal,
            ..settings("legacy")
        })
        .unwrap();
    let one = async |name: &str| {
        let mut outbound = outbound("pid", call("pid", json!({}))).await;
        outbound.principal = principal(Some(name)).await;
        outcome(upstream.clone().call(outbound).await).await.end
    };
    for nth in 0..6 {
        one(&format!("p{nth}")).await.unwrap();
    }
    let refused = one("one-more").await.unwrap_err();
    assert_eq!(refused.reason(), "overloaded", "{refused:?}");
    assert!(!upstream.health().down, "the upstream has no part in that");
    one("p0").await.unwrap();
    upstream.retire(Duration::from_secs(1)).await;
    let upstream = factory.build(settings("legacy")).unwrap();
    pid(&upstream).await;
}

#[tokio::test]
async fn each_principal_has_a_child_of_its_own_and_their_number_is_bounded() {
    let settings = with(settings("legacy"), |stdio| stdio.max_processes = 2);
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        ..settings
    });
    let one = async |name: &str| {
        let mut outbound = outbound("pid", call("pid", json!({}))).await;
        outbound.principal = principal(Some(name)).await;
        text(upstream.clone().call(outbound).await)
            .await
            .parse::<u32>()
            .unwrap()
    };
    let (ann, bob) = (one("ann").await, one("bob").await);
    assert_ne!(ann, bob);
    assert_eq!(one("ann").await, ann);
    // One child beyond the limit for principals is the watch's.
    let cay = one("cay").await;
    let mut late = outbound("pid", call("pid", json!({}))).await;
    late.principal = principal(Some("dan")).await;
    let refused = failure(upstream.clone().call(late).await).await;
    assert_eq!(refused.reason(), "busy");
    assert!(
        refused.message().contains("limits.max_processes"),
        "{}",
        refused.message()
    );
    assert_eq!(
        (one("ann").await, one("bob").await, one("cay").await),
        (ann, bob, cay),
        "nobody lost theirs"
    );
    upstream.retire(Duration::from_secs(1)).await;
    for pid in [ann, bob, cay] {
        until_gone(pid).await;
    }
}

/// A call of a client of an older revision that can fill in forms.
async fn of_session(tool: &str, principal_name: &str, session: u8) -> OutboundCall {
    let mut call = call(tool, json!({}));
    call.capabilities.class = CapabilityClass::ELICITATION_FORM;
    call.session = Some(SessionKey([session; 16]));
    let mut outbound = outbound(tool, call).await;
    outbound.principal = principal(Some(principal_name)).await;
    outbound
}

#[tokio::test]
async fn sessions_of_one_principal_share_a_child_and_a_second_one_runs_only_while_it_may_be_asking()
{
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..settings("legacy")
    });
    let one = async |name: &str, session: u8| {
        let outbound = of_session("pid", name, session).await;
        text(upstream.clone().call(outbound).await)
            .await
            .parse::<u32>()
            .unwrap()
    };
    let first = one("ann", 1).await;
    assert_eq!(
        [one("ann", 2).await, one("ann", 1).await],
        [first, first],
        "one child, whatever the session"
    );
    assert_ne!(one("bob", 3).await, first, "another principal");
    let hanging = tokio::spawn({
        let (upstream, outbound) = (upstream.clone(), of_session("hang", "ann", 1).await);
        async move { outcome(upstream.call(outbound).await).await }
    });
    while upstream.health().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        one("ann", 1).await,
        first,
        "a call of the session that is being served"
    );
    let second = one("ann", 2).await;
    assert_ne!(second, first, "the first may be asking the other session");
    hanging.abort();
    for _ in 0..1000 {
        if one("ann", 2).await == first {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the first child is not used again");
}

#[tokio::test]
async fn a_message_without_an_address_reaches_no_call_of_a_child_that_several_principals_share() {
    for (before, kinds) in [
        (
            "bob",
            vec![
                NoteKind::Progress,
                NoteKind::Progress,
                NoteKind::Log(LogLevel::Error),
            ],
        ),
        ("ann", vec![NoteKind::Progress, NoteKind::Progress]),
    ] {
        let upstream = build(settings("legacy"));
        let mut earlier = outbound("echo", call("echo", json!({}))).await;
        earlier.principal = principal(Some(before)).await;
        text(upstream.clone().call(earlier).await).await;
        let mut call = call("progress", json!({}));
        call.wants_progress = true;
        call.log_messages = LogMessages::From(LogLevel::Info);
        let mut outbound = outbound("progress", call).await;
        outbound.principal = principal(Some("bob")).await;
        let outcome = outcome(upstream.clone().call(outbound).await).await;
        let got: Vec<_> = outcome.notes.iter().map(|note| note.kind).collect();
        assert_eq!(got, kinds, "after a call of {before}");
    }
}

#[tokio::test]
async fn unused_children_of_principals_are_ended() {
    let bounds = UpstreamBounds {
        session_idle: Duration::from_millis(50),
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        bounds,
        ..settings("legacy")
    });
    let first = pid(&upstream).await;
    until_gone(first).await;
    assert_ne!(pid(&upstream).await, first);
}

// Proves E22.
#[tokio::test]
async fn a_child_that_dies_in_a_call_leaves_its_result_unknown_and_is_started_again() {
    let upstream = build(settings("legacy"));
    let first = pid(&upstream).await;
    let failure = failure(call_anonymously(&upstream, "crash", json!({})).await).await;
    assert_eq!(failure.reason(), "result_unknown");
    let mut second = outcome(call_anonymously(&upstream, "pid", json!({})).await)
        .await
        .end;
    for _ in 0..200 {
        if second.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        second = outcome(call_anonymously(&upstream, "pid", json!({})).await)
            .await
            .end;
    }
    assert_ne!(second.unwrap()["content"][0]["text"], first.to_string());
    assert!(!lives(first));
}

// Proves E22.
#[tokio::test]
async fn a_child_that_cannot_start_is_backed_off() {
    let upstream = build(settings("crash-at-start"));
    let mut reasons = HashSet::new();
    let mut waits = 0;
    for _ in 0..30 {
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        waits += usize::from(failure.retry_delay().is_some());
        reasons.insert(failure.reason());
    }
    assert_eq!(reasons, HashSet::from(["unavailable"]));
    assert!(waits > 15, "{waits} of 30 calls were told to wait");
    let missing = with(settings("legacy"), |stdio| {
        stdio.command = "/nonexistent/program".to_owned()
    });
    assert_eq!(
        failure(call_anonymously(&build(missing), "echo", json!({})).await)
            .await
            .reason(),
        "unavailable"
    );
}

// Proves E22.
#[tokio::test]
async fn a_flood_on_the_error_stream_blocks_nothing() {
    let upstream = build(settings("legacy"));
    assert_eq!(
        text(call_anonymously(&upstream, "flood", json!({})).await).await,
        "flooded"
    );
}

// Proves E22.
#[tokio::test]
async fn the_whole_process_group_ends_also_where_sigterm_is_ignored() {
    let upstream = build(settings("stubborn"));
    let leader = pid(&upstream).await;
    let grandchild: u32 = text(call_anonymously(&upstream, "grandchild", json!({})).await)
        .await
        .parse()
        .unwrap();
    assert!(lives(leader) && lives(grandchild));
    upstream.retire(Duration::from_millis(10)).await;
    until_gone(leader).await;
    until_gone(grandchild).await;
}

#[tokio::test]
async fn dropped_upstream_leaves_no_process() {
    let upstream = build(settings("legacy"));
    let (leader, grandchild) = (
        pid(&upstream).await,
        text(call_anonymously(&upstream, "grandchild", json!({})).await)
            .await
            .parse()
            .unwrap(),
    );
    drop(upstream);
    until_gone(leader).await;
    until_gone(grandchild).await;
}

#[tokio::test]
async fn a_watch_lists_and_hears_changes_over_the_shared_child() {
    for manner in ["modern", "legacy"] {
        let upstream = build(settings(manner));
        let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
        assert!(watch.about().notifies_of.has(ListKind::Tools), "{manner}");
        assert_eq!(
            watch.list(ListKind::Tools, None).await.unwrap().items.len(),
            1,
            "{manner}"
        );
        assert_eq!(
            text(call_anonymously(&upstream, "add", json!({})).await).await,
            "added"
        );
        assert!(
            watch.next_change().await.unwrap().has(ListKind::Tools),
            "{manner}"
        );
        assert_eq!(upstream.health().sessions, 1, "{manner}");
        assert_eq!(
            failure(call_anonymously(&upstream, "crash", json!({})).await)
                .await
                .reason(),
            "result_unknown"
        );
        let mut lost = watch.next_change().await;
        while lost.is_ok() {
            lost = watch.next_change().await;
        }
        assert_eq!(lost.unwrap_err().reason(), "unavailable", "{manner}");
    }
}

// Proves E07.
#[tokio::test]
async fn a_line_that_is_too_long_ends_the_child_and_not_weir() {
    let bounds = UpstreamBounds {
        max_reply: 1 << 20,
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        bounds,
        ..settings("legacy")
    });
    let failure = failure(call_anonymously(&upstream, "big", json!({})).await).await;
    assert_eq!(failure.reason(), "result_unknown");
}

/// The notes of a call of one client session, while a call of another hangs in the same child.
async fn notes_beside_a_hanging_call(hangs: Option<u8>, runs: Option<u8>) -> Vec<NoteKind> {
    let upstream = build(settings("legacy"));
    let call = |name: &'static str, session: Option<u8>| {
        let mut call = call(name, json!({}));
        call.session = session.map(|session| SessionKey([session; 16]));
        call.wants_progress = true;
        call.log_messages = LogMessages::From(LogLevel::Debug);
        let upstream = upstream.clone();
        async move { outcome(upstream.call(outbound(name, call).await).await).await }
    };
    let hanging = tokio::spawn(call("hang", hangs));
    while upstream.health().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    // The child answers in order, so the hanging call has arrived.
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    let outcome = call("progress", runs).await;
    assert!(!hanging.is_finished());
    hanging.abort();
    outcome.notes.iter().map(|note| note.kind).collect()
}

#[tokio::test]
async fn ambiguous_logs_of_a_shared_child_are_dropped() {
    for (hangs, runs) in [(None, None), (Some(1), Some(2)), (None, Some(1))] {
        assert_eq!(
            notes_beside_a_hanging_call(hangs, runs).await,
            [NoteKind::Progress, NoteKind::Progress],
            "progress says whose it is, a log does not: {hangs:?}, {runs:?}"
        );
    }
}

#[tokio::test]
async fn logs_of_a_child_reach_the_newest_of_several_calls_of_one_session() {
    let log = NoteKind::Log(LogLevel::Error);
    assert_eq!(
        notes_beside_a_hanging_call(Some(1), Some(1)).await,
        [NoteKind::Progress, NoteKind::Progress, log]
    );
}
