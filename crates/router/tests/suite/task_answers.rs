//! The answers of clients to the questions of tasks, and the servers that refuse them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::timeout;
use weir_core::call::TaskMode;
use weir_core::{Failure, FailureKind, Reply, ReplyEnd, ReplyEvent};
use weir_wire::method::Method;

use crate::awaited_tasks::{
    TaskWorld, asking, completed, invalid_params, unknown_at_server, working,
};
use crate::calls::{asked, end, failure, raw};
use crate::support::endpoint;

/// The refusal of an answer by a server that still waits for another one.
const REFUSAL: &str = "content.n must be \"right\"";

/// Gives the same answer to every question of a reply; returns the number of questions, and the end.
async fn answer_all(mut reply: Reply) -> (usize, ReplyEnd) {
    let mut questions = 0;
    loop {
        match reply.next().await.unwrap() {
            ReplyEvent::Ask(ask) => {
                questions += 1;
                ask.answer(Ok(Bytes::from_static(b"{}")));
            }
            ReplyEvent::Note(_) => {}
            ReplyEvent::End(end) => return (questions, end),
        }
    }
}

/// Makes a request about a task.
async fn request(
    world: &TaskWorld,
    method: Method,
    task: &serde_json::Value,
) -> Result<Bytes, Failure> {
    let params = raw(&json!({ "taskId": task, "inputResponses": {} }));
    let call = asked(&endpoint(), method, params).await;
    world.world.router.tasks().request_task(call).await
}

/// A task that asks and wants to be polled seldom.
fn patient(mut state: serde_json::Value) -> serde_json::Value {
    state["pollIntervalMs"] = json!(5000);
    state
}

#[tokio::test(start_paused = true)]
async fn task_is_polled_soon_after_an_answer_whatever_its_interval() {
    let world = TaskWorld::new([Ok(patient(asking())), Ok(completed())]).await;
    let begun = tokio::time::Instant::now();
    let (questions, ended) = answer_all(world.task_result().await).await;
    assert!(matches!(ended, ReplyEnd::Complete(_)));
    assert_eq!(questions, 1);
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn all_waits_for_a_task_poll_it_soon_after_an_answer_to_one_of_them() {
    let world = TaskWorld::new([Ok(patient(asking()))]).await;
    let task = world.begin().await;
    let (mut first, mut second) = (world.result_of(&task).await, world.result_of(&task).await);
    let (Some(ReplyEvent::Ask(answered)), Some(ReplyEvent::Ask(_open))) =
        (first.next().await, second.next().await)
    else {
        panic!("no question")
    };
    *world.polls.lock() = [Ok(completed())].into();
    answered.answer(Ok(Bytes::from_static(b"{}")));
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(answer_all(first), answer_all(second));
    for (_, ended) in [first, second] {
        assert!(matches!(ended, ReplyEnd::Complete(_)));
    }
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_task_polls_it_soon_after_another_request_changed_it() {
    for method in [Method::TasksCancel, Method::TasksUpdate] {
        let world = TaskWorld::new([Ok(patient(working()))]).await;
        let task = world.begin().await;
        let mut waiting = world.result_of(&task).await;
        let short = Duration::from_millis(100);
        assert!(timeout(short, waiting.next()).await.is_err());
        *world.polls.lock() = [Ok(completed())].into();
        request(&world, method, &task).await.unwrap();
        let begun = tokio::time::Instant::now();
        let (_, ended) = answer_all(waiting).await;
        assert!(matches!(ended, ReplyEnd::Complete(_)));
        assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn answered_question_is_not_asked_again_while_its_server_still_lists_it() {
    let world = TaskWorld::new([Ok(patient(asking()))]).await;
    let task = world.begin().await;
    let mut first = world.result_of(&task).await;
    let Some(ReplyEvent::Ask(ask)) = first.next().await else {
        panic!("no question")
    };
    ask.answer(Ok(Bytes::from_static(b"{}")));
    let first = tokio::spawn(answer_all(first));
    while world.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn(answer_all(world.result_of(&task).await));
    let polls = world.polls();
    while world.polls() < polls + 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.polls.lock().push_back(Ok(completed()));
    for wait in [first, second] {
        let (questions, ended) = wait.await.unwrap();
        assert!(matches!(ended, ReplyEnd::Complete(_)));
        assert_eq!(questions, 0, "it has its answer");
    }
}

#[tokio::test(start_paused = true)]
async fn question_with_a_refused_answer_is_asked_again() {
    let world = TaskWorld::new([Ok(patient(asking()))]).await;
    let task = world.begin().await;
    let mut other = world.result_of(&task).await;
    let Some(ReplyEvent::Ask(_unanswered)) = other.next().await else {
        panic!("no question")
    };
    for _ in 0..2 {
        *world.answer_error.lock() = Some(invalid_params(REFUSAL));
        let (questions, ended) = answer_all(world.result_of(&task).await).await;
        assert_eq!(questions, 1);
        failure(ended);
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_and_answer_by_another_request_outdate_the_last_poll() {
    for method in [Method::TasksCancel, Method::TasksUpdate] {
        let world = TaskWorld::new([Ok(patient(working()))]).await;
        let task = world.begin().await;
        let mut waiting = world.result_of(&task).await;
        let short = Duration::from_millis(100);
        assert!(
            timeout(short, waiting.next()).await.is_err(),
            "it is polled"
        );
        request(&world, method, &task).await.unwrap();
        *world.polls.lock() = [Ok(completed())].into();
        let begun = tokio::time::Instant::now();
        let (_, ended) = answer_all(world.result_of(&task).await).await;
        assert!(matches!(ended, ReplyEnd::Complete(_)));
        assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
        drop(waiting);
    }
}

/// Cancels a task as a client of 2025-11-25 does.
async fn cancel(world: &TaskWorld, task: &serde_json::Value) -> Result<serde_json::Value, Failure> {
    let call = asked(
        &endpoint(),
        Method::TasksCancel,
        raw(&json!({ "taskId": task })),
    )
    .await;
    let state = world.world.router.tasks().cancel_task(call).await?;
    Ok(serde_json::from_slice(&state).unwrap())
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_server_that_does_not_tell_the_state_of_its_task() {
    let unreadable = || Err(FailureKind::BadAnswer);
    for polls in [
        vec![unreadable(), unreadable()],
        vec![unreadable(), Err(unknown_at_server())],
        vec![Ok(working()), unreadable()],
    ] {
        let world = TaskWorld::new(polls).await;
        let task = world.begin().await;
        let state = cancel(&world, &task).await.unwrap();
        assert_eq!(
            (&state["taskId"], &state["status"]),
            (&task, &json!("cancelled"))
        );
        assert_eq!(world.requests(), [Method::TasksCancel]);
    }
    for polls in [vec![Err(unknown_at_server())], vec![Ok(completed())]] {
        let world = TaskWorld::new(polls).await;
        let task = world.begin().await;
        cancel(&world, &task).await.unwrap_err();
        assert!(world.requests().is_empty(), "there is nothing to cancel");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_answer_of_a_task_that_still_waits_is_reported_in_the_servers_words() {
    let world = TaskWorld::new([Ok(asking())]).await;
    *world.answer_error.lock() = Some(invalid_params(REFUSAL));
    let awaited = world.call(TaskMode::AwaitedByWeir).await;
    for reply in [world.task_result().await, awaited] {
        let ended = failure(answer_all(reply).await.1);
        assert_eq!(
            ended.kind(),
            &FailureKind::Upstream(invalid_params(REFUSAL))
        );
    }
    let task = world.begin().await;
    let refused = request(&world, Method::TasksUpdate, &task).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        &FailureKind::Upstream(invalid_params(REFUSAL))
    );
}

#[tokio::test(start_paused = true)]
async fn refused_answer_of_a_task_that_its_server_lost_is_reported_as_an_unknown_task() {
    let world = TaskWorld::new([Ok(asking()), Err(unknown_at_server())]).await;
    *world.answer_error.lock() = Some(invalid_params("no such task"));
    let ended = failure(answer_all(world.task_result().await).await.1);
    assert_eq!(ended.kind(), &FailureKind::UnknownTask);
    assert!(ended.message().starts_with("Unknown task"), "{ended}");

    world.polls.lock().push_front(Ok(asking()));
    let ended = failure(
        answer_all(world.call(TaskMode::AwaitedByWeir).await)
            .await
            .1,
    );
    assert_eq!(ended.kind(), &FailureKind::ResultUnknown);
}

#[tokio::test(start_paused = true)]
async fn refusal_that_names_the_servers_own_id_is_reported_without_it() {
    let world = TaskWorld::new([Ok(completed())]).await;
    let task = world.begin().await;
    for (said, is_shown) in [
        ("task native takes no answer", false),
        ("`native`", false),
        ("natives take no answer", true),
    ] {
        let data = raw(&json!({ "about": said }));
        *world.answer_error.lock() = Some(weir_core::failure::UpstreamError {
            data: Some(data.clone()),
            ..invalid_params(said)
        });
        let refused = request(&world, Method::TasksUpdate, &task).await;
        let refused = refused.unwrap_err();
        let FailureKind::Upstream(error) = refused.kind() else {
            panic!("{refused:?}")
        };
        assert_eq!(error.message == said, is_shown, "{error:?}");
        assert_eq!(error.data.as_ref() == Some(&data), is_shown, "{error:?}");
    }
}

/// The end of a call of a client without tasks, whose task came to this state.
async fn awaited_end(state: serde_json::Value) -> Box<Failure> {
    let world = TaskWorld::new([Ok(working()), Ok(state)]).await;
    failure(end(world.call(TaskMode::AwaitedByWeir).await).await)
}

#[tokio::test(start_paused = true)]
async fn client_without_tasks_reads_of_its_call_and_never_of_a_task() {
    let mut state = working();
    for (status, kind) in [
        ("cancelled", FailureKind::ResultUnknown),
        ("completed", FailureKind::BadAnswer),
        ("failed", FailureKind::BadAnswer),
    ] {
        state["status"] = json!(status);
        let ended = awaited_end(state.clone()).await;
        assert_eq!(ended.kind(), &kind, "{ended}");
        assert!(!ended.message().contains("task"), "{ended}");
    }

    let world = TaskWorld::new([Ok(asking())]).await;
    let mut reply = world.call(TaskMode::AwaitedByWeir).await;
    let Some(ReplyEvent::Ask(unanswered)) = reply.next().await else {
        panic!("no question")
    };
    drop(unanswered);
    let ended = failure(end(reply).await);
    assert_eq!(ended.kind(), &FailureKind::ResultUnknown, "{ended}");
    assert!(!ended.message().contains("task"), "{ended}");

    let mut reply = world.call(TaskMode::AwaitedByWeir).await;
    let Some(ReplyEvent::Ask(refused)) = reply.next().await else {
        panic!("no question")
    };
    refused.answer(Err(raw(&json!({ "code": -1, "message": "no" }))));
    let ended = failure(end(reply).await);
    assert_eq!(ended.kind(), &FailureKind::ResultUnknown, "{ended}");
    assert!(!ended.message().contains("task"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn client_with_tasks_reads_that_its_task_was_cancelled() {
    let mut state = working();
    state["status"] = json!("cancelled");
    let world = TaskWorld::new([Ok(state)]).await;
    let ended = failure(end(world.task_result().await).await);
    assert_eq!(ended.kind(), &FailureKind::InvalidParams);
    assert_eq!(ended.message(), "The task was cancelled: it has no result");
}

#[tokio::test(start_paused = true)]
async fn client_that_follows_a_task_learns_of_a_state_that_another_request_finds() {
    let world = TaskWorld::new([Ok(working())]).await;
    let task = world.begin().await;
    let name = task.as_str().unwrap();
    let params = raw(&json!({ "taskId": task }));
    let call = asked(&endpoint(), Method::TasksGet, params).await;
    let tasks = world.world.router.tasks();
    let again = || call.for_payload(call.inner().clone());
    let mut changes = tasks.task_changes(&call, name);
    let state = tasks.followed_state(again()).await.unwrap();

    // The same state is no change, and neither is another one that is read for a follower.
    request(&world, Method::TasksGet, &task).await.unwrap();
    *world.polls.lock() = [Ok(completed())].into();
    tasks.followed_state(again()).await.unwrap();
    let long = Duration::from_secs(60);
    let waiting = timeout(long, changes.wait_for_other_state(Some(&state)));
    assert!(waiting.await.is_err());

    let found = request(&world, Method::TasksGet, &task).await.unwrap();
    let waiting = timeout(long, changes.wait_for_other_state(Some(&state)));
    assert!(waiting.await.is_ok());
    // A change may have led to any state.
    request(&world, Method::TasksCancel, &task).await.unwrap();
    let waiting = timeout(long, changes.wait_for_other_state(Some(&found)));
    assert!(waiting.await.is_ok());
}
