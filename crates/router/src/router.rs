//! The router: from a client's call to the upstream that has the tool, and back.
//!
//! It takes calls of authenticated senders, and sends only [`Admitted`] ones. It checks arguments
//! against the tool's schema before the upstream receives the call, and ensures that every call
//! leaves one record.

use std::collections::HashSet;
use std::fmt;
use std::future::{self, Future};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::Either;
use tokio::time::Instant;
use weir_catalog::{CallRoute, Catalog, ResourceSubscriber, ResourceSubscription, UpdateInbox};
use weir_clean::DocumentKind;
use weir_core::Authenticated;
use weir_core::call::{Call, CallResumption, InputMode, ParkedId, SessionKey, TaskMode};
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::EndpointMode;
use weir_core::failure::Failure;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::parked::ParkedCallDetails;
use weir_core::port::{CallAttempt, CallParking, GateDecision};
use weir_core::principal::Principal;
use weir_core::question::PendingQuestion;
use weir_core::reply::Reply;
use weir_core::server_item::TaskSupport;
use weir_core::upstream::{ClientSessionChange, ListKind, OutboundCall};
use weir_wire::method::Method;

use crate::admit::{Admitted, BegunCall, CallCharge, Gates, admit};
use crate::answer_search::AnswerSearch;
use crate::call_record::CallRecord;
use crate::call_subject::CallSubject;
use crate::caller_reading::read_as_caller;
use crate::item_search::{ItemSearch, ViewForPrincipal};
use crate::live_calls::{CallPhase, LiveCallGuard, LiveCalls};
use crate::message_edits::MessageEdits;
use crate::parking::ParkingContext;
use crate::recorded_reply::{ReplyHandling, ReplyRules};
use crate::reply_transform::ReplyTransform;
use crate::sent_call::SentCall;
use crate::session_search::opening_call;
use crate::task_names::{TaskNames, UpstreamTask};
use crate::tasks::task_naming::TaskNaming;
use crate::tasks::{TaskRequests, task_of_call};

/// The router. One for all endpoints.
pub struct Router {
    catalog: Arc<Catalog>,
    gates: Gates,
    parking: Option<Arc<dyn CallParking>>,
    tasks: TaskRequests,
    live: Arc<LiveCalls>,
}

impl Router {
    /// A router over `catalog`, behind `gates`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, gates: Gates) -> Self {
        let tasks = TaskRequests::new(catalog.clone(), None);
        Self {
            catalog,
            gates,
            parking: None,
            tasks,
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

    /// Lets calls become tasks, with the names that `names` makes. Without one, no call becomes a
    /// task.
    #[must_use]
    pub fn with_tasks(self, names: TaskNames) -> Self {
        let tasks = TaskRequests::new(self.catalog.clone(), Some(names));
        Self { tasks, ..self }
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
    pub async fn call(&self, call: Authenticated<Arc<Call>>) -> Reply {
        let item = match self.items().find_item_with_sessions(&call).await {
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
        let awaited = call.inner().task_mode == TaskMode::AwaitedByWeir
            && item.tool.tasks == TaskSupport::Required;
        let awaiting = awaited.then(|| call.for_payload(call.inner().clone()));
        let charge = self.charge_of(&call);
        let (subject, token) = CallSubject::of(call, item);
        let live = self.live.begin(subject.clone());
        let sent = match live
            .unless_stopped(admit(&self.gates, subject, token, charge, live.begun()))
            .await
        {
            Ok(Ok(call)) => self.send(call, live, awaiting),
            Ok(Err(failure)) | Err(failure) => return Reply::ended(failure),
        };
        sent.await
    }

    /// Subscribes `inbox` to updates of the resource that a call names, if its sender may call for
    /// it. Cancel safe.
    ///
    /// # Errors
    ///
    /// As a call's; `InvalidParams` if the resource's server has no subscriptions.
    pub async fn subscribe(
        &self,
        call: Authenticated<Arc<Call>>,
        inbox: &UpdateInbox,
    ) -> Result<ResourceSubscription, Failure> {
        let item = match self.items().find_item_with_sessions(&call).await {
            Ok(item) => item,
            Err(failure) => return Err(self.record_refusal(&call, failure)),
        };
        let reading = read_as_caller(&self.catalog, &call, &item);
        let (subject, token) = CallSubject::of(call, item);
        let BegunCall {
            subject,
            mut record,
            ..
        } = admit(&self.gates, subject, token, CallCharge::Due, Instant::now())
            .await?
            .begin(&self.gates);
        record.hand_to_upstream();
        let named = subject.call.params.uri().ok().flatten();
        let subscriber = ResourceSubscriber {
            principal: subject.principal.clone(),
            endpoint: subject.call.endpoint.clone(),
            item: subject.item.clone(),
            uri: named.map_or_else(|| subject.item.exposed.clone(), |uri| Arc::from(&*uri)),
            inbox: inbox.clone(),
        };
        let subscribed = async {
            if let Some(reading) = reading {
                reading.await?;
            }
            let session = subject.call.session.as_ref();
            self.catalog.subscribe(subscriber, session).await
        }
        .await;
        record.end(subscribed.as_ref().err());
        subscribed
    }

    /// The requests about tasks.
    #[must_use]
    pub fn tasks(&self) -> &TaskRequests {
        &self.tasks
    }

    /// Has the server of a transparent endpoint open a session for the client's session that a call
    /// names, unless the client sees no item of that server.
    pub fn open_session(&self, call: &Authenticated<Arc<Call>>) {
        let (principal, request) = (call.principal(), call.inner());
        let Some(endpoint) = self.catalog.endpoint(&request.endpoint) else {
            return;
        };
        let EndpointMode::Transparent(upstream) = &endpoint.mode else {
            return;
        };
        let sees = |kind| {
            ViewForPrincipal::of(&self.catalog, principal, request, kind)
                .is_some_and(|views| !views.seen.items.is_empty())
        };
        if self.catalog.closed_failure(upstream).is_some() || !ListKind::ALL.into_iter().any(sees) {
            return;
        }
        let Some(upstream) = self.catalog.upstream(upstream) else {
            return;
        };
        upstream.open_client_session(opening_call(call));
    }

    /// Finds out which servers of an endpoint have sessions, for a request that asks for what no
    /// server is known to have, and waits for their lists of these kinds. Does nothing for a client
    /// without sessions. Servers without an item that the client sees are not asked. Cancel safe.
    pub async fn find_sessions(&self, call: &Authenticated<Arc<Call>>, kinds: &[ListKind]) {
        self.items().find_sessions_of_endpoint(call, kinds).await;
    }

    /// Notifies the upstreams of a change of client sessions.
    pub fn notify_sessions(&self, sessions: &HashSet<SessionKey>, change: ClientSessionChange) {
        self.catalog
            .upstreams_with_sessions()
            .iter()
            .for_each(|upstream| upstream.notify_sessions(sessions, change));
        if change.is_end() {
            self.catalog.end_sessions(sessions);
        }
    }

    /// Changes a question from outside of any call as those of calls are changed, for a client of
    /// this endpoint. Absent if the endpoint does not have the upstream.
    #[must_use]
    pub fn edit_question(
        &self,
        endpoint: &EndpointId,
        mut ask: Box<PendingQuestion>,
    ) -> Option<Box<PendingQuestion>> {
        let method = ask.question.method;
        let item = self
            .catalog
            .of_message(endpoint, &ask.upstream, method.as_str())?;
        let params = ask.question.params.clone();
        let masked = mask_message(&item, DocumentKind::Question, params);
        let edits = self.message_edits(endpoint, &ask.upstream);
        ask.question.params = edits.question(method, &masked);
        Some(ask)
    }

    /// Changes the progress of a task from outside of any call as that of calls is changed, for a
    /// client of this endpoint. Absent if the endpoint does not have the upstream.
    #[must_use]
    pub fn edit_progress(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        params: Bytes,
    ) -> Option<Bytes> {
        let item = self
            .catalog
            .of_message(endpoint, upstream, Method::Progress.as_str())?;
        Some(mask_message(&item, DocumentKind::Notification, params))
    }

    /// Changes a log message from outside of any call as those of calls are changed, for a client
    /// of this endpoint. Absent if the endpoint does not have the upstream.
    #[must_use]
    pub fn edit_log(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        params: Bytes,
    ) -> Option<Bytes> {
        let item = self
            .catalog
            .of_message(endpoint, upstream, Method::LogMessage.as_str())?;
        let masked = mask_message(&item, DocumentKind::Notification, params);
        Some(self.message_edits(endpoint, upstream).log(&masked))
    }

    fn message_edits(&self, endpoint: &EndpointId, upstream: &UpstreamId) -> MessageEdits {
        MessageEdits::of(self.catalog.endpoint(endpoint).as_deref(), upstream)
    }

    /// The name by which the client of this session knows a task that it began at an upstream, from
    /// the upstream's own id of it. Messages outside of the requests about a task have that id
    /// alone.
    #[must_use]
    pub fn name_of_task(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        session: SessionKey,
        task: UpstreamTask<'_>,
    ) -> Option<Arc<str>> {
        let names = self.tasks.names.as_ref()?;
        names.find_name(principal, endpoint, session, task)
    }

    /// Drops parked calls whose clients did not come back in time.
    pub fn drop_expired_parked(&self) {
        if let Some(parking) = &self.parking {
            parking.sweep();
        }
    }

    /// Sends an admitted call to the upstream that has the tool. Its parts are gathered before the
    /// future begins. `awaiting` is the call for the requests about its task, if weir waits for the
    /// task.
    fn send(
        &self,
        call: Admitted,
        live: LiveCallGuard,
        awaiting: Option<Authenticated<Arc<Call>>>,
    ) -> impl Future<Output = Reply> + Send + use<> {
        match self.prepare(call, live, awaiting) {
            Ok(sending) => Either::Left(sending.reply()),
            Err(ended) => Either::Right(future::ready(ended)),
        }
    }

    /// Gathers the parts for sending a call, or returns a reply that needs no sending.
    fn prepare(
        &self,
        call: Admitted,
        live: LiveCallGuard,
        awaiting: Option<Authenticated<Arc<Call>>>,
    ) -> Result<SentCall, Reply> {
        let BegunCall {
            subject,
            token,
            admitted_at,
            mut record,
        } = call.begin(&self.gates);
        let CallSubject {
            principal,
            call,
            item,
        } = &*subject;
        let checked = self.route_of(&mut record, item, call).and_then(|route| {
            let task = self.task_naming(principal, call, item, &route)?;
            Ok((route, task))
        });
        let (route, task) = match checked {
            Ok(checked) => checked,
            Err(failure) => return Err(record.refuse(failure)),
        };
        let endpoint = route.endpoint.as_deref();
        let own = endpoint.and_then(|endpoint| endpoint.deadlines);
        let deadlines = own.map_or(item.terms.deadlines, |own| item.terms.deadlines.cut(own));
        let until = admitted_at + deadlines.hard;
        let mut transform = ReplyTransform::of(&self.catalog, endpoint, item, call);
        let keeps_result = task.as_ref().is_some_and(|(naming, _)| naming.is_wanted());
        let mut awaited_task = None;
        let call = match task {
            Some((naming, call)) => {
                match awaiting {
                    Some(about) => awaited_task = Some(self.tasks.awaiting(about, naming, until)),
                    None => transform.set_task_naming(naming),
                }
                call
            }
            None => call.clone(),
        };
        record.hand_to_upstream();
        let parking = self.parking_of(&call);
        let mut handling = ReplyHandling {
            record,
            transform,
            rules: ReplyRules {
                drops_questions: call.input_mode == InputMode::Rounds && parking.is_none(),
                keeps_result,
            },
        };
        let context = parking.map(|parking| ParkingContext {
            parking,
            details: parked_details(principal, &call, item),
        });
        if let Some(CallResumption::Parked(id)) = call.resume {
            live.set_phase(CallPhase::Answering);
            let reply = resume_parked(context, id, &call).unwrap_or_else(Reply::ended);
            handling.record.set_live(live);
            return Err(handling.wrap_reply(reply));
        }
        let outbound = OutboundCall {
            principal: principal.clone(),
            token,
            call,
            native: item.tool.native.clone(),
            tool: Some(item.tool.clone()),
            begun: admitted_at,
            deadlines,
            whole: handling.transform.wants_whole(),
            carried_revision: handling.record.carried_in(),
            safe_to_repeat: item.terms.safe_to_repeat,
        };
        live.set_phase(CallPhase::Sent);
        Ok(SentCall {
            making: route.upstream.call(outbound),
            handling,
            live,
            awaited_task,
            parking: context,
            until,
        })
    }

    /// Makes the last checks of a call, and returns the upstream for it.
    fn route_of(
        &self,
        record: &mut CallRecord,
        item: &CatalogItem,
        call: &Call,
    ) -> Result<CallRoute, Failure> {
        crate::schema_check::check_arguments(item, call)?;
        record.search_arguments()?;
        let route = self
            .catalog
            .call_route(&call.endpoint, &item.tool.upstream)
            .ok_or_else(|| Failure::unknown_tool(&item.exposed))?;
        record.set_route(&route);
        // An operator that takes the upstream out stops the calls that run after this check: no
        // call is in between.
        match self.catalog.closed_failure(&item.tool.upstream) {
            Some(refusal) => Err(refusal),
            None => Ok(route),
        }
    }

    /// The naming of the call's task and the call that asks for it, if the call may become one.
    fn task_naming(
        &self,
        principal: &Principal,
        call: &Arc<Call>,
        item: &CatalogItem,
        route: &CallRoute,
    ) -> Result<Option<(TaskNaming, Arc<Call>)>, Failure> {
        let is_served_in_session = || {
            let of_client = call.capabilities.class.has(CapabilityClass::SESSIONS);
            of_client && route.upstream.carries().has(CapabilityClass::SESSIONS)
        };
        let names = self.tasks.names.as_ref();
        let decided = task_of_call(names, principal, call, item, is_served_in_session)?;
        Ok(decided.map(|(naming, call)| (naming.at(route.incarnation), call)))
    }

    /// The charge of a call. A client's answer goes on without one only with a call that is parked:
    /// any other state can be brought again and again, and makes the upstream work each time.
    fn charge_of(&self, call: &Authenticated<Arc<Call>>) -> CallCharge {
        let (principal, call) = (call.principal(), call.inner());
        let goes_on = match call.resume {
            Some(CallResumption::Parked(id)) => self
                .parking_of(call)
                .is_some_and(|parking| parking.is_parked(principal, id)),
            Some(CallResumption::Upstream(_) | CallResumption::Again) | None => {
                call.is_continuation
            }
        };
        match goes_on {
            true => CallCharge::Paid,
            false => CallCharge::Due,
        }
    }

    /// The parking of a call whose client is asked by rounds.
    fn parking_of(&self, call: &Call) -> Option<Arc<dyn CallParking>> {
        let parking = self.parking.as_ref();
        parking
            .filter(|_| call.input_mode == InputMode::Rounds)
            .cloned()
    }

    fn items(&self) -> ItemSearch<'_> {
        ItemSearch {
            catalog: &self.catalog,
            authorizer: &*self.gates.authorizer,
        }
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
}

/// Removes hidden characters from a message outside of calls, and masks its secrets.
fn mask_message(item: &CatalogItem, document: DocumentKind, params: Bytes) -> Bytes {
    let (cleaned, _removed) = weir_core::clean::text(&item.tool.upstream, document, params);
    match AnswerSearch::of_messages(item) {
        Some(search) => search.masked(document, cleaned).0,
        None => cleaned,
    }
}

/// The description of a parked call.
fn parked_details(principal: &Principal, call: &Call, item: &CatalogItem) -> ParkedCallDetails {
    ParkedCallDetails {
        principal: principal.clone(),
        request: call.request,
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
    context: Option<ParkingContext>,
    id: ParkedId,
    call: &Call,
) -> Result<Reply, Failure> {
    let context = context.ok_or_else(|| Failure::internal("calls are resumed and never parked"))?;
    let given = call
        .params
        .input_responses()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    context.resume(id, call.input_responses.as_ref().or(given.as_ref()))
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router").field(&self.catalog).finish()
    }
}
