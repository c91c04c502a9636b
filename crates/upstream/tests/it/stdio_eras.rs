//! Tests of stdio servers that speak both eras: a process of each, started when the first caller of
//! its era comes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::reply::Reply;
use weir_core::upstream::{ListKind, Upstream};
use weir_core::{CapabilityClass, SessionKey};
use weir_testkit::{FakeClock, wait_for_condition};
use weir_upstream::{SecretText, SessionSharing, UpstreamProtocol, UpstreamSettings};

use crate::both_eras::find_sessions;
use crate::child::{self, with};
use crate::fixtures::*;

const SESSIONS: CapabilityClass = CapabilityClass::SESSIONS;
const FORM: CapabilityClass = CapabilityClass::ELICITATION_FORM;
/// The longest wait for the start of a child.
const START_WAIT: Duration = Duration::from_secs(10);

/// Makes a call of a client with a session that declared this class.
async fn ask_in_session(
    upstream: &Arc<dyn Upstream>,
    name: &str,
    tool: &str,
    class: CapabilityClass,
) -> Reply {
    let mut call = call(tool, json!({}));
    call.capabilities.class = class.with(SESSIONS);
    call.session = Some(SessionKey([1; 16]));
    let mut outbound = outbound(tool, call).await;
    outbound.principal = principal(Some(name)).await;
    upstream.clone().call(outbound).await
}

async fn pid_in_session(upstream: &Arc<dyn Upstream>) -> String {
    text(ask_in_session(upstream, "ann", "pid", CapabilityClass::BASE).await).await
}

async fn pid(upstream: &Arc<dyn Upstream>) -> String {
    text(call_anonymously(upstream, "pid", json!({})).await).await
}

/// Returns settings of a child of this manner that adds a line to a file when it starts.
pub(crate) fn counted(manner: &str, starts: &Path) -> UpstreamSettings {
    let starts = SecretText::new(starts.display().to_string());
    with(child::settings(manner), |stdio| {
        stdio.env.push((child::STARTS.to_owned(), starts))
    })
}

/// Returns the path of a new file of this test process alone.
pub(crate) fn starts_file(manner: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("weir-starts-{}-{manner}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file
}

pub(crate) fn started(starts: &Path) -> usize {
    started_pids(starts).len()
}

fn started_pids(starts: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(starts).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until so many children have started, and returns the process id of the last one.
async fn last_of_starts(starts: &Path, count: usize) -> String {
    wait_for_condition("the children have started", START_WAIT, || {
        started(starts) == count
    })
    .await;
    started_pids(starts).remove(count - 1)
}

#[tokio::test]
async fn each_caller_is_served_by_a_process_of_its_era() {
    let starts = starts_file("both");
    let upstream = build(counted("both", &starts));
    let modern = pid(&upstream).await;
    assert!(!upstream.carries().has(SESSIONS), "nobody has asked for it");
    assert_eq!(upstream.health().second_revision, None);
    let callers = (0..8).map(|_| pid_in_session(&upstream));
    let legacy = futures_util::future::join_all(callers).await;
    assert!(
        legacy.iter().all(|pid| *pid == legacy[0] && *pid != modern),
        "{modern}: {legacy:?}"
    );
    assert_eq!(pid(&upstream).await, modern);
    assert_eq!(
        started(&starts),
        2,
        "one for each era, though many looked for the second at once"
    );
    let health = upstream.health();
    assert_eq!(
        (health.revision, health.second_revision),
        (Some("2026-07-28"), Some("2025-11-25"))
    );
    assert_eq!(health.sessions, 2);
    assert!(upstream.carries().has(SESSIONS), "lists are kept apart");
    for class in [CapabilityClass::BASE, SESSIONS] {
        let mut watch = upstream.clone().watch(class).await.unwrap();
        assert_eq!(
            watch.list(ListKind::Tools, None).await.unwrap().items.len(),
            1
        );
    }
    assert_eq!(started(&starts), 2, "they watch, too");
    upstream.retire(Duration::from_secs(1)).await;
    std::fs::remove_file(starts).unwrap();
}

#[tokio::test]
async fn second_era_is_found_before_the_first_call_in_it() {
    for (manner, has_second) in [("both", true), ("modern", false)] {
        let upstream = build(child::settings(manner));
        assert!(!find_sessions(&upstream).await, "its era is unknown");
        pid(&upstream).await;
        assert!(find_sessions(&upstream).await, "{manner}");
        assert_eq!(upstream.carries().has(SESSIONS), has_second, "{manner}");
        if has_second {
            assert!(!find_sessions(&upstream).await);
        }
    }
}

#[tokio::test]
async fn a_process_of_the_second_era_that_ended_is_started_again() {
    let upstream = build(child::settings("both"));
    let modern = pid(&upstream).await;
    let first = pid_in_session(&upstream).await;
    let lost =
        failure(ask_in_session(&upstream, "ann", "crash", CapabilityClass::BASE).await).await;
    assert_eq!(lost.reason(), "result_unknown");
    for _ in 0..200 {
        let again = outcome(ask_in_session(&upstream, "ann", "pid", CapabilityClass::BASE).await)
            .await
            .end;
        if let Ok(again) = again {
            let again = again["content"][0]["text"].as_str().unwrap();
            assert!(again != first && again != modern, "{again}");
            assert_eq!(pid(&upstream).await, modern, "the other one is as it was");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it is not started again");
}

// Proves E17.
#[tokio::test]
async fn a_server_without_a_second_era_is_asked_once_where_it_refuses_and_three_times_where_it_is_silent()
 {
    for (manner, asked) in [("modern", 1), ("modern-and-silent", 3)] {
        let starts = starts_file(manner);
        // Longer than a child needs to say that it refuses, also on a busy machine.
        let start = Duration::from_secs(4);
        let upstream = build(with(counted(manner, &starts), |stdio| stdio.start = start));
        let own = pid(&upstream).await;
        for _ in 0..300 {
            assert_eq!(
                pid_in_session(&upstream).await,
                own,
                "{manner}: the bridge serves meanwhile"
            );
            if started(&starts) > asked {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for _ in 0..3 {
            tokio::time::sleep(start / 2).await;
            assert_eq!(pid_in_session(&upstream).await, own, "{manner}");
        }
        assert_eq!(started(&starts), 1 + asked, "{manner}: no more are started");
        assert_eq!(
            (
                upstream.health().second_revision,
                upstream.health().sessions
            ),
            (None, 1),
            "{manner}"
        );
        upstream.retire(Duration::from_secs(1)).await;
        std::fs::remove_file(starts).unwrap();
    }
}

#[tokio::test]
async fn without_free_processes_only_callers_without_capabilities_use_the_bridge() {
    let shared = build(with(child::settings("both"), |stdio| {
        stdio.max_processes = 1
    }));
    let own = pid(&shared).await;
    assert_eq!(pid_in_session(&shared).await, own, "there may be one");
    let settings = with(child::settings("both"), |stdio| stdio.max_processes = 2);
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..settings
    });
    for name in ["ann", "bob", "cay"] {
        // One process beyond the limit for principals is the watch's.
        text(ask_in_session(&upstream, name, "pid", FORM).await).await;
    }
    let reached = upstream.health().sessions;
    assert_eq!(
        failure(ask_in_session(&upstream, "dan", "echo", FORM).await)
            .await
            .reason(),
        "busy"
    );
    assert_eq!(reached, 3);
}

#[tokio::test]
async fn clients_that_can_be_asked_have_a_process_of_the_second_era_for_each_principal() {
    let settings = UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..child::settings("both")
    };
    let upstream = build(settings);
    let modern = pid(&upstream).await;
    let one = async |name: &str| text(ask_in_session(&upstream, name, "pid", FORM).await).await;
    let (ann, bob) = (one("ann").await, one("bob").await);
    assert!(ann != bob && ann != modern && bob != modern);
    assert_eq!((one("ann").await, one("bob").await), (ann, bob));
}

#[tokio::test]
async fn failed_start_in_the_second_era_ends_no_process_of_another_principal() {
    let starts = starts_file("both-gated");
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..counted("both-gated", &starts)
    });
    pid(&upstream).await;
    let ask = |name: &'static str| {
        let upstream = upstream.clone();
        tokio::spawn(async move { ask_in_session(&upstream, name, "pid", FORM).await })
    };
    // The start goes on without its caller, and another caller begins to look for the era.
    let leaving = ask("ann");
    let ann = last_of_starts(&starts, 2).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    let looking = ask("bob");
    let bob = last_of_starts(&starts, 3).await;
    std::fs::write(child::gate(&starts, &ann), "go on").unwrap();
    wait_for_condition("ann's process is up", START_WAIT, || {
        upstream.health().second_revision.is_some()
    })
    .await;
    std::fs::write(child::gate(&starts, &bob), child::GATE_EXIT).unwrap();
    let bridged = text(looking.await.unwrap()).await;
    assert_eq!(bridged, last_of_starts(&starts, 4).await);
    let open = upstream.health().sessions;
    assert_eq!(open, 3, "those of the modern era, and the one of ann");
    assert_eq!(text(ask("ann").await.unwrap()).await, ann);
    upstream.retire(Duration::from_secs(1)).await;
    for file in [
        &starts,
        &child::gate(&starts, &ann),
        &child::gate(&starts, &bob),
    ] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn after_a_failed_start_in_the_second_era_calls_wait_for_no_other_start() {
    let starts = starts_file("both-gated-again");
    let upstream = build(counted("both-gated", &starts));
    let own = pid(&upstream).await;
    let first = {
        let upstream = upstream.clone();
        tokio::spawn(async move { pid_in_session(&upstream).await })
    };
    let failing = last_of_starts(&starts, 2).await;
    std::fs::write(child::gate(&starts, &failing), child::GATE_EXIT).unwrap();
    assert_eq!(first.await.unwrap(), own, "the bridge serves it");
    // The next process is held at its gate, and no call waits for it.
    while started(&starts) < 3 {
        assert_eq!(pid_in_session(&upstream).await, own);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let second = last_of_starts(&starts, 3).await;
    assert_eq!(pid_in_session(&upstream).await, own);
    std::fs::write(child::gate(&starts, &second), "go on").unwrap();
    wait_for_condition("the second era is found", START_WAIT, || {
        upstream.health().second_revision.is_some()
    })
    .await;
    assert_eq!(pid_in_session(&upstream).await, second);
    upstream.retire(Duration::from_secs(1)).await;
    for file in [
        &starts,
        &child::gate(&starts, &failing),
        &child::gate(&starts, &second),
    ] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn burst_of_calls_makes_one_slot_for_the_process_that_looks_for_the_second_era() {
    let starts = starts_file("both-gated-burst");
    let clock = FakeClock::new();
    // A slot that was used at zero counts as unused for long.
    clock.advance(Duration::from_secs(1));
    let settings = with(counted("both-gated", &starts), |stdio| {
        stdio.max_processes = 5;
    });
    let settings = UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..settings
    };
    let upstream = build_with_clock(settings, Arc::new(clock.clone()));
    pid(&upstream).await;
    let ask = async |name: &'static str| {
        let asked = ask_in_session(&upstream, name, "pid", CapabilityClass::BASE).await;
        outcome(asked).await.end.map_err(|failure| failure.cause())
    };
    let open_gate = async {
        let failing = last_of_starts(&starts, 2).await;
        std::fs::write(child::gate(&starts, &failing), child::GATE_EXIT).unwrap();
        failing
    };
    let (first, failing) = tokio::join!(ask("ann"), open_gate);
    first.expect("the bridge serves it");
    // The next process may start now. It is held at its gate, and the calls go over the bridge.
    clock.advance(Duration::from_secs(1));
    let burst = tokio::join!(ask("bob"), ask("cay"), ask("dan"));
    let (one, two, three) = burst;
    let answered = [one, two, three];
    assert!(answered.iter().all(Result::is_ok), "{answered:?}");
    last_of_starts(&starts, 7).await;
    upstream.retire(Duration::from_secs(1)).await;
    for file in [&starts, &child::gate(&starts, &failing)] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn a_pinned_protocol_has_one_era_and_one_process() {
    for protocol in [UpstreamProtocol::Modern, UpstreamProtocol::Legacy] {
        let upstream = build(UpstreamSettings {
            protocol,
            ..child::settings("both")
        });
        assert_eq!(
            pid(&upstream).await,
            pid_in_session(&upstream).await,
            "{protocol:?}"
        );
        assert_eq!(upstream.health().second_revision, None);
    }
}

#[tokio::test]
async fn child_that_refuses_the_offered_revision_is_offered_the_one_that_it_lists() {
    let starts = starts_file("strict");
    let upstream = build(counted("strict", &starts));
    assert_eq!(
        text(call_anonymously(&upstream, "echo", json!({})).await).await,
        "{}"
    );
    assert_eq!(upstream.health().revision, Some("2024-11-05"));
    let started = std::fs::read_to_string(&starts).unwrap();
    assert_eq!(started.lines().count(), 1, "in the same process");
    std::fs::remove_file(starts).unwrap();
}
