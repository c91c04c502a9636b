//! Requests and answers between two replicas.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_core::Budgets;
use weir_listen::{
    FORWARDED_HEADER, ForwardError, ForwardedBody, NOT_OWNER_HEADER, STREAM_HEADER, STREAM_PATH,
    STREAM_VERSION,
};
use weir_testkit::accept::listen_on_loopback;

use crate::counting_dialer::CountingDialer;
use crate::test_replica::{OTHER, TestForwarder, TestReplica, text};
use crate::test_service::{AnswerSender, OWNER};

async fn next(body: &mut ForwardedBody) -> Option<Bytes> {
    let frame = body.frame().await?.unwrap();
    Some(frame.into_data().unwrap())
}

#[tokio::test]
async fn request_arrives_whole_with_its_client() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let request = Request::post("/mcp?a=b")
        .header("host", "weir.example:8443")
        .header("authorization", "Bearer secret")
        .header("mcp-session-id", "s1")
        .header("connection", "keep-alive, x-hop")
        .header("x-hop", "1")
        .header(FORWARDED_HEADER, "1;AAAAAAAAAAA;203.0.113.9;0;")
        .body(Bytes::from_static(b"the body"))
        .unwrap();
    let answer = forwarder.send(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-answer"], "1");
    let text = text(answer).await;
    for part in [
        "POST https://weir.example:8443/mcp?a=b\n",
        "\"host\": \"weir.example:8443\"",
        "\"authorization\": \"Bearer secret\"",
        "\"mcp-session-id\": \"s1\"",
        "\"content-length\": \"8\"",
        "peer 192.0.2.7 true Some([100, 101, 114]) Some((ReplicaId([114, 101, 112, 108, 105, 99, 97, 49]), Some(0000000000000007)))\n",
        "\nthe body",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for gone in ["x-hop", "weir-forwarded", "connection"] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
}

/// An attack: a client names a stream of its own, which would make calls for any principal.
#[tokio::test]
async fn client_cannot_open_a_stream_of_a_replica() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let opened = forwarder
        .forwarder
        .open_stream(&OTHER, HeaderMap::new(), Bytes::new());
    opened.await.unwrap();
    for path in ["/mcp/messages?sessionId=1", STREAM_PATH] {
        let request = Request::post(path)
            .header("host", "weir.example")
            .header(STREAM_HEADER, STREAM_VERSION)
            .header("weir-upstream", "notes")
            .header("weir-epoch", "1")
            .header("weir-list-version", "1")
            .body(Bytes::from_static(b"c"))
            .unwrap();
        let answer = forwarder.send(request).await.unwrap();
        assert_eq!(answer.headers()["x-answer"], "1", "a client's request");
        let seen = text(answer).await;
        assert!(!seen.contains("\"weir-"), "{seen}");
    }
}

#[tokio::test]
async fn answer_comes_chunk_by_chunk_and_its_break_is_an_error() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let mut body = forwarder.post("/stream", "").await.unwrap().into_body();
    let sender = replica.streams.recv().await.unwrap();
    for part in ["one", "two"] {
        sender.send(Ok(part.into())).await.unwrap();
        assert_eq!(next(&mut body).await.unwrap(), part);
    }
    drop(sender);
    assert_eq!(next(&mut body).await, None);

    let mut body = forwarder.post("/stream", "").await.unwrap().into_body();
    let sender = replica.streams.recv().await.unwrap();
    sender.send(Ok("one".into())).await.unwrap();
    assert_eq!(next(&mut body).await.unwrap(), "one");
    sender.send(Err("broken".into())).await.unwrap();
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn dropped_answers_and_requests_are_cancelled_at_the_other_side() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let answer = forwarder.post("/stream", "body").await.unwrap();
    let sender = replica.streams.recv().await.unwrap();
    drop(answer);
    sender.closed().await;

    let mut hanging = replica.service.hanging.subscribe();
    let request = tokio::spawn(async move { forwarder.post("/hang", "body").await.map(drop) });
    hanging.wait_for(|count| *count == 1).await.unwrap();
    request.abort();
    hanging.wait_for(|count| *count == 0).await.unwrap();
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let mut requests = JoinSet::new();
    for nth in 0..500_usize {
        let forwarder = forwarder.clone();
        requests.spawn(async move {
            let body = format!("[{nth}]").repeat(1 + nth * 10);
            let answer = forwarder.post("/echo", body.clone()).await.unwrap();
            assert!(text(answer).await.ends_with(&format!("\n{body}")));
        });
    }
    while let Some(done) = requests.join_next().await {
        done.unwrap();
    }
    assert_eq!(replica.service.connections(), 1);
    assert_eq!(*replica.service.served.borrow(), 500);
}

/// The time in which a request is answered that nothing stops. A stream whose reader is slow ends
/// later.
const ANSWER_TIME: Duration = Duration::from_secs(20);

async fn assert_served_in_time(forwarder: &TestForwarder) {
    let served = async {
        let answer = forwarder.post("/echo", "body").await.unwrap();
        assert!(text(answer).await.ends_with("\nbody"));
    };
    let served = tokio::time::timeout(ANSWER_TIME, served).await;
    served.expect("slow readers stop no other request");
}

/// Sends an answer that nobody reads, until the window of its stream is used up.
async fn fill_window(sender: &AnswerSender) {
    const PART: usize = 16 << 10;
    for _ in 0..(512 << 10) / PART {
        sender.send(Ok(vec![b'x'; PART].into())).await.unwrap();
    }
}

#[tokio::test]
async fn large_unread_answers_do_not_block_others() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let mut unread = Vec::new();
    let answered = async {
        for _ in 0..80 {
            unread.push(forwarder.post("/stream", "").await.unwrap());
            let sender = replica.streams.recv().await.unwrap();
            sender.send(Ok(vec![b'x'; 1 << 20].into())).await.unwrap();
            // All room is free once the part is on its way.
            drop(sender.reserve_many(sender.max_capacity()).await.unwrap());
        }
    };
    let answered = tokio::time::timeout(ANSWER_TIME, answered).await;
    answered.expect("no answer waits for slow readers of others");
    assert_served_in_time(&forwarder).await;
}

#[tokio::test]
async fn slow_readers_block_no_request_that_runs_beside_them() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let mut running = forwarder.post("/stream", "").await.unwrap().into_body();
    let answering = replica.streams.recv().await.unwrap();
    let mut unread = Vec::new();
    let filled = async {
        // Their windows are more than the first window of a connection.
        for _ in 0..80 {
            let answer = forwarder.post("/stream", "").await.unwrap();
            let sender = replica.streams.recv().await.unwrap();
            fill_window(&sender).await;
            unread.push((answer, sender));
        }
    };
    let filled = tokio::time::timeout(ANSWER_TIME, filled).await;
    filled.expect("each stream has its window");
    answering.send(Ok("running".into())).await.unwrap();
    let received = tokio::time::timeout(ANSWER_TIME, next(&mut running)).await;
    assert_eq!(received.expect("it has a window").unwrap(), "running");
    assert_served_in_time(&forwarder).await;
}

#[tokio::test]
async fn request_beside_slow_readers_gets_another_connection_if_no_window_can_grow() {
    let mut replica = TestReplica::start(&[1]).await;
    let budgets = Budgets::default();
    budgets.windows.set_limit(0);
    let dialer = CountingDialer::default();
    let read = dialer.read.clone();
    let forwarder = TestForwarder::over(Arc::new(dialer), replica.address, budgets);
    assert_served_in_time(&forwarder).await;
    let unread = forwarder.post("/stream", "").await.unwrap();
    let sender = replica.streams.recv().await.unwrap();
    sender.send(Ok(vec![b'x'; 1 << 20].into())).await.unwrap();
    let is_filled = |read: &usize| *read > 60_000;
    read.subscribe().wait_for(is_filled).await.unwrap();
    for _ in 0..3 {
        assert_served_in_time(&forwarder).await;
    }
    assert!(replica.service.connections() > 1);
    drop(unread);
    sender.closed().await;
    assert_served_in_time(&forwarder).await;
}

#[tokio::test]
async fn answer_of_another_owner_is_not_passed_on() {
    let replica = TestReplica::start(&[1]).await;
    let answer = replica.forwarder(&[1]).post("/not-owner", "").await;
    assert_eq!(
        answer.map(drop).unwrap_err(),
        ForwardError::NotOwner(Some(OWNER)),
        "{NOT_OWNER_HEADER}"
    );
}

#[tokio::test]
async fn replica_whose_address_another_one_has_is_reported_as_ended() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let answer = forwarder.post("/owned-elsewhere", "").await;
    let not_owner = ForwardError::NotOwner(Some(OWNER));
    assert_eq!(answer.map(drop).unwrap_err(), not_owner);
    assert_eq!(*forwarder.directory.unreachable.borrow(), 0);
    let answer = forwarder.post("/replaced", "").await;
    assert!(
        matches!(answer, Err(ForwardError::NotSent(_))),
        "it did not run"
    );
    assert_eq!(*forwarder.directory.unreachable.borrow(), 1);
}

#[tokio::test]
async fn public_listener_ignores_the_header_of_forwarded_requests() {
    let replica = TestReplica::start(&[1]).await;
    let (listener, address) = listen_on_loopback().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    replica.public.start(listener);
    let request = "POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\
                   weir-forwarded: 1;AAAAAAAAAAA;203.0.113.9;1;\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.contains("peer 127.0.0.1 false None None\n"),
        "{answer}"
    );
}
