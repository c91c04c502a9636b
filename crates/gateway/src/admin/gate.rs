//! Who may look and change on the operators' listener, and what no page in a browser may do there.
//!
//! Every page, probes and metrics included, answers to addresses, `localhost` and the names of the
//! config alone: no page in a browser reads anything here because somebody's DNS gave its name this
//! address. Looking takes a token, as bearer or as the password of HTTP Basic, so that a browser
//! can show the page without a script. Changing takes it as bearer alone, which no browser sends by
//! itself. Where the listener is open (on loopback only), the checks of `Host`, `Origin` and
//! `Content-Type` keep foreign pages out all the same.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use sha2::{Digest as _, Sha256};
use weir_core::EndpointId;
use weir_core::port::{Action, Audit, Clock, Evidence, Secret, Verifier};
use weir_core::principal::Identity;
use weir_policy::Credentials;

use super::desk::Desk;
use super::refused::Refused;
use crate::config::AdminPlan;

/// Tokens of operators are for this path under weir's public URL.
const AUDIENCE: &str = "/admin";
/// Who it is where nobody is asked.
const LOCAL: &str = "local";
/// What a browser may do with what it gets: nothing but show it.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The address of an operator's connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who looks or changes.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) Arc<str>, Login);

/// How an operator is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    /// By a token.
    Token,
    /// By reaching a listener that asks for none.
    Unasked,
}

impl Operator {
    /// True where a token has shown who it is.
    pub(super) fn is_logged_in(&self) -> bool {
        self.1 == Login::Token
    }
}

/// What decides.
pub(crate) struct Gate {
    /// `None`: the listener was switched off since it began, and lets nobody in until it ends.
    plan: ArcSwap<Option<AdminPlan>>,
    credentials: Arc<Credentials>,
    clock: Arc<dyn Clock>,
    audit: Arc<dyn Audit>,
}

/// What a request shows.
enum Shown<'a> {
    Nothing,
    Bearer(&'a str),
    /// The password of HTTP Basic.
    Password(String),
}

/// Why a token lets nobody in.
enum NoOperator {
    /// It is none, or not for this listener.
    Unknown,
    /// It is somebody's, and without the scope.
    Lacks { who: Arc<str>, scope: Arc<str> },
}

impl Gate {
    pub(crate) fn new(
        plan: Option<AdminPlan>,
        credentials: Arc<Credentials>,
        (clock, audit): (&Arc<dyn Clock>, &Arc<dyn Audit>),
    ) -> Self {
        Self {
            plan: ArcSwap::new(Arc::new(plan)),
            credentials,
            clock: clock.clone(),
            audit: audit.clone(),
        }
    }

    /// Other operators from now on. The address stays.
    pub(crate) fn replace(&self, plan: Option<AdminPlan>) {
        self.plan.store(Arc::new(plan));
    }

    async fn admit(&self, head: &Parts) -> Result<Operator, Refused> {
        let plan = self.plan.load_full();
        let Some(plan) = &*plan else {
            return Err(off());
        };
        let changes = !matches!(head.method, Method::GET | Method::HEAD);
        if changes && !is_json(&head.headers) {
            let text = "changes are JSON: send `Content-Type: application/json`";
            return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        if !plan.is_guarded() {
            return Ok(Operator(LOCAL.into(), Login::Unasked));
        }
        let text = match shown(&head.headers) {
            Shown::Nothing => return Err(unknown("an operator's token is needed", changes)),
            Shown::Password(_) if changes => {
                return Err(unknown("changes take the token as `Bearer`", changes));
            }
            Shown::Bearer(text) => text.to_owned(),
            Shown::Password(text) => text,
        };
        let peer = head
            .extensions
            .get::<Peer>()
            .map(|peer| peer.0.to_string())
            .unwrap_or_default();
        let refused = |who: &str, detail: String| {
            self.audit.operated(&Action {
                who,
                what: "login",
                detail: &detail,
                done: false,
            });
        };
        self.operator(plan, &text).await.map_err(|why| match why {
            NoOperator::Unknown => {
                refused("unknown", format!("from {peer}: not an operator's token"));
                unknown("this is not an operator's token", changes)
            }
            NoOperator::Lacks { who, scope } => {
                refused(
                    &who,
                    format!("from {peer}: its token lacks the scope {scope}"),
                );
                lacks(&scope)
            }
        })
    }

    /// Whose token it is.
    async fn operator(&self, plan: &AdminPlan, text: &str) -> Result<Operator, NoOperator> {
        // Digests are compared, so the time that takes tells nothing of a token.
        let digest: [u8; 32] = Sha256::digest(text).into();
        let now = self.clock.wall();
        let own = plan.keys.iter().find(|key| key.digest == digest);
        if let Some(key) = own {
            let lasts = key.expires.is_none_or(|expires| now < expires);
            return if lasts {
                Ok(Operator(key.name.clone(), Login::Token))
            } else {
                Err(NoOperator::Unknown)
            };
        }
        let Some(scope) = &plan.scope else {
            return Err(NoOperator::Unknown);
        };
        let endpoint = EndpointId::new(AUDIENCE);
        let unknown = IpAddr::from([0, 0, 0, 0]);
        let evidence = Evidence {
            bearer: Some(Secret::new(text)),
            ..Evidence::none(unknown, &endpoint)
        };
        match self.credentials.verify(&evidence).await {
            Ok(Identity::Subject(subject)) if subject.by_token => {
                let who = Arc::from(subject.subject());
                if subject.scopes.contains(scope) {
                    Ok(Operator(who, Login::Token))
                } else {
                    Err(NoOperator::Lacks {
                        who,
                        scope: scope.clone(),
                    })
                }
            }
            _ => Err(NoOperator::Unknown),
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

fn off() -> Refused {
    Refused::new(
        StatusCode::FORBIDDEN,
        "the config switches this listener off",
    )
}

fn unknown(text: &str, changes: bool) -> Refused {
    // A browser asks its user for the first one that it knows.
    let challenge = if changes {
        "Bearer realm=\"weir\""
    } else {
        "Basic realm=\"weir\", charset=\"UTF-8\""
    };
    Refused::new(StatusCode::UNAUTHORIZED, text).challenging(HeaderValue::from_static(challenge))
}

/// A token that is good, and not for this (RFC 6750, 3.1).
fn lacks(scope: &str) -> Refused {
    let text = format!("your token lacks the scope `{scope}`");
    let challenge =
        format!("Bearer realm=\"weir\", error=\"insufficient_scope\", scope=\"{scope}\"");
    let refused = Refused::new(StatusCode::FORBIDDEN, text);
    // A scope of the config that no header can hold is in no token either.
    match HeaderValue::try_from(challenge) {
        Ok(challenge) => refused.challenging(challenge),
        Err(_) => refused,
    }
}

/// Refuses every request that names another host than this listener's, probes and scrapes included:
/// a page that somebody's DNS leads here reads nothing.
pub(super) async fn named(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let plan = desk.gate.plan.load_full();
    let hosts = plan
        .as_ref()
        .as_ref()
        .map(|plan| plan.hosts.as_slice())
        .unwrap_or_default();
    if is_own(request.uri(), request.headers(), hosts) {
        return next.run(request).await;
    }
    let text = "this is for operators, by address, `localhost` or one of `admin.allowed_hosts`, and not for pages of others";
    refuse(
        has_unread_body(&request),
        Refused::new(StatusCode::FORBIDDEN, text),
    )
}

/// Lets operators through, and tells what is behind who it is.
pub(super) async fn guard(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let is_last = has_unread_body(&request);
    let (head, body) = request.into_parts();
    let changes = !matches!(head.method, Method::GET | Method::HEAD);
    match desk.gate.admit(&head).await {
        Ok(_) if changes && desk.is_leaving() => {
            let text = "another process takes this one's place and would not know of it: try again in a moment";
            refuse(is_last, Refused::new(StatusCode::SERVICE_UNAVAILABLE, text))
        }
        Ok(operator) => {
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Err(refused) => refuse(is_last, refused),
    }
}

/// Whether a refusal leaves a body unread on the connection.
fn has_unread_body(request: &Request) -> bool {
    request.version() <= Version::HTTP_11 && !request.body().is_end_stream()
}

/// A refusal. A body that nobody reads ends the connection: the client has to know, and not send
/// the next request on it.
fn refuse(is_last: bool, refused: Refused) -> Response {
    let mut response = refused.into_response();
    if is_last {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Lets through who scrapes metrics: everybody, unless the config wants a token.
pub(super) async fn scraped(
    State(desk): State<Arc<Desk>>,
    request: Request,
    next: Next,
) -> Response {
    let plan = desk.gate.plan.load_full();
    let Some(plan) = &*plan else {
        return off().into_response();
    };
    if plan.open_metrics {
        return next.run(request).await;
    }
    guard(State(desk), request, next).await
}

/// What every answer of this listener says to browsers, and to caches.
pub(super) async fn sealed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        );
    }
    response
}

/// Not a page in an operator's browser: no origin, and no name that somebody's DNS could give this
/// address. A URL in the request line counts like `Host`.
fn is_own(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> bool {
    let mut given = headers.get_all(header::HOST).iter();
    let host = given.next().filter(|_| given.next().is_none());
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let own = |authority: &Authority| {
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        let whole = authority.as_str().to_ascii_lowercase();
        host.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok()
            || hosts
                .iter()
                .any(|known| *known == whole || known.eq_ignore_ascii_case(host))
    };
    host.is_some_and(|host| own(&host))
        && uri.authority().is_none_or(own)
        && !headers.contains_key(header::ORIGIN)
}

/// A form of another page cannot send it, and a script of one may not without being allowed to,
/// which nothing here does.
fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = essence
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

fn shown(headers: &HeaderMap) -> Shown<'_> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let text = given
        .next()
        .filter(|_| given.next().is_none())
        .and_then(|value| value.to_str().ok());
    let Some((scheme, rest)) = text.and_then(|text| text.split_once(' ')) else {
        return Shown::Nothing;
    };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("Bearer") {
        return Shown::Bearer(rest);
    }
    let decoded = scheme
        .eq_ignore_ascii_case("Basic")
        .then(|| BASE64.decode(rest.as_bytes()).ok())
        .flatten();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|pair| pair.split_once(':')) {
        Some((_, password)) => Shown::Password(password.to_owned()),
        None => Shown::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a17_pages_of_others_are_told_nothing() {
        let hosts = ["ops.example.com".to_owned(), "weir:9000".to_owned()];
        for (host, origin, fits) in [
            (Some("127.0.0.1:8081"), None, true),
            (Some("[::1]:8081"), None, true),
            (Some("localhost:8081"), None, true),
            (Some("10.0.0.7"), None, true),
            (Some("ops.example.com:8081"), None, true),
            (Some("OPS.example.com"), None, true),
            (Some("weir:9000"), None, true),
            (Some("weir:9001"), None, false),
            (Some("rebound.example:8081"), None, false),
            (Some("localhost.example"), None, false),
            (Some("127.0.0.1:8081"), Some("http://evil.example"), false),
            (Some("not a host"), None, false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (header::HOST, HeaderValue::from_static(host))));
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            assert_eq!(
                is_own(&Uri::from_static("/"), &headers, &hosts),
                fits,
                "{host:?} {origin:?}"
            );
            let elsewhere = Uri::from_static("http://rebound.example/metrics");
            assert!(!is_own(&elsewhere, &headers, &hosts), "{host:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(header::HOST, HeaderValue::from_static("127.0.0.1"));
        twice.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(!is_own(&Uri::from_static("/"), &twice, &hosts));
    }

    #[test]
    fn g14_only_what_no_form_can_send_is_a_change() {
        let of = |value: &'static str| {
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))])
        };
        assert!(
            is_json(&of("application/json")) && is_json(&of("Application/JSON; charset=utf-8"))
        );
        for simple in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; application/json",
            "",
        ] {
            assert!(!is_json(&of(simple)), "{simple}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
