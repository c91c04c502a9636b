#![allow(clippy::unwrap_used, reason = "a test may panic")]

use futures_util::poll;
use tokio::sync::mpsc;
use weir_core::port::BoxFuture;
use weir_core::upstream::ListWatch;

use super::*;

const URI: &str = "a:1";

/// A session at a server. Each request waits until the test answers it.
struct AnsweredSession(mpsc::Sender<ReceivedRequest>);

/// A request that the server received.
struct ReceivedRequest {
    method: &'static str,
    uri: Arc<str>,
    answer: oneshot::Sender<Result<(), Failure>>,
}

impl AnsweredSession {
    fn request(
        &self,
        method: &'static str,
        uri: Arc<str>,
    ) -> BoxFuture<'static, Result<(), Failure>> {
        let requests = self.0.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let received = ReceivedRequest {
                method,
                uri,
                answer,
            };
            assert!(requests.try_send(received).is_ok());
            answered.await.unwrap()
        })
    }
}

impl ListSession for AnsweredSession {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        unreachable!("the lists are not read here")
    }

    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>> {
        self.request("subscribe", uri)
    }

    fn unsubscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, ()> {
        let request = self.request("unsubscribe", uri);
        Box::pin(async move { request.await.unwrap() })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// The subscriptions in a session, and the server of it.
struct SubscribedSession {
    subscriptions: Arc<SessionSubscriptions>,
    requests: mpsc::Receiver<ReceivedRequest>,
    heard: Arc<Mutex<Vec<Arc<str>>>>,
    _session: Arc<AnsweredSession>,
}

impl SubscribedSession {
    fn new() -> Self {
        let (sender, requests) = mpsc::channel(16);
        let session = Arc::new(AnsweredSession(sender));
        let weak: Weak<AnsweredSession> = Arc::downgrade(&session);
        Self {
            subscriptions: Arc::new(SessionSubscriptions::new(
                UpstreamId::new("u").unwrap(),
                weak,
            )),
            requests,
            heard: Arc::default(),
            _session: session,
        }
    }

    /// A subscription that has not begun.
    fn subscribe(&self) -> BoxFuture<'static, Result<SessionSubscription, Failure>> {
        let (subscriptions, heard) = (self.subscriptions.clone(), self.heard.clone());
        let tell = Box::new(move |uri: &Arc<str>| heard.lock().push(uri.clone()));
        Box::pin(async move { subscriptions.subscribe(URI.into(), tell).await })
    }

    /// Runs all tasks until they wait.
    async fn settle(&self) {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }

    /// The answer to the only request that waits, which has this method.
    async fn take_request(&mut self, method: &str) -> oneshot::Sender<Result<(), Failure>> {
        self.settle().await;
        let received = self.requests.try_recv().unwrap();
        assert_eq!((received.method, &*received.uri), (method, URI));
        assert!(self.requests.is_empty());
        received.answer
    }

    /// Answers the only request that waits: the end of the subscription.
    async fn answer_unsubscribe(&mut self) {
        let answer = self.take_request("unsubscribe").await;
        answer.send(Ok(())).unwrap();
    }

    async fn has_request(&self) -> bool {
        self.settle().await;
        !self.requests.is_empty()
    }

    /// A subscription to which the server has consented.
    async fn subscribed(&mut self) -> SessionSubscription {
        let mut subscribing = self.subscribe();
        assert!(poll!(&mut subscribing).is_pending());
        self.take_request("subscribe").await.send(Ok(())).unwrap();
        subscribing.await.unwrap()
    }
}

fn refusal() -> Failure {
    Failure::new(FailureKind::Unavailable, "refused")
}

#[tokio::test]
async fn further_subscriber_waits_for_the_servers_consent() {
    let mut session = SubscribedSession::new();
    let [mut first, mut second] = [session.subscribe(), session.subscribe()];
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    let answer = session.take_request("subscribe").await;
    assert!(
        poll!(&mut second).is_pending(),
        "the server can still refuse"
    );
    answer.send(Ok(())).unwrap();
    let (_first, _second) = (first.await.unwrap(), second.await.unwrap());
    let _third = session.subscribe().await.unwrap();
    assert!(!session.has_request().await, "one subscription serves all");
}

#[tokio::test]
async fn further_subscriber_asks_anew_after_a_refusal() {
    let mut session = SubscribedSession::new();
    let [mut first, mut second] = [session.subscribe(), session.subscribe()];
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    let answer = session.take_request("subscribe").await;
    answer.send(Err(refusal())).unwrap();
    assert!(first.await.is_err());
    assert!(
        poll!(&mut second).is_pending(),
        "the server did not consent"
    );
    let answer = session.take_request("subscribe").await;
    answer.send(Err(refusal())).unwrap();
    assert!(second.await.is_err());
    // The requests could have failed without an answer of the server.
    session.answer_unsubscribe().await;
}

#[tokio::test]
async fn new_subscriber_waits_for_the_unsubscribe_of_the_last() {
    let mut session = SubscribedSession::new();
    drop(session.subscribed().await);
    let answer = session.take_request("unsubscribe").await;
    let mut next = session.subscribe();
    assert!(poll!(&mut next).is_pending());
    assert!(
        !session.has_request().await,
        "the server could take both in any order"
    );
    answer.send(Ok(())).unwrap();
    session.settle().await;
    assert!(poll!(&mut next).is_pending());
    let answer = session.take_request("subscribe").await;
    answer.send(Ok(())).unwrap();
    let _next = next.await.unwrap();
}

#[tokio::test]
async fn subscriber_that_comes_before_the_unsubscribe_keeps_the_subscription() {
    let mut session = SubscribedSession::new();
    drop(session.subscribed().await);
    let next = session.subscribe().await.unwrap();
    assert!(!session.has_request().await);
    session.subscriptions.updated(URI);
    assert_eq!(session.heard.lock().len(), 1);
    drop(next);
    session.answer_unsubscribe().await;
}

#[tokio::test]
async fn consent_after_the_subscriber_left_is_ended_at_the_server() {
    let mut session = SubscribedSession::new();
    let mut first = session.subscribe();
    assert!(poll!(&mut first).is_pending());
    let answer = session.take_request("subscribe").await;
    drop(first);
    assert!(
        !session.has_request().await,
        "the server may still work on it"
    );
    answer.send(Ok(())).unwrap();
    session.answer_unsubscribe().await;
}

#[tokio::test]
async fn subscribers_that_leave_block_no_other() {
    let mut session = SubscribedSession::new();
    let [mut first, mut second, mut third] = [(); 3].map(|()| session.subscribe());
    for subscribing in [&mut first, &mut second, &mut third] {
        assert!(poll!(subscribing).is_pending());
    }
    let answer = session.take_request("subscribe").await;
    drop((first, second));
    answer.send(Ok(())).unwrap();
    let _third = third.await.unwrap();
    assert!(
        !session.has_request().await,
        "the request of the first counts"
    );
}

#[tokio::test]
async fn update_before_the_answer_of_the_server_reaches_the_subscriber() {
    let mut session = SubscribedSession::new();
    let mut first = session.subscribe();
    assert!(poll!(&mut first).is_pending());
    let answer = session.take_request("subscribe").await;
    session.subscriptions.updated(URI);
    answer.send(Ok(())).unwrap();
    let _first = first.await.unwrap();
    assert_eq!(*session.heard.lock(), [URI.into()]);
}

#[tokio::test]
async fn resource_without_subscribers_is_removed_after_its_last_request() {
    let mut session = SubscribedSession::new();
    for answer in [Ok(()), Err(refusal())] {
        let [mut first, mut second] = [session.subscribe(), session.subscribe()];
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        let request = session.take_request("subscribe").await;
        // The second one leaves while it waits, the first one with or without its subscription.
        drop(second);
        request.send(answer).unwrap();
        drop(first.await);
        assert_eq!(session.subscriptions.resource_count(), 1);
        session.answer_unsubscribe().await;
        session.settle().await;
        assert_eq!(session.subscriptions.resource_count(), 0);
    }
}
