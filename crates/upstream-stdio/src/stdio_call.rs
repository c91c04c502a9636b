//! Calls and other requests over a child's channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::upstream::OutboundCall;
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::lower;
use weir_era::server_questions;

use weir_era::upstream_messages::{self, ClientDeclaration, MessageClass};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::own_requests;
use weir_upstream_core::result_expectation::{ResultExpectation, classify_result};
use weir_upstream_core::server_questions::ServerQuestions;
use weir_upstream_core::session_log_level::SessionLogLevel;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::LogLevel;
use weir_wire::method::Method;

use crate::asking_turn::AskingPermit;
use crate::child_channel::RequestPurpose;
use crate::child_channel::child_request::ChildRequest;
use crate::running_child::{LegacyChild, RunningChild};

/// Makes a call.
pub(crate) async fn call(
    context: &Arc<UpstreamContext>,
    running: Arc<RunningChild>,
    turn: Option<AskingPermit>,
    outbound: &OutboundCall,
) -> Result<Reply, FailedAttempt> {
    let call = &outbound.call;
    let another = running
        .child
        .channel
        .record_call(&outbound.principal, call.session);
    let legacy = running.legacy.as_ref();
    let has_roots = |legacy: &LegacyChild| {
        legacy.declares_roots_changes && legacy.class.has(CapabilityClass::ROOTS)
    };
    if another && legacy.is_some_and(has_roots) {
        // This client has roots of its own.
        running.child.channel.send(lower::roots_changed());
    }
    running.record_call(call.session);
    let dialect = running.handshake.dialect;
    let logs = match legacy {
        Some(legacy) => {
            let logs = legacy.level.granted(call.log_messages);
            if let Some(level) = legacy.level.missing(logs) {
                raise_log_level(context, &running, &legacy.level, level).await?;
            }
            logs
        }
        None => dialect.requested_logs(
            call.log_messages,
            running.handshake.about.declares_logging(),
        ),
    };
    let id = context.request_ids.next_id();
    let declared = legacy
        .map_or(call.capabilities.class, |legacy| legacy.class)
        .cut(context.permissions.carries(dialect));
    let extensions = &running.handshake.about.extensions;
    outbound.carried_revision.note(dialect.revision());
    let body = dialect.call(
        id,
        call,
        &outbound.native,
        ClientDeclaration {
            class: declared,
            client_info: &context.client_info,
            extensions,
            log_messages: logs,
        },
    );
    let class = if server_questions::may_have_questions(call.method) {
        declared
    } else {
        CapabilityClass::BASE
    };
    let filter = dialect
        .message_filter(id, call.wants_progress, logs)
        .with_questions(declared, server_questions::may_ask_in(call));
    let of_task = (call.method == Method::TasksResult).then(|| outbound.native.clone());
    let purpose = RequestPurpose::Call {
        asks: filter.may_have_questions(),
        task: of_task,
        session: call.session,
    };
    let mut request = running.request(id, body, purpose).await?;
    request.set_deadlines(outbound.begun, outbound.deadlines);
    request.wait_for_start().await?;
    let task_owner = ResultExpectation::task_owner(dialect, outbound, declared);
    let tracked = legacy.and_then(|_| context.task_progress.begin(id, outbound));
    let expectation = ResultExpectation {
        dialect,
        filter,
        class,
        task_owner,
        tracked,
        needs_whole: outbound.whole,
        is_about_task: call.method.is_about_task(),
        is_unsplit: false,
    };
    let asking = ServerQuestions::new(dialect.revision());
    Ok(Reply::started(StdioCallReply {
        context: context.clone(),
        running,
        request,
        expectation,
        asking,
        _turn: turn,
    })
    .await)
}

/// Makes a request of weir's own and returns its result.
pub(crate) async fn request(
    context: &UpstreamContext,
    running: &RunningChild,
    class: CapabilityClass,
    method: Method,
    members: &[(&str, &[u8])],
) -> Result<Bytes, FailedAttempt> {
    own_requests::within_list_deadline(&context.own_requests, async {
        let id = context.request_ids.next_id();
        let body =
            running
                .handshake
                .dialect
                .request(id, method, members, context.own_declaration(class));
        let mut request = running
            .request(id, body, RequestPurpose::OwnRequest)
            .await?;
        match request.wait_for_answer().await {
            Some(Ok(result)) => Ok(result),
            Some(Err(error)) => Err(upstream_messages::failure(&error)
                .with_upstream(&context.label.id)
                .into()),
            None => Err(request
                .take_refusal()
                .unwrap_or_else(|| process_lost(&context.label).into())),
        }
    })
    .await
}

/// Asks a server for the log messages from `level` up outside of any call. After a failure, the
/// client's next call asks again.
pub(crate) async fn raise_log_level_of_session(
    context: &UpstreamContext,
    running: &RunningChild,
    level: LogLevel,
) {
    if let Some(legacy) = &running.legacy {
        let _raised = raise_log_level(context, running, &legacy.level, level).await;
    }
}

/// Makes sure that a legacy server sends log messages from `level` up.
async fn raise_log_level(
    context: &UpstreamContext,
    running: &RunningChild,
    current: &SessionLogLevel,
    level: LogLevel,
) -> Result<(), FailedAttempt> {
    if !running.handshake.about.declares_logging() {
        return Ok(());
    }
    let level_json = lower::json(level.as_str());
    let members: &[(&str, &[u8])] = &[("level", &level_json)];
    let (class, method) = (CapabilityClass::BASE, Method::LoggingSetLevel);
    let ask = || async {
        match request(context, running, class, method, members).await {
            Err(refusal) if refusal.proof.is_some() => return Err(refusal),
            // A server that does not take the level still serves the call.
            Err(_) => context.label.count_dropped("set_level_refused"),
            Ok(_) => {}
        }
        Ok(())
    };
    current.raise(level, ask).await
}

/// Makes the failure of a call that the process's end interrupted.
pub(crate) fn process_lost(label: &UpstreamLabel) -> Failure {
    let text = "The upstream ended during the call: it may have run. Check before calling again";
    label
        .fail(FailureKind::ResultUnknown, text)
        .connection_lost()
}

impl Drop for StdioCallReply {
    fn drop(&mut self) {
        self.running
            .used
            .store(self.context.clock.millis(), Ordering::Relaxed);
        // An answered call has no questions any more.
        let heard = self.asking.take_shared();
        self.request.cancel_with_questions(heard);
    }
}

struct StdioCallReply {
    context: Arc<UpstreamContext>,
    /// Kept so that the process counts as in use.
    running: Arc<RunningChild>,
    request: ChildRequest,
    expectation: ResultExpectation,
    asking: ServerQuestions,
    _turn: Option<AskingPermit>,
}

impl ReplySource for StdioCallReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let channel = &self.running.child.channel;
        self.asking
            .poll_answers(cx, |message| channel.send(message));
        loop {
            let Some(message) = ready!(self.request.poll_message(cx)) else {
                let last_lines = self.running.child.errors.explanation();
                let failure = match (self.request.take_refusal(), last_lines) {
                    (Some(refusal), _) => refusal.failure,
                    (None, Some(lines)) => process_lost(&self.context.label)
                        .because(format!("its last output: {lines}")),
                    (None, None) => process_lost(&self.context.label),
                };
                return Poll::Ready(ReplyEvent::End(failure.into()));
            };
            match self.expectation.filter.classify(message) {
                MessageClass::Note(note) => return Poll::Ready(ReplyEvent::Note(note)),
                MessageClass::Answer(outcome) => {
                    self.request.end();
                    self.request.end_with_questions(self.asking.take_shared());
                    let end = match outcome {
                        Ok(result) => {
                            classify_result(&self.context.responses, &self.expectation, result)
                        }
                        Err(error) => ReplyEnd::from(self.context.permissions.call_failure(&error)),
                    };
                    if let ReplyEnd::Task(created) = &end {
                        // The task lives in this process.
                        let running = self.running.clone();
                        self.expectation.note_task(
                            &self.context.task_holds,
                            created,
                            Some(running),
                        );
                    }
                    return Poll::Ready(ReplyEvent::End(end));
                }
                MessageClass::Dropped { reason, .. } => {
                    self.context.label.count_dropped(reason.as_str());
                }
                MessageClass::Ask { lifted, request } => {
                    let shared = Some(request);
                    match self.asking.ask(&self.context.messages, *lifted, shared) {
                        Ok(ask) => return Poll::Ready(ask),
                        Err(refusal) => self.running.child.channel.send(refusal),
                    }
                }
                MessageClass::Withdrawn(id) => self.asking.withdraw(&id),
                MessageClass::Reply(answer) => self.running.child.channel.send(answer),
                // List changes are handled by the channel itself.
                MessageClass::ListChanged(_) | MessageClass::Ignored => {}
            }
        }
    }
}
