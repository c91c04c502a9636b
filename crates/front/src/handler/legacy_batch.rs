//! Batches of a legacy client's messages (2025-03-26 alone).

use bytes::Bytes;
use futures_util::future::join_all;
use weir_layers::failure;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::{RequestFailure, RequestResult};
use weir_layers::http::answer::{self, RenderedMessage, with_labels};
use weir_layers::http::batch_budget::{BatchBudget, BatchedAnswer};
use weir_layers::http::body::ResponseBody;
use weir_layers::http::message_parts::MessageParts;
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::outcome::RequestOutcome;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::request_tracing::{begin_span, run_item_in_span};
use weir_layers::request::session_lookup::{NoSession, load_session};
use weir_wire::message::{MessageError, Request};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{Era, JsonLimits, Message, RequestId};

use crate::handler::client_response::deliver_response;
use crate::handler::legacy::{AnswerTarget, SessionOutcome, SessionRequestContext, serve_request};
use crate::handler::legacy_notification::handle_notification;
use crate::reply::encode;
use crate::reply::encode::unknown_result::LostAnswer;
use crate::session::session_use::CallSessionUse;

const LABELS: MessageLabels = MessageLabels::of(Era::Legacy, "batch");

/// Answers a batch. Each item is authenticated, admitted and answered by itself;
/// one array comes back.
pub(crate) async fn batch(head: RequestHead<'_>, items: Vec<Bytes>) -> RequestResult {
    let (context, sender) = (head.context, head.sender);
    context.facts.leave_decoded(LABELS);
    let not_allowed = || RequestFailure::message(None, MessageRefusal::BatchNotAllowed);
    let session = load_session(head).await.map_err(|none| match none {
        NoSession::Unknown
        | NoSession::Repeated
        | NoSession::Elsewhere(_)
        | NoSession::Unreadable => none.failure(None),
        NoSession::Missing | NoSession::Version => not_allowed(),
    })?;
    if !session.record.revision.has_batches() {
        return Err(not_allowed());
    }
    let limits = JsonLimits::default();
    let parsed: Vec<_> = items
        .into_iter()
        .map(|item| Message::parse(item, &limits))
        .collect();
    let is_initialize = |request: &Request| request.method.known() == Some(Method::Initialize);
    if parsed
        .iter()
        .any(|item| matches!(item, Ok(Message::Request(request)) if is_initialize(request)))
    {
        let refusal = MessageRefusal::InitializeInBatch;
        return Err(RequestFailure::message(None, refusal));
    }
    let budget = &context.ports().budgets.messages;
    let owner = context.owner(sender);
    let batch_budget = BatchBudget::new(context.limits().batch_bytes, budget, owner);
    let request_context = SessionRequestContext {
        context,
        sender,
        session: &session,
        headers: None,
    };
    let answers = parsed
        .into_iter()
        .map(|item| item_of_batch(request_context, item, &batch_budget));
    let session_use = CallSessionUse::new(
        context.shared(),
        &context.route.settings,
        session.record_key.clone(),
    );
    let answers = session_use.during(join_all(answers)).await;
    let answers: Vec<RenderedMessage> = answers.into_iter().flatten().collect();
    let worst = answers
        .iter()
        .map(|answer| answer.outcome)
        .max()
        .unwrap_or(RequestOutcome::Ok);
    let answer = if answers.is_empty() {
        failure::accepted()
    } else {
        // Each answer has its memory until it is sent.
        let items = answers.into_iter().map(|answer| answer.message);
        let body = ResponseBody::new(MessageParts::array(items));
        answer::with_outcome(failure::ok(body), worst)
    };
    Ok(with_labels(answer, LABELS))
}

async fn item_of_batch(
    request_context: SessionRequestContext<'_>,
    item: Result<Message, MessageError>,
    batch_budget: &BatchBudget,
) -> Option<RenderedMessage> {
    let SessionRequestContext {
        context,
        sender,
        session,
        ..
    } = request_context;
    let error = |id: Option<&RequestId>, refusal| {
        let error = failure::message_error(refusal, context.name());
        let message = weir_wire::write::error_response(id, true, &error);
        Some(failure::ok_message(message, RequestOutcome::ProtocolError))
    };
    match item {
        Err(bad) => error(bad.id.clone().as_ref(), bad.into()),
        Ok(Message::Request(request)) => {
            let id = request.id.clone();
            match Params::of(&request.method, request.params.as_ref()) {
                Err(bad) => error(Some(&id), MessageRefusal::wrong_params(bad)),
                Ok(params) => match begin_span(context, &request, &params, Era::Legacy) {
                    None => answer_batch_item(request_context, request, params, batch_budget).await,
                    Some((context, span)) => {
                        let request_context = SessionRequestContext {
                            context: &context,
                            ..request_context
                        };
                        let answering =
                            answer_batch_item(request_context, request, params, batch_budget);
                        run_item_in_span(span, answering).await
                    }
                },
            }
        }
        Ok(Message::Notification(notification)) => {
            if let Err(bad) = Params::of(&notification.method, notification.params.as_ref()) {
                return error(None, MessageRefusal::wrong_params(bad));
            }
            handle_notification(context, sender, session, &notification).await;
            None
        }
        Ok(Message::Response(response)) => {
            deliver_response(context, session, response);
            None
        }
    }
}

/// Answers one request of a batch, at the latest when draining is over. Returns `None` if its
/// client cancelled it.
async fn answer_batch_item(
    request_context: SessionRequestContext<'_>,
    request: Request,
    params: Params,
    batch_budget: &BatchBudget,
) -> Option<RenderedMessage> {
    let (shared, id) = (request_context.context.shared(), request.id.clone());
    let tool_call = request.method.known() == Some(Method::ToolsCall);
    let serving = Box::pin(serve_batch_item(
        request_context,
        request,
        params,
        batch_budget,
    ));
    let force = shared.shutdown.force();
    force.run_until_cancelled(serving).await.unwrap_or_else(|| {
        Some(request_context.render_failure(&id, &LostAnswer::WithReplica.failure(), tool_call))
    })
}

async fn serve_batch_item(
    request_context: SessionRequestContext<'_>,
    request: Request,
    params: Params,
    batch_budget: &BatchBudget,
) -> Option<RenderedMessage> {
    let id = request.id.clone();
    let serving = serve_request(request_context, AnswerTarget::Batch, request, params);
    let answer = match serving.await {
        SessionOutcome::Message(message) => message,
        SessionOutcome::List(response) => {
            failure::ok_message(response.joined(), RequestOutcome::Ok)
        }
        SessionOutcome::Call(response, owned) => {
            return encode::encode_for_batch(*response, owned, batch_budget).await;
        }
    };
    Some(
        batch_budget
            .hold(answer, BatchedAnswer::Other)
            .unwrap_or_else(|full| {
                let refusal = MessageRefusal::NoRoomInBatch(full.message().to_owned());
                let error = failure::message_error(refusal, request_context.context.name());
                let message = weir_wire::write::error_response(Some(&id), true, &error);
                failure::ok_message(message, RequestOutcome::Failed)
            }),
    )
}
