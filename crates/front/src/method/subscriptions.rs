//! Subscriptions to updates of single resources: `resources/subscribe` of a session, and the
//! resources that a modern listen names.
//!
//! A subscription belongs to its session or stream, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;
use weir_catalog::UpdateInbox;
use weir_core::call::LogMessages;
use weir_core::port::BoxFuture;
use weir_core::{Authenticated, Call, Failure, FailureKind};
use weir_era::lift::{self, LiftedRequest};
use weir_layers::request::request_context::HttpRequestContext;
use weir_session::{
    LoadedSession, NoStreamPermit, StreamPermit, SubscribedResource, SubscriptionRenewal,
};
use weir_wire::method::Method;
use weir_wire::params::{Params, ParamsError};
use weir_wire::write::ObjectWriter;

use crate::method::canonical_call::canonical_call;
use crate::method::offered_methods::check_offered;

/// Subscriptions of one stream that are requested at the same time.
pub(crate) const SUBSCRIBED_AT_ONCE: usize = 16;
/// The longest time that the acknowledgment of a stream waits for servers. Resources not confirmed
/// by then are left out.
pub(crate) const ACKNOWLEDGMENT_TIME: Duration = Duration::from_secs(5);

/// An honoured resource, by the client's own URI, and its subscription.
pub(crate) type GrantedResource = (Arc<str>, SubscribedResource);

/// Serves `resources/subscribe` and `resources/unsubscribe` (server/resources, "Subscriptions").
///
/// # Errors
/// Those of a call; too many subscriptions; a server that does not send updates.
pub(crate) async fn serve_session_request(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    method: Method,
    params: Params,
) -> Result<(), Failure> {
    check_offered(context, method)?;
    let uri = resource_of(&params)?;
    if !session.is_stored {
        let text = "Updates are told on a session's stream: send `initialize`, and its session id with requests";
        return Err(Failure::invalid_params(text));
    }
    let sessions = &context.shared().sessions;
    if method == Method::ResourcesUnsubscribe {
        // An unsubscribe of an unknown resource succeeds.
        sessions.unsubscribe(&session.key, &uri);
        sessions
            .share_subscriptions(session, &context.limits().session)
            .await;
        return Ok(());
    }
    subscribe_session(context, sender, session, params, None)
        .await
        .map(drop)
}

/// Subscribes a session, or renews its inherited subscription. Returns false if the client ended
/// that one meanwhile.
async fn subscribe_session(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    params: Params,
    renewal: Option<&SubscriptionRenewal>,
) -> Result<bool, Failure> {
    let (sessions, uri) = (&context.shared().sessions, resource_of(&params)?);
    let (own, is_known) = sessions.subscription_status(&session.key, &uri);
    if is_known {
        return Ok(true);
    }
    if own >= context.limits().subscriptions_per_client {
        return Err(too_many());
    }
    let permit = subscription_permit(context, sender, &uri)?;
    let lifted = lift::legacy(params, Some(&session.record), session.class()).map_err(invalid)?;
    let call = Call {
        session: Some(session.key),
        ..canonical_call(context, Method::ResourcesSubscribe, lifted)
    };
    let (inbox, subscribing) = match renewal {
        Some(renewal) => renewal.begin_subscription(),
        None => sessions.begin_subscription(session.key),
    };
    let subscription = context
        .shared()
        .router
        .subscribe(sender.for_payload(Arc::new(call)), &inbox)
        .await?;
    let subscriber = sender.principal().clone();
    let is_kept = subscribing.keep(
        &uri,
        SubscribedResource {
            subscription,
            permit,
            subscriber,
        },
    );
    sessions
        .share_subscriptions(session, &context.limits().session)
        .await;
    // The session may have ended in between, before the subscription was attached to it.
    if !sessions.is_alive(&session.record_key).await {
        sessions.remove_local(&session.key);
    }
    Ok(is_kept)
}

/// The resource that `params` names.
fn resource_of(params: &Params) -> Result<String, Failure> {
    let uri = params.uri().map_err(invalid)?;
    uri.map(std::borrow::Cow::into_owned)
        .ok_or_else(|| Failure::invalid_params("`uri` is missing: say which resource"))
}

fn invalid(error: ParamsError) -> Failure {
    Failure::invalid_params(error.to_string())
}

/// Renews the subscriptions that a session had in another process, when the client opens its stream
/// here. The client gets one update for each resource, since an update in between was lost.
pub(crate) fn renew_inherited(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
) {
    let Some(renewal) = context.shared().sessions.begin_renewal(session.key) else {
        return;
    };
    let (context, sender, session) = (context.clone(), sender.for_payload(()), session.clone());
    let shared = context.shared().clone();
    let renewing = async move {
        while let Some(uri) = renewal.next_uri() {
            let renewed = renew(&context, &sender, &session, &renewal, &uri).await;
            renewal.remove(&uri);
            match renewed {
                Ok(true) => context.shared().sessions.notify_updated(&session.key, uri),
                // The client ended it meanwhile.
                Ok(false) => {}
                Err(failure) => {
                    tracing::warn!(
                        request = context.name().as_str(),
                        cause = failure.cause(),
                        "inherited subscription could not be renewed"
                    );
                    let (sessions, limits) = (&context.shared().sessions, context.limits());
                    sessions
                        .share_subscriptions(&session, &limits.session)
                        .await;
                }
            }
        }
    };
    shared.shutdown.spawn_until_force(renewing);
}

/// Renews one subscription, as [`subscribe_session`].
async fn renew(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    renewal: &SubscriptionRenewal,
    uri: &str,
) -> Result<bool, Failure> {
    check_offered(context, Method::ResourcesSubscribe)?;
    subscribe_session(context, sender, session, params(uri)?, Some(renewal)).await
}

/// The `params` of a subscription.
fn params(uri: &str) -> Result<Params, Failure> {
    let mut params = BytesMut::with_capacity(uri.len() + 16);
    ObjectWriter::new(&mut params).string("uri", uri).end();
    Params::parse(Some(&params.freeze()))
        .map_err(|error| Failure::invalid_params(error.to_string()))
}

/// Subscribes a listen stream's inbox to resources; returns the honoured ones, in order. It never
/// fails: other resources are left out (2026-07-28, Subscriptions, "Acknowledgment").
pub(crate) fn subscribe_stream(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    resources: Vec<Arc<str>>,
    inbox: UpdateInbox,
    lifted: LiftedRequest,
) -> BoxFuture<'static, Vec<GrantedResource>> {
    let (context, sender) = (context.clone(), sender.for_payload(()));
    if check_offered(&context, Method::ResourcesSubscribe).is_err() {
        return Box::pin(std::future::ready(Vec::new()));
    }
    Box::pin(async move {
        let (context, sender, inbox, lifted) = (&context, &sender, &inbox, &lifted);
        let one = |uri: Arc<str>| async move {
            let subscribing = subscribe_resource(context, sender, &uri, inbox, lifted);
            match timeout(ACKNOWLEDGMENT_TIME, subscribing).await {
                Ok(Ok(subscribed)) => Some((uri, subscribed)),
                Ok(Err(failure)) => {
                    tracing::debug!(
                        request = context.name().as_str(),
                        error = failure.cause(),
                        "resource subscription failed: left out of acknowledgment"
                    );
                    None
                }
                Err(_) => None,
            }
        };
        let granted = stream::iter(resources)
            .map(one)
            .buffered(SUBSCRIBED_AT_ONCE)
            .filter_map(std::future::ready);
        let mut all = Vec::new();
        // The time limit of one holds for all together: the rest is not honoured.
        let gathering = granted.for_each(|one| {
            all.push(one);
            std::future::ready(())
        });
        let _late = timeout(ACKNOWLEDGMENT_TIME, gathering).await;
        all
    })
}

async fn subscribe_resource(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    uri: &str,
    inbox: &UpdateInbox,
    lifted: &LiftedRequest,
) -> Result<SubscribedResource, Failure> {
    let permit = subscription_permit(context, sender, uri)?;
    let lifted = LiftedRequest {
        params: params(uri)?,
        capabilities: lifted.capabilities.clone(),
        progress_token: None,
        log_messages: LogMessages::None,
        trace: lifted.trace.clone(),
    };
    let call = canonical_call(context, Method::ResourcesSubscribe, lifted);
    let subscription = context
        .shared()
        .router
        .subscribe(sender.for_payload(Arc::new(call)), inbox)
        .await?;
    let subscriber = sender.principal().clone();
    Ok(SubscribedResource {
        subscription,
        permit,
        subscriber,
    })
}

/// The longest URI that can be subscribed to.
const MAX_URI_BYTES: usize = 8 << 10;
/// The number of copies of a URI: in the session or stream, in the table of its server, and in
/// queues of pending updates.
const COPIES_OF_URI: usize = 7;
/// The memory of a subscription beside its URI, in bytes.
const SUBSCRIPTION_BYTES: usize = 512;

/// A permit for a subscription to a resource or task of this name, weighted by its length.
pub(crate) fn subscription_permit(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    name: &str,
) -> Result<StreamPermit, Failure> {
    if name.len() > MAX_URI_BYTES {
        return Err(Failure::invalid_params(format!(
            "A name of more than {MAX_URI_BYTES} bytes cannot be subscribed to"
        )));
    }
    let limits = context.limits();
    let permit = context
        .shared()
        .streams
        .subscription_permits
        .take(
            sender.principal(),
            limits.subscriptions,
            limits.subscriptions_per_principal,
        )
        .map_err(|reached| match reached {
            NoStreamPermit::Principal => too_many(),
            NoStreamPermit::Total => Failure::new(
                FailureKind::Busy,
                "As many resources are subscribed to as may be",
            ),
        })?;
    let weight = context
        .ports()
        .budgets
        .subscriptions
        .try_reserve(name.len() * COPIES_OF_URI + SUBSCRIPTION_BYTES);
    let full = || {
        Failure::new(
            FailureKind::Busy,
            "As many resources are subscribed to as there is memory for",
        )
    };
    Ok(permit.with_reservation(weight.ok_or_else(full)?))
}

fn too_many() -> Failure {
    Failure::new(
        FailureKind::Busy,
        "This client is told of as many resources as it may be: take some back first",
    )
    .own_limit()
}
