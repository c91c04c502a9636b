//! The router: from an admitted call to the upstream that has the tool, and back.
//!
//! It takes calls of authenticated senders, and sends only [`Admitted`] ones. It checks arguments
//! against the tool's schema before the upstream receives the call, and ensures that every call
//! leaves one record.

mod answer_search;
mod call_record;
mod message_edits;
mod reply_cleaning;
mod reply_transform;
mod schema_check;
mod size_check;
mod target;
mod tasks;
mod uri_renaming;

use std::collections::HashSet;
use std::fmt;
use std::future::{self, Future};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::Either;
use tokio::time::Instant;
use weir_clean::DocumentKind;

use crate::admit::{Admitted, AdmittedParts, Authenticated, Gates, admit};
use crate::call::ParkedId;
use crate::call::{Call, CallResumption, InputMode, SessionKey, TaskMode};
use crate::call_deadlines::CallDeadlines;
use crate::capability::CapabilityClass;
use crate::catalog::{
    Catalog, CatalogItem, ResourceSubscriber, ResourceSubscription, SessionClient, TaskSupport,
    Tool, UpdateInbox, View,
};
use crate::endpoint::EndpointMode;
use crate::failure::{Failure, FailureKind};
use crate::list_kind::ListKind;
use crate::live_calls::{CallPhase, LiveCallGuard, LiveCalls};
use crate::names::{EndpointId, resource_uri};
use crate::parked::{ParkedCallDetails, ParkingContext};
use crate::port::{CallAttempt, CallParking, Fut, GateDecision, Visibility};
use crate::principal::Principal;
use crate::question::PendingQuestion;
use crate::reply::{Reply, ReplyEnd, ReplyEvent, ReplySource};
use crate::task::TaskNames;
use crate::upstream::{CarriedRevision, ClientSessionChange, OutboundCall};
use call_record::{CallRecord, RecordedCall};
use reply_transform::ReplyTransform;
use target::CallTarget;

/// The router. One for all endpoints; its only state is the list of running calls.
#[derive(Clone)]
pub struct Router {
    catalog: Arc<Catalog>,
    gates: Gates,
    parking: Option<Arc<dyn CallParking>>,
    tasks: Option<TaskNames>,
    live: Arc<LiveCalls>,
}

impl Router {
    /// A router over `catalog`, behind `gates`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, gates: Gates) -> Self {
        Self {
            catalog,
            gates,
            parking: None,
            tasks: None,
            live: Arc::default(),
        }
    }

    /// Keeps calls that wait for input in `parking`. Without one, an upstream that asks in a call
    /// of a client that is asked by rounds learns that there is no answer.
    #[must_use]
    pub fn with_parking(self, parking: Arc<dyn CallParking>) -> Self {
        Self {
            parking: Some(parking),
            ..self
        }
    }

    /// Lets calls become tasks, with the names that `desk` makes. Without one, no call becomes a
    /// task.
    #[must_use]
    pub fn with_tasks(self, desk: TaskNames) -> Self {
        Self {
            tasks: Some(desk),
            ..self
        }
    }

    /// The catalog of the endpoints.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The calls that run.
    #[must_use]
    pub fn live(&self) -> &Arc<LiveCalls> {
        &self.live
    }

    /// Makes a call, if its sender may. Returns the reply as soon as its first event is known or
    /// the wait for it begins; a failure is its end. Dropping the future or the reply cancels the
    /// call, at the upstream too.
    pub async fn call(&self, call: Authenticated<impl Into<Arc<Call>>>) -> Reply {
        let call = call.map(Into::into);
        let item = match self.find_item(call.principal(), call.inner()).await {
            Ok(item) => item,
            Err(failure) => return Reply::ended(self.record_refusal(&call, failure)),
        };
        let call = as_listed(call, &item);
        if let Some((span, attribute)) = call
            .inner()
            .trace
            .span
            .as_ref()
            .zip(item.tool.kind.name_attribute())
        {
            span.set_target(attribute, &item.exposed);
        }
        // For a client without tasks, weir waits in its stead for a call that can only be a task.
        let driven = call.inner().task_mode == TaskMode::AwaitedByWeir
            && item.tool.tasks == TaskSupport::Required;
        let driven = driven.then(|| call.for_item(call.inner().clone()));
        let live = self.live.begin(&call, &item);
        let sent = match live.unless_stopped(admit(&self.gates, call, item)).await {
            Ok(Ok(call)) => self.send(call, live),
            Ok(Err(failure)) | Err(failure) => return Reply::ended(failure),
        };
        let reply = sent.await;
        match driven {
            None => reply,
            Some(call) => Reply::live(TaskDrivenReply {
                router: self.clone(),
                call,
                reply,
            }),
        }
    }

    /// Subscribes `inbox` to updates of the resource that a call names, if its sender may call for
    /// it. Cancel safe.
    ///
    /// # Errors
    ///
    /// As a call's; `InvalidParams` if the resource's server has no subscriptions.
    pub async fn subscribe(
        &self,
        call: Authenticated<Call>,
        inbox: &UpdateInbox,
    ) -> Result<ResourceSubscription, Failure> {
        let call = call.map(Arc::new);
        let item = match self.find_item(call.principal(), call.inner()).await {
            Ok(item) => item,
            Err(failure) => return Err(self.record_refusal(&call, failure)),
        };
        let AdmittedParts {
            principal,
            call,
            item,
            verdict,
            permit,
            ..
        } = admit(&self.gates, call, item).await?.into_parts();
        let begun = RecordedCall {
            principal: principal.clone(),
            call: call.clone(),
            item: item.clone(),
            verdict,
            permit,
        };
        let record = CallRecord::begin(self.gates.audit.clone(), begun);
        let subscribed = self
            .catalog
            .subscribe(
                ResourceSubscriber {
                    principal,
                    endpoint: call.endpoint.clone(),
                    item,
                    inbox: inbox.clone(),
                },
                call.session.as_ref(),
            )
            .await;
        record.end(
            subscribed
                .as_ref()
                .map_or_else(Failure::reason, |_| "complete"),
        );
        subscribed
    }

    /// Has the server of a transparent endpoint open a session for the client's session that a call
    /// names, unless the client sees no item of that server.
    pub fn open_session(&self, call: &Authenticated<Arc<Call>>) {
        let (principal, asked) = (call.principal(), call.inner());
        let Some(endpoint) = self.catalog.endpoint(&asked.endpoint) else {
            return;
        };
        let EndpointMode::Transparent(upstream) = &endpoint.mode else {
            return;
        };
        let sees = |kind| {
            self.look(principal, asked, kind)
                .is_some_and(|look| !look.seen.items.is_empty())
        };
        if self.catalog.closed_failure(upstream).is_some() || !ListKind::ALL.into_iter().any(sees) {
            return;
        }
        let Some(upstream) = self.catalog.upstream(upstream) else {
            return;
        };
        upstream.open_client_session(OutboundCall {
            principal: principal.clone(),
            token: call.token().cloned(),
            call: asked.clone(),
            native: "".into(),
            tool: None,
            deadlines: CallDeadlines::LIST,
            whole: false,
            carried_revision: CarriedRevision::default(),
            safe_to_repeat: false,
        });
    }

    /// Notifies the upstreams of a change of client sessions.
    pub fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        self.catalog
            .upstreams()
            .iter()
            .for_each(|upstream| upstream.notify_sessions(sessions, news));
        if news == ClientSessionChange::Ended {
            self.catalog.end_sessions(sessions);
        }
    }

    /// Changes a question from outside of any call as those of calls are changed, for a client of
    /// this endpoint.
    pub fn edit_question(&self, endpoint: &EndpointId, ask: &mut PendingQuestion) {
        let dress = message_edits::MessageEdits::of(
            self.catalog.endpoint(endpoint).as_deref(),
            &ask.upstream,
        );
        let (asked, _removed) = crate::clean::text(
            &ask.upstream,
            DocumentKind::Question,
            ask.question.params.clone(),
        );
        ask.question.params = dress.question(ask.question.method, &asked);
    }

    /// Drops parked calls whose clients did not come back in time.
    pub fn drop_expired_parked(&self) {
        if let Some(parking) = &self.parking {
            parking.sweep();
        }
    }

    /// Sends an admitted call to the upstream that has the tool. Its parts are gathered before the
    /// future begins.
    fn send(
        &self,
        call: Admitted,
        live: LiveCallGuard,
    ) -> impl Future<Output = Reply> + Send + use<> {
        match self.prepare(call, live) {
            Ok(sending) => Either::Left(sending.reply()),
            Err(ended) => Either::Right(future::ready(ended)),
        }
    }

    /// Gathers the parts for sending a call, or returns a reply that needs no sending.
    fn prepare(&self, call: Admitted, live: LiveCallGuard) -> Result<SentCall, Reply> {
        let AdmittedParts {
            principal,
            token,
            call,
            item,
            verdict,
            permit,
        } = call.into_parts();
        let begun = RecordedCall {
            principal: principal.clone(),
            call: call.clone(),
            item: item.clone(),
            verdict,
            permit,
        };
        let mut record = CallRecord::begin(self.gates.audit.clone(), begun);
        if let Err(failure) =
            schema_check::check_arguments(&item, &call).and_then(|()| record.search_arguments())
        {
            return Err(record.wrap_reply(Reply::ended(failure), ReplyTransform::default()));
        }
        let Some((upstream, timings)) = self.catalog.upstream_with_timings(&item.tool.upstream)
        else {
            return Err(record.wrap_reply(
                Reply::ended(Failure::unknown_tool(&item.exposed)),
                ReplyTransform::default(),
            ));
        };
        record.set_timings(timings);
        // An operator that takes the upstream out stops the calls that run after this check: no
        // call is in between.
        if let Some(refusal) = self.catalog.closed_failure(&item.tool.upstream) {
            return Err(record.wrap_reply(Reply::ended(refusal), ReplyTransform::default()));
        }
        let endpoint = self.catalog.endpoint(&call.endpoint);
        let own = endpoint.as_ref().and_then(|endpoint| endpoint.deadlines);
        let deadlines = own.map_or(item.terms.deadlines, |own| item.terms.deadlines.cut(own));
        let until = Instant::now() + deadlines.hard;
        let mut way = ReplyTransform::of(endpoint.as_deref(), &item, &call);
        let (call, kept) = match self.task_of_call(&principal, &call, &item) {
            Ok(None) => (call, false),
            Ok(Some((naming, call))) => {
                let kept = naming.is_wanted();
                way.set_task_naming(naming);
                (call, kept)
            }
            Err(failure) => {
                return Err(record.wrap_reply(Reply::ended(failure), ReplyTransform::default()));
            }
        };
        let parking = self
            .parking
            .as_ref()
            .filter(|_| call.input_mode == InputMode::Rounds)
            .cloned();
        let place = parking.map(|parking| ParkingContext {
            parking,
            details: parked_details(&principal, &call, &item),
        });
        if let Some(CallResumption::Parked(id)) = call.resume {
            live.set_phase(CallPhase::Answering);
            let reply =
                live.wrap_reply(resume_parked(place, id, &call).unwrap_or_else(Reply::ended));
            record.set_live(live);
            return Err(record.wrap_reply(reply, way));
        }
        let asked = call.input_mode;
        let outbound = OutboundCall {
            principal,
            token,
            call,
            native: item.tool.native.clone(),
            tool: Some(item.tool.clone()),
            deadlines,
            whole: way.wants_whole(),
            carried_revision: record.carried_in(),
            safe_to_repeat: item.terms.safe_to_repeat,
        };
        live.set_phase(CallPhase::Sent);
        Ok(SentCall {
            making: upstream.call(outbound),
            record,
            transform: way,
            live,
            parking: place,
            asked,
            is_kept_as_task: kept,
            until,
        })
    }

    /// Records the refusal of a call without a visible item, like every other refusal.
    fn record_refusal(&self, call: &Authenticated<Arc<Call>>, failure: Failure) -> Failure {
        let attempt = CallAttempt {
            principal: call.principal(),
            call: call.inner(),
            item: None,
        };
        self.gates
            .audit
            .record_decision(&attempt, GateDecision::Refused(&failure))
            .err()
            .unwrap_or(failure)
    }

    /// The item that a call names, as its sender sees it.
    async fn find_item(&self, principal: &Principal, call: &Call) -> Result<CatalogItem, Failure> {
        let item = self.search_item(principal, call).await?;
        // The view may be older than an operator's latest action.
        self.catalog
            .closed_failure(&item.tool.upstream)
            .map_or(Ok(item), Err)
    }

    async fn search_item(
        &self,
        principal: &Principal,
        call: &Call,
    ) -> Result<CatalogItem, Failure> {
        if let Some(name) = &call.extension {
            return self.extension_item(principal, call, name);
        }
        let target = target::of(call)?;
        let CallTarget { kind, ref name } = target;
        let gone = || {
            Failure::new(
                FailureKind::Unavailable,
                "This endpoint is not served any more",
            )
        };
        let mut look = self.look(principal, call, kind).ok_or_else(gone)?;
        if look.seen.find(name).item().is_none() && !look.whole.settled {
            // Right after a start the lists are not known yet: the item may be there in a moment.
            self.catalog
                .settled_view(&call.endpoint, kind, call.capabilities.class)
                .await;
            look = self.look(principal, call, kind).ok_or_else(gone)?;
        }
        let shared = look.seen.find(name).item().cloned();
        let may_differ = match &shared {
            Some(_) => self.catalog.has_differing_sessions(),
            // An item that is hidden from the sender is not unknown: no session is asked for it.
            None => look.whole.find(name).item().is_none(),
        };
        let client = call
            .session
            .filter(|_| may_differ)
            .map(|session| SessionClient {
                endpoint: &call.endpoint,
                class: call.capabilities.class,
                principal,
                session,
            });
        let found = match (client, shared) {
            (Some(client), Some(shared)) => {
                self.catalog.shared_item_in_session(&client, kind, shared)
            }
            (Some(client), None) => {
                let searching = self
                    .catalog
                    .own_item_of_session(&client, &look.whole, kind, name);
                Box::pin(searching).await
            }
            (None, shared) => shared,
        };
        if let Some(item) = found {
            return Ok(item);
        }
        let unlisted = if kind == ListKind::Resources {
            self.unlisted(principal, call, name)
        } else {
            None
        };
        unlisted.ok_or_else(|| self.hidden_item_failure(principal, call, &look, &target))
    }

    /// The item of a method that no revision knows: the one upstream of a transparent endpoint. The
    /// effect of the method is unknown to weir, so it passes only if no item of that upstream is
    /// hidden from its sender.
    fn extension_item(
        &self,
        principal: &Principal,
        call: &Call,
        name: &str,
    ) -> Result<CatalogItem, Failure> {
        let none = || Failure::new(FailureKind::MethodNotFound, "This method is not served");
        let endpoint = self.catalog.endpoint(&call.endpoint).ok_or_else(none)?;
        let EndpointMode::Transparent(upstream) = &endpoint.mode else {
            return Err(none());
        };
        let authorizer = &self.gates.authorizer;
        if endpoint.tools.is_some() || !authorizer.permits_all(principal, &call.endpoint, upstream)
        {
            return Err(none());
        }
        // Scopes of single tools are scopes of the item.
        let is_seen = |item: &CatalogItem| {
            authorizer.may_see(principal, &call.endpoint, item) == Visibility::Visible
        };
        self.catalog
            .of_method(&call.endpoint, upstream, name)
            .filter(is_seen)
            .ok_or_else(none)
    }

    fn look(&self, principal: &Principal, call: &Call, kind: ListKind) -> Option<ViewForPrincipal> {
        let whole = self
            .catalog
            .view(&call.endpoint, kind, call.capabilities.class)?;
        let seen = self
            .catalog
            .visible_part(&call.endpoint, whole.clone(), principal);
        Some(ViewForPrincipal { whole, seen })
    }

    /// A resource that no list shows: servers may have more than they list, and a template stands
    /// for many. Its URI names the upstream, or else a template that fits.
    fn unlisted(&self, principal: &Principal, call: &Call, uri: &str) -> Option<CatalogItem> {
        let endpoint = self.catalog.endpoint(&call.endpoint)?;
        let (upstream, native) = match &endpoint.mode {
            EndpointMode::Transparent(upstream) => (upstream.clone(), uri.to_owned()),
            EndpointMode::Aggregate { upstreams, .. } => {
                match resource_uri::split_exposed(uri).filter(|(id, _)| upstreams.contains(id)) {
                    Some(own) => own,
                    None => {
                        let templates = self.look(principal, call, ListKind::Templates)?.seen;
                        let fitting = templates
                            .items
                            .iter()
                            .find(|item| resource_uri::matches_template(&item.exposed, uri))?;
                        (fitting.tool.upstream.clone(), uri.to_owned())
                    }
                }
            }
        };
        let item = self.catalog.unlisted_resource(&upstream, uri, &native)?;
        let sight = self
            .gates
            .authorizer
            .may_see(principal, &call.endpoint, &item);
        (sight == Visibility::Visible).then_some(item)
    }

    /// The failure for a name without a visible item: further scopes may show it.
    fn hidden_item_failure(
        &self,
        principal: &Principal,
        call: &Call,
        look: &ViewForPrincipal,
        target: &CallTarget<'_>,
    ) -> Failure {
        let hidden = look.whole.find(&target.name).item();
        match hidden.map(|item| {
            self.gates
                .authorizer
                .may_see(principal, &call.endpoint, item)
        }) {
            Some(Visibility::NeedsScopes(scopes)) => Failure::new(
                FailureKind::InsufficientScope(scopes),
                "This takes scopes that your token lacks",
            ),
            // A hidden item looks like one that does not exist.
            Some(Visibility::Hidden | Visibility::Visible) => {
                let decided =
                    hidden.map(|item| self.gates.authorizer.may_call(principal, call, item));
                let rule = decided
                    .and_then(Result::err)
                    .and_then(|failure| failure.rule().cloned());
                target::unknown(target).forbidden_by(rule)
            }
            None => self.missing_item_failure(&look.seen, call, target),
        }
    }

    /// The failure for a name that no item has now. If it can only be of an upstream whose lists
    /// are not known, the failure is that one: at "unknown tool" a model would give it up for good.
    fn missing_item_failure(&self, view: &View, call: &Call, target: &CallTarget<'_>) -> Failure {
        let name = &*target.name;
        if let Some(refusal) =
            self.catalog
                .closed_failure_of_name(&call.endpoint, target.kind, name)
        {
            return refusal;
        }
        let transparent = self.catalog.is_transparent(&call.endpoint);
        let down = view
            .missing
            .iter()
            .filter(|missing| matches!(missing.reason, "pending" | "down" | "disabled"));
        let owner = down.map(|missing| &missing.upstream).find(|id| {
            transparent
                || name.strip_prefix(id.as_str()).is_some_and(|rest| {
                    !rest.is_empty() && !rest.starts_with(char::is_alphanumeric)
                })
        });
        match owner {
            Some(id) => self.catalog.closed_failure(id).unwrap_or_else(|| {
                let text = "The server that has this cannot be reached now; try again later";
                Failure::new(FailureKind::Unavailable, text).with_upstream(id)
            }),
            None => target::unknown(target),
        }
    }
}

/// A call at its upstream, with the parts that handle its reply.
struct SentCall {
    making: Fut<'static, Reply>,
    record: CallRecord,
    transform: ReplyTransform,
    live: LiveCallGuard,
    parking: Option<ParkingContext>,
    asked: InputMode,
    /// Its result is kept as that of a task.
    is_kept_as_task: bool,
    until: Instant,
}

impl SentCall {
    /// Waits for the reply.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async function has its arguments twice"
    )]
    fn reply(mut self) -> impl Future<Output = Reply> + Send {
        async move {
            let reply = match self.live.unless_stopped(self.making).await {
                Ok(reply) => self.live.wrap_reply(reply),
                Err(stopped) => Reply::ended(stopped),
            };
            self.record.set_live(self.live);
            let reply = match (self.parking, self.asked) {
                (Some(place), _) => place.wrap_reply(reply),
                (None, InputMode::Requests) => reply,
                (None, InputMode::Rounds) => without_questions(reply),
            };
            self.record
                .wrap_reply(
                    if self.is_kept_as_task {
                        tasks::gather_result(reply)
                    } else {
                        reply
                    },
                    self.transform,
                )
                .with_deadline(self.until)
        }
    }
}

/// The description of a parked call.
fn parked_details(principal: &Principal, call: &Call, item: &CatalogItem) -> ParkedCallDetails {
    ParkedCallDetails {
        principal: principal.clone(),
        request: call.request.clone(),
        endpoint: call.endpoint.clone(),
        upstream: item.tool.upstream.clone(),
        method: call.method.as_str(),
        exposed: item.exposed.clone(),
        questions: Vec::new(),
    }
}

/// Returns the call as one of a client for which the item's server lists it.
fn as_listed(call: Authenticated<Arc<Call>>, item: &CatalogItem) -> Authenticated<Arc<Call>> {
    if item.listed_without == CapabilityClass::BASE {
        return call;
    }
    call.map(|call| {
        let mut own = Call::clone(&call);
        own.capabilities.class = own.capabilities.class.without(item.listed_without);
        Arc::new(own)
    })
}

/// Goes on with a parked call.
fn resume_parked(
    place: Option<ParkingContext>,
    id: ParkedId,
    call: &Call,
) -> Result<Reply, Failure> {
    let place = place.ok_or_else(|| Failure::internal("calls are resumed and never parked"))?;
    let given = call
        .params
        .input_responses()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    place.resume(id, call.input_responses.as_ref().or(given.as_ref()))
}

/// Returns a reply that drops its questions: the upstream learns that there is no answer.
fn without_questions(reply: Reply) -> Reply {
    if reply.is_ended() {
        reply
    } else {
        Reply::live(ReplyWithoutQuestions(reply))
    }
}

struct ReplyWithoutQuestions(Reply);

impl ReplySource for ReplyWithoutQuestions {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match ready!(self.0.poll_next(cx)) {
                Some(ReplyEvent::Ask(_)) => {}
                Some(event) => return Poll::Ready(event),
                None => {
                    return Poll::Ready(ReplyEvent::End(
                        Failure::internal("a reply ended without an end").into(),
                    ));
                }
            }
        }
    }
}

/// A call that becomes a task, and is followed to its end.
struct TaskDrivenReply {
    router: Router,
    call: Authenticated<Arc<Call>>,
    reply: Reply,
}

impl ReplySource for TaskDrivenReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match ready!(self.reply.poll_next(cx)) {
                Some(ReplyEvent::End(ReplyEnd::Task(created))) => {
                    self.reply = self.router.await_task(&self.call, &created)
                }
                Some(event) => return Poll::Ready(event),
                None => {
                    return Poll::Ready(ReplyEvent::End(
                        Failure::internal("a reply ended without an end").into(),
                    ));
                }
            }
        }
    }
}

/// The list of an endpoint, and the part of it that the sender sees.
struct ViewForPrincipal {
    whole: Arc<View>,
    seen: Arc<View>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router").field(&self.catalog).finish()
    }
}

/// For the metrics of checks.
fn upstream_label(tool: &Tool) -> opentelemetry::KeyValue {
    opentelemetry::KeyValue::new("upstream", tool.upstream.to_string())
}
