//! Sessions at legacy instances: each stays at the instance that opened it.

use std::collections::{HashMap, HashSet};

use serde_json::json;
use weir_core::SessionKey;
use weir_core::upstream::{ClientSessionChange, OutboundCall};
use weir_testkit::MockServer;
use weir_upstream::SessionSharing;

use super::*;

async fn outbound_in(session: u8) -> OutboundCall {
    let mut call = call("echo", json!({}));
    call.session = Some(SessionKey([session; 16]));
    OutboundCall {
        principal: principal(Some("ann")).await,
        ..outbound("echo", call).await
    }
}

async fn call_in(upstream: &Arc<dyn Upstream>, session: u8) {
    outcome(upstream.clone().call(outbound_in(session).await).await)
        .await
        .end
        .unwrap();
}

/// Returns the session ids of the calls at each server.
fn sessions(mocks: &[MockServer]) -> Vec<HashMap<String, usize>> {
    let at_one = |mock: &MockServer| {
        let mut sessions = HashMap::new();
        for request in mock.requests_of("tools/call") {
            let session = request.session().unwrap().to_owned();
            *sessions.entry(session).or_insert(0) += 1;
        }
        sessions
    };
    mocks.iter().map(at_one).collect()
}

#[tokio::test]
async fn session_stays_at_the_instance_that_opened_it() {
    let mocks: [MockServer; 3] = legacy().await;
    let upstream = upstream_of(&mocks);
    for _ in 0..5 {
        for client in 1..=12 {
            call_in(&upstream, client).await;
        }
    }
    let all = sessions(&mocks);
    assert_eq!(all.iter().map(HashMap::len).sum::<usize>(), 12);
    assert!(
        all.iter()
            .flat_map(HashMap::values)
            .all(|calls| *calls == 5)
    );
    assert!(all.iter().filter(|one| !one.is_empty()).count() >= 2);
    assert_eq!(upstream.health().sessions, 12);

    // The end of a client's session reaches the instance with its upstream session.
    let ended: HashSet<_> = (1..=12).map(|client| SessionKey([client; 16])).collect();
    upstream.notify_sessions(&ended, ClientSessionChange::Ended);
    for mock in &mocks {
        mock.wait_until("its sessions are ended", |mock| mock.sessions() == 0)
            .await;
    }
    call_in(&upstream, 13).await;
}

#[tokio::test]
async fn calls_of_one_session_at_once_open_one_session() {
    let mocks: [MockServer; 3] = legacy().await;
    for protocol in [UpstreamProtocol::Auto, UpstreamProtocol::Legacy] {
        let upstream = pinned_to(&mocks, protocol);
        let before: usize = sessions(&mocks).iter().map(HashMap::len).sum();
        let calls = (0..10).map(|_| call_in(&upstream, 9));
        futures_util::future::join_all(calls).await;
        let after: usize = sessions(&mocks).iter().map(HashMap::len).sum();
        assert_eq!(after - before, 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn session_of_a_killed_instance_is_opened_at_another() {
    let mut mocks: [MockServer; 2] = legacy().await;
    let upstream = upstream_of(&mocks);
    call_in(&upstream, 1).await;
    let home = usize::from(sessions(&mocks)[0].is_empty());
    mocks[home].stop().await;
    for _ in 0..4 {
        call_in(&upstream, 1).await;
    }
    mocks[home].restart().await;
    wait_until("it answers", || {
        breaker(&upstream, home) != InstanceBreakerState::Open
    })
    .await;
    for _ in 0..4 {
        call_in(&upstream, 1).await;
    }
    let all = sessions(&mocks);
    assert_eq!(all[home].values().sum::<usize>(), 1);
    assert_eq!(all[1 - home].values().copied().collect::<Vec<_>>(), [8]);
}

#[tokio::test]
async fn busy_instance_keeps_its_sessions() {
    let mocks: [MockServer; 2] = legacy().await;
    let upstream = upstream_of(&mocks);
    call_in(&upstream, 1).await;
    let home = usize::from(sessions(&mocks)[0].is_empty());
    // The first answer brings the server's era in doubt, and the new probe is refused: the calls go
    // on in the known era.
    for (kind, status) in [("tools/call", 500), ("server/discover", 503)] {
        let broken = weir_testkit::MockBehaviour::status(status, "text/plain", "broken");
        mocks[home].add_rule(kind, 1, broken);
    }
    let refused = failure(upstream.clone().call(outbound_in(1).await).await).await;
    assert_eq!(refused.reason(), "bad_answer", "{}", refused.cause());
    call_in(&upstream, 1).await;
    let busy = weir_testkit::MockBehaviour::status(503, "text/plain", "broken");
    mocks[home].add_rule("tools/call", 1, busy);
    let refused = failure(upstream.clone().call(outbound_in(1).await).await).await;
    assert_eq!(refused.reason(), "busy", "{}", refused.cause());
    call_in(&upstream, 1).await;
    assert_eq!(sessions(&mocks)[home].len(), 1, "the session goes on");
    assert_eq!(mocks[1 - home].executions("echo"), 0);
}

#[tokio::test]
async fn instance_that_restarts_without_its_sessions_keeps_the_client() {
    let mocks: [MockServer; 2] = legacy().await;
    let upstream = upstream_of(&mocks);
    call_in(&upstream, 1).await;
    let home = usize::from(sessions(&mocks)[0].is_empty());
    mocks[home].drop_sessions();
    call_in(&upstream, 1).await;
    assert_eq!(mocks[home].executions("echo"), 2);
    assert_eq!(mocks[1 - home].executions("echo"), 0);
}

#[tokio::test]
async fn shared_sessions_and_clients_without_sessions_are_balanced() {
    for (sharing, session) in [
        (SessionSharing::Shared, Some(1)),
        (SessionSharing::Principal, None),
    ] {
        let mocks: [MockServer; 2] = legacy().await;
        let settings = UpstreamSettings {
            session: sharing,
            protocol: UpstreamProtocol::Legacy,
            ..even(&mocks)
        };
        let upstream = build(UpstreamSettings {
            client_capabilities: sharing.default_client_capabilities(),
            ..settings
        });
        for _ in 0..40 {
            match session {
                Some(session) => call_in(&upstream, session).await,
                None => echo(&upstream, 1).await,
            }
        }
        for one in sessions(&mocks) {
            // A busy machine makes one of them seem slow, so their shares are not compared.
            assert_eq!(one.len(), 1, "one session at each instance, with calls");
        }
    }
}

#[tokio::test]
async fn legacy_client_of_modern_instances_is_balanced() {
    let mocks: [MockServer; 2] = modern().await;
    let upstream = upstream_of(&mocks);
    for _ in 0..40 {
        call_in(&upstream, 1).await;
    }
    for mock in &mocks {
        assert!(mock.executions("echo") > 0);
    }
}

#[tokio::test]
async fn sessions_move_to_the_next_process_with_their_instance() {
    let mocks: [MockServer; 3] = legacy().await;
    let before = upstream_of(&mocks);
    for client in 1..=6 {
        call_in(&before, client).await;
    }
    let exported = before.clone().export_sessions().await;
    assert_eq!(exported.len(), 6);
    // The next config has them in another order.
    let order: Vec<_> = [2, 0, 1].iter().map(|at| (&mocks[*at], 1)).collect();
    let after = build(weighted(&order));
    for session in exported {
        after.clone().import_session(session).await;
    }
    for _ in 0..3 {
        for client in 1..=6 {
            call_in(&after, client).await;
        }
    }
    let all = sessions(&mocks);
    assert_eq!(all.iter().map(HashMap::len).sum::<usize>(), 6);
    assert!(
        all.iter()
            .flat_map(HashMap::values)
            .all(|calls| *calls == 4)
    );
}
