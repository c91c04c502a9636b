//! The states of tasks that another replica keeps, for clients of 2025-11-25.
//!
//! Their requests name a session of this replica, so the other replica could not answer them. This
//! one asks it in the form of the tasks extension, which has no sessions, with the credentials of
//! the client, and says which part the client gets.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Request, Response, header};
use weir_core::Authenticated;
use weir_core::port::{KeptTask, ReplicaId};
use weir_core::telemetry::instruments;
use weir_core::upstream::CallDeadlines;
use weir_era::tasks;
use weir_listen::{ForwardedBody, ForwardedRequest, ForwardedSender, KeptTaskPart};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::write::{ObjectWriter, string};
use weir_wire::{Revision, meta, scan};

use crate::http::header_names;
use crate::request::request_context::HttpRequestContext;

/// The longest answer that is read: a kept result has at most 4 MiB.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Fetches a part of the state of a task with a result that another replica keeps, and no replica
/// else. No value for every other task, and if that replica does not answer.
pub async fn fetch_kept_task(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    params: &Params,
    part: KeptTaskPart,
) -> Option<KeptTask> {
    let replicas = context.shared.ports.replicas.as_ref()?;
    let name = params.task_id().ok().flatten()?;
    let tasks = context.shared.router.tasks();
    let finding = tasks.replica_of_kept_result(known.principal(), &context.endpoint, &name);
    let owner: ReplicaId = finding
        .await
        .filter(|replica| context.shared.ports.may_answer(replica))?;
    let request = state_request(context, headers, &name, part)?;
    let asking = async {
        match replicas.forwarder.forward(&owner, request).await {
            Ok(answer) => {
                count_forwarded("answered");
                read_body(answer).await
            }
            Err(error) => {
                count_forwarded("unreachable");
                tracing::debug!(replica = %owner, %error, "request not forwarded");
                None
            }
        }
    };
    let answer = tokio::time::timeout(CallDeadlines::LIST.hard, asking).await;
    let answer = answer.ok().flatten()?;
    let state = answer.slice(scan::find(&answer, "result")?);
    // Errors have no such member: the other replica does not know the task either.
    scan::find(&state, "status")?;
    Some(KeptTask {
        name: (&*name).into(),
        state,
        settled: true,
    })
}

/// Counts a request to another process by its result.
pub fn count_forwarded(result: &'static str) {
    instruments()
        .forwarded
        .add(1, &[opentelemetry::KeyValue::new("result", result)]);
}

/// A `tasks/get` of the tasks extension, with the headers of the client's own request.
fn state_request(
    context: &HttpRequestContext,
    headers: &HeaderMap,
    name: &str,
    part: KeptTaskPart,
) -> Option<ForwardedRequest> {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = HttpMethod::POST;
    head.uri = context.endpoint.as_str().parse().ok()?;
    head.headers = headers.clone();
    let content = [header::CONTENT_LENGTH, header::CONTENT_ENCODING];
    for gone in content.iter().chain([&header_names::SESSION]) {
        head.headers.remove(gone);
    }
    let method = Method::TasksGet.as_str();
    let own: [(&HeaderName, &str); 3] = [
        (&header_names::VERSION, Revision::MODERN.as_str()),
        (&header_names::METHOD, method),
        (&header_names::NAME, name),
    ];
    for (header, value) in own {
        let value = HeaderValue::try_from(value).ok()?;
        head.headers.insert(header.clone(), value);
    }
    let mut body = BytesMut::with_capacity(name.len() + 512);
    ObjectWriter::new(&mut body)
        .string("jsonrpc", "2.0")
        .integer("id", 1)
        .string("method", method)
        .with("params", |params| write_params(params, name))
        .end();
    Some(ForwardedRequest {
        sender: ForwardedSender::KeptTask(part),
        head,
        body: body.freeze(),
        client: context.forwarded_client(),
    })
}

fn write_params(out: &mut BytesMut, name: &str) {
    let mut extension = BytesMut::new();
    extension.extend_from_slice(b"{\"extensions\":{");
    string(&mut extension, tasks::EXTENSION);
    extension.extend_from_slice(b":{}}}");
    ObjectWriter::new(out)
        .string("taskId", name)
        .with("_meta", |about| {
            ObjectWriter::new(about)
                .string(meta::PROTOCOL_VERSION, Revision::MODERN.as_str())
                .raw(meta::CLIENT_CAPABILITIES, &extension)
                .end();
        })
        .end();
}

/// The whole body of a successful answer; no value for any other.
async fn read_body(answer: Response<ForwardedBody>) -> Option<Bytes> {
    if !answer.status().is_success() {
        return None;
    }
    let mut body = answer.into_body();
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            whole.extend_from_slice(&data);
        }
        if whole.len() > MAX_ANSWER_BYTES {
            return None;
        }
    }
    Some(whole.freeze())
}
