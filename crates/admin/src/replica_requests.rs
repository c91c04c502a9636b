//! Requests of operators to other replicas: with `replicas=all` in the query each replica gets the
//! request, with `replicas=ID` the named one does.
//!
//! The request goes over the cluster listener with the operator's own credentials. Every replica
//! authenticates the operator, carries the request out like one of its own listener, and records it
//! in its own audit. The replica that was asked collects the answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;
use weir_core::call::RequestName;
use weir_core::port::{ReplicaId, ReplicaSeen};
use weir_front::{
    ForwardedClient, ForwardedRequest, ForwardedSender, OPERATOR_HEADER, ReplicaPorts,
};

use crate::admin_error::{AdminError, json};
use crate::operator_auth::{ForwardedOperator, OperatorAddress};
use crate::state::AdminState;

/// The query parameter with the replicas that get a request.
const REPLICAS_PARAMETER: &str = "replicas";
/// The paths that other replicas answer begin with this.
const FORWARDED_PATHS: &str = "/admin/";
/// The most bytes of a request's body, as of every change.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// The most bytes of the answer of one replica: a thousand tools with their schemas.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The time that a replica has for its answer. A reload takes up to 30 seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);

/// The replicas that get a request.
#[derive(Debug, PartialEq, Eq)]
enum ReplicaScope {
    All,
    One(ReplicaId),
}

/// The answers of all replicas.
#[derive(Serialize)]
struct ReplicaAnswersView {
    /// The answers, that of the asked replica first.
    replicas: Vec<ReplicaAnswerView>,
    /// The number of replicas that did not do what was asked for.
    failed: usize,
}

/// The answer of a replica.
#[derive(Serialize)]
struct ReplicaAnswerView {
    /// The name of the replica, in hexadecimal digits.
    id: String,
    /// True for the replica that was asked.
    own: bool,
    address: String,
    /// The status of its answer; absent if it did not answer.
    status: Option<u16>,
    /// Its answer; absent if it refused.
    answer: Option<Value>,
    /// The reason of the refusal or of the missing answer.
    error: Option<String>,
}

/// The status and the body of a replica's answer, or the reason that there is none.
type ReplicaAnswer = Result<(StatusCode, Bytes), String>;

/// A request in the form in which every replica gets it.
struct SharedRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    operator: IpAddr,
}

/// Sends a request that names replicas to them, and passes every other one on.
pub(super) async fn distribute(
    State(state): State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    if !request.uri().path().starts_with(FORWARDED_PATHS) {
        return next.run(request).await;
    }
    let (mut head, body) = request.into_parts();
    let scope = take_scope(&mut head).and_then(|scope| check_query(&head).map(|()| scope));
    match scope {
        Ok(None) => next.run(Request::from_parts(head, body)).await,
        Ok(Some(scope)) => answer(&state, scope, head, body, next)
            .await
            .unwrap_or_else(IntoResponse::into_response),
        Err(refused) => refused.into_response(),
    }
}

async fn answer(
    state: &AdminState,
    scope: ReplicaScope,
    head: Parts,
    body: Body,
    next: Next,
) -> Result<Response, AdminError> {
    if head.extensions.get::<ForwardedOperator>().is_some() {
        return Err(AdminError::bad_request(
            "a request of another replica names no further replicas",
        ));
    }
    let Some(peers) = &state.peers else {
        return Err(AdminError::bad_request(
            "`replicas` needs a shared `store`: this weir has no other replicas",
        ));
    };
    let body = to_bytes(body, MAX_REQUEST_BYTES).await.map_err(|_| {
        let text = "the body is larger than 16 KiB";
        AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    })?;
    let shared = SharedRequest::of(&head, body.clone());
    let here = next.run(Request::from_parts(head, Body::from(body)));
    match scope {
        ReplicaScope::One(id) if id == *peers.directory.own() => Ok(here.await),
        ReplicaScope::One(id) => answer_of_one(peers, &id, &shared).await,
        ReplicaScope::All => {
            check_for_all(&shared)?;
            let answers = answers_of_all(peers, &shared, here).await;
            Ok(json(StatusCode::OK, &answers))
        }
    }
}

/// Takes the parameter with the replicas out of the query. `None` if there is none.
fn take_scope(head: &mut Parts) -> Result<Option<ReplicaScope>, AdminError> {
    let pairs = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let (named, others): (Vec<_>, Vec<_>) = pairs.partition(|(key, _)| key == REPLICAS_PARAMETER);
    let scope = match named.as_slice() {
        [] => return Ok(None),
        [(_, value)] if value == "all" => ReplicaScope::All,
        [(_, value)] => ReplicaScope::One(ReplicaId::from_text(value).ok_or_else(|| {
            AdminError::bad_request(
                "`replicas` must be `all` or the id of a replica, as /admin/replicas shows it",
            )
        })?),
        _ => {
            return Err(AdminError::bad_request("a query parameter is given twice"));
        }
    };
    let path = head.uri.path();
    let rest = if others.is_empty() {
        path.to_owned()
    } else {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&others);
        format!("{path}?{}", query.finish())
    };
    let rest = PathAndQuery::try_from(rest)
        .map_err(|_| AdminError::bad_request("the query is not valid"))?;
    head.uri = Uri::from(rest);
    Ok(Some(scope))
}

/// Refuses a change with query parameters of its own: what it changes is in its path and body. Views
/// check theirs.
fn check_query(head: &Parts) -> Result<(), AdminError> {
    let is_view = matches!(head.method, Method::GET | Method::HEAD);
    if is_view || head.uri.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    Err(AdminError::bad_request(format!(
        "a change has no query parameters but `{REPLICAS_PARAMETER}`"
    )))
}

/// Refuses a request whose subject has one name at several replicas.
fn check_for_all(shared: &SharedRequest) -> Result<(), AdminError> {
    let path = shared.uri.path();
    if path.starts_with("/admin/calls/") {
        let text = "ids of calls are those of one replica: name it, as in `replicas=ID`";
        return Err(AdminError::bad_request(text));
    }
    Ok(())
}

async fn answer_of_one(
    peers: &ReplicaPorts,
    id: &ReplicaId,
    shared: &SharedRequest,
) -> Result<Response, AdminError> {
    let mut all = peers.directory.replicas().into_iter();
    if !all.any(|one| one.id == *id) {
        return Err(AdminError::not_found("replica", &id.to_string()));
    }
    let (status, body) = ask(peers, id, shared)
        .await
        .map_err(|why| AdminError::new(StatusCode::BAD_GATEWAY, why))?;
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    Ok((status, content_type, body).into_response())
}

/// Carries a request out at every replica that does not drain, at all of them at the same time.
async fn answers_of_all(
    peers: &ReplicaPorts,
    shared: &SharedRequest,
    here: impl Future<Output = Response>,
) -> ReplicaAnswersView {
    let own = peers.directory.own();
    let (here_seen, others): (Vec<_>, Vec<_>) = peers
        .directory
        .replicas()
        .into_iter()
        .filter(|one| one.id == *own || !one.is_draining)
        .partition(|one| one.id == *own);
    let requests = others.iter().map(|one| ask(peers, &one.id, shared));
    let here = async { whole_answer(here.await).await };
    let (here, answers) = tokio::join!(here, join_all(requests));
    let here = here_seen.iter().zip([here]);
    let others = others.iter().zip(answers);
    let views = here.chain(others);
    let views = views.map(|(one, answer)| ReplicaAnswerView::of(one, answer, one.id == *own));
    let of_one_session = shared.uri.path().starts_with("/admin/sessions/");
    ReplicaAnswersView::of(views.collect(), of_one_session)
}

/// Sends a request to another replica.
async fn ask(peers: &ReplicaPorts, id: &ReplicaId, shared: &SharedRequest) -> ReplicaAnswer {
    let request = async {
        let forwarded = shared.forwarded(peers.directory.own());
        let answer = peers.forwarder.forward(id, forwarded).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if !answer.headers().contains_key(OPERATOR_HEADER) {
            return Err(
                "it is of a version without requests of operators, or is starting".to_owned(),
            );
        }
        whole_answer(answer.map(Body::new)).await
    };
    let in_time = tokio::time::timeout(ANSWER_TIMEOUT, request).await;
    in_time.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}")))
}

async fn whole_answer(answer: Response) -> ReplicaAnswer {
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, MAX_ANSWER_BYTES).await;
    let body = body.map_err(|error| format!("its answer broke off: {error}"))?;
    Ok((head.status, body))
}

impl SharedRequest {
    fn of(head: &Parts, body: Bytes) -> Self {
        let peer = head.extensions.get::<OperatorAddress>();
        let kept = [header::AUTHORIZATION, header::CONTENT_TYPE];
        let kept = kept.into_iter().filter_map(|name| {
            let value = head.headers.get(&name)?.clone();
            Some((name, value))
        });
        Self {
            method: head.method.clone(),
            uri: head.uri.clone(),
            // The cluster listener checks no host; HTTP/2 wants one.
            headers: kept
                .chain([(header::HOST, HeaderValue::from_static("localhost"))])
                .collect(),
            body,
            operator: peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0),
        }
    }

    fn forwarded(&self, own: &ReplicaId) -> ForwardedRequest {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.method.clone();
        head.uri = self.uri.clone();
        head.headers = self.headers.clone();
        ForwardedRequest {
            sender: ForwardedSender::Operator,
            head,
            body: self.body.clone(),
            client: ForwardedClient {
                forwarded_by: own.clone(),
                // Requests of operators have no name.
                request: RequestName::from_bits(0),
                address: self.operator,
                secure: false,
                certificate: None,
            },
        }
    }
}

impl ReplicaAnswersView {
    /// Counts the failures. A session is at one replica alone: the others do not fail if that one
    /// ended it.
    fn of(replicas: Vec<ReplicaAnswerView>, of_one_session: bool) -> Self {
        let is_done = |one: &&ReplicaAnswerView| one.answer.is_some();
        let is_absent = |one: &&ReplicaAnswerView| one.status == Some(404);
        let done = replicas.iter().filter(is_done).count();
        let absent = replicas.iter().filter(is_absent).count();
        let excused = if of_one_session && done > 0 {
            absent
        } else {
            0
        };
        Self {
            failed: replicas.len() - done - excused,
            replicas,
        }
    }
}

impl ReplicaAnswerView {
    fn of(replica: &ReplicaSeen, answer: ReplicaAnswer, own: bool) -> Self {
        let (status, body) = match answer {
            Ok((status, body)) => (Some(status), body),
            Err(why) => return Self::silent(replica, own, why),
        };
        let value = serde_json::from_slice::<Value>(&body).ok();
        let is_done = status.is_some_and(|status| status.is_success());
        let (answer, error) = match value {
            Some(value) if is_done => (Some(value), None),
            Some(value) => (None, value["error"].as_str().map(str::to_owned)),
            None => (None, None),
        };
        let unexplained = || "its answer cannot be read".to_owned();
        Self {
            status: status.map(|status| status.as_u16()),
            error: error.or_else(|| answer.is_none().then(unexplained)),
            answer,
            ..Self::silent(replica, own, String::new())
        }
    }

    /// A replica that did not answer.
    fn silent(replica: &ReplicaSeen, own: bool, why: String) -> Self {
        Self {
            id: replica.id.to_string(),
            own,
            address: replica.address.to_string(),
            status: None,
            answer: None,
            error: Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn taken(uri: &str) -> Result<(Option<ReplicaScope>, String), AdminError> {
        let (mut head, ()) = Request::get(uri).body(()).unwrap().into_parts();
        let scope = take_scope(&mut head)?;
        Ok((scope, head.uri.to_string()))
    }

    #[test]
    fn replicas_are_taken_out_of_the_query() {
        let (scope, uri) = taken("/admin/calls?limit=5&replicas=all&upstream=a%26b").unwrap();
        assert_eq!(scope, Some(ReplicaScope::All));
        assert_eq!(uri, "/admin/calls?limit=5&upstream=a%26b");
        let (scope, uri) = taken("/admin/log?replicas=0102030405060708").unwrap();
        let id = ReplicaId([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((scope, &*uri), (Some(ReplicaScope::One(id)), "/admin/log"));
        let (scope, uri) = taken("/admin/calls?limit=5").unwrap();
        assert_eq!((scope, &*uri), (None, "/admin/calls?limit=5"));
        for bad in ["replicas=some", "replicas=all&replicas=all", "replicas=01"] {
            assert!(taken(&format!("/admin/calls?{bad}")).is_err(), "{bad}");
        }
    }

    fn seen(number: u8) -> ReplicaSeen {
        ReplicaSeen {
            id: ReplicaId([number; 8]),
            address: "10.0.0.1:8082".into(),
            version: "1".into(),
            config: "c".into(),
            keys: vec![1],
            sealing_key: Some(1),
            opens_all: true,
            is_draining: false,
            age: Duration::ZERO,
        }
    }

    fn view(number: u8, answer: ReplicaAnswer) -> ReplicaAnswerView {
        ReplicaAnswerView::of(&seen(number), answer, number == 1)
    }

    #[test]
    fn failures_are_named_and_counted() {
        let done = || view(1, Ok((StatusCode::OK, r#"{"done":"end"}"#.into())));
        let absent = || view(2, Ok((StatusCode::NOT_FOUND, r#"{"error":"none"}"#.into())));
        let silent = || view(3, Err("unreachable".to_owned()));
        let all = ReplicaAnswersView::of(vec![done(), absent(), silent()], false);
        assert_eq!(all.failed, 2);
        let value = serde_json::to_value(&all).unwrap();
        assert_eq!(value["replicas"][0]["answer"]["done"], "end");
        assert_eq!(value["replicas"][1]["error"], "none");
        assert_eq!(value["replicas"][2]["error"], "unreachable");
        assert_eq!(value["replicas"][2]["status"], Value::Null);
        let one = ReplicaAnswersView::of(vec![done(), absent()], true);
        assert_eq!(one.failed, 0);
        let nowhere = ReplicaAnswersView::of(vec![absent(), absent()], true);
        assert_eq!(nowhere.failed, 2);
    }
}
