//! Authentication of operators.
//!
//! Reading takes a token, as bearer or as the password of HTTP Basic, so that a browser can show
//! the page without a script. Changing takes it as bearer alone, because no browser sends that by
//! itself. On an open listener (loopback only) the check of `Content-Type`, and those of
//! `request_guard.rs`, keep foreign pages out too.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use data_encoding::BASE64;
use sha2::{Digest as _, Sha256};
use weir_config::AdminPlan;
use weir_core::failure::AuthenticationDenial;
use weir_core::port::{AuditLog, BorrowedSecret, Clock, Evidence, OperatorAction, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::{EndpointId, FailureKind};
use weir_policy::CredentialVerifier;
use weir_wire::header::ReceivedHeader;

use crate::admin_error::AdminError;
use crate::route_table::ROUTES;

/// The path under weir's public URL that is the audience of operators' tokens.
const AUDIENCE: &str = "/admin";
/// The seconds after which a token that cannot be checked now may be tried again.
const RETRY_AFTER: u16 = 5;
/// The operator's name on a listener without authentication.
const LOCAL: &str = "local";

/// The address of an operator's client.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorAddress(pub(super) IpAddr);

/// The mark of a request that another replica forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardedOperator;

/// The end of the audit detail of an action that another replica was asked for.
pub(super) const THROUGH_REPLICA: &str = "; through another replica";

/// An authenticated operator.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub Arc<str>, OperatorLogin, Option<ForwardedOperator>);

/// The operator's means of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorLogin {
    /// A token.
    Token,
    /// No authentication, on an open listener.
    Open,
}

impl Operator {
    /// Reports if the operator showed a token.
    pub(super) fn is_logged_in(&self) -> bool {
        self.1 == OperatorLogin::Token
    }

    /// Reports if the operator asked another replica.
    pub(super) fn is_forwarded(&self) -> bool {
        self.2.is_some()
    }
}

/// The authenticator of the operators' listener.
#[derive(Debug)]
pub struct OperatorAuth {
    /// `None` after the config switched the listener off: every request is refused until the
    /// listener ends.
    plan: ArcSwap<Option<AdminPlan>>,
    credentials: Arc<CredentialVerifier>,
    clock: Arc<dyn Clock>,
    audit: Arc<dyn AuditLog>,
}

/// The credential in a request.
enum OperatorCredential<'a> {
    Missing,
    Bearer(&'a str),
    /// The password of HTTP Basic.
    Password(String),
}

/// The reason why a token is no operator's.
enum OperatorAuthError {
    /// It is not valid, or not for this listener.
    Unknown,
    /// It has expired; its owner if that is known.
    Expired(Option<Arc<str>>),
    /// It cannot be checked now.
    Unavailable,
    /// It is valid, and lacks the scope.
    Lacks { who: Arc<str>, scope: Arc<str> },
}

impl OperatorAuth {
    /// Returns the check of operators by this plan; `None` refuses all of them.
    pub fn new(
        plan: Option<AdminPlan>,
        credentials: Arc<CredentialVerifier>,
        clock: Arc<dyn Clock>,
        audit: Arc<dyn AuditLog>,
    ) -> Self {
        Self {
            plan: ArcSwap::new(Arc::new(plan)),
            credentials,
            clock,
            audit,
        }
    }

    /// Returns the settings in force; `None` after the config switched the listener off.
    pub(crate) fn plan(&self) -> Arc<Option<AdminPlan>> {
        self.plan.load_full()
    }

    /// Replaces the operators from now on. The address stays.
    pub fn replace(&self, plan: Option<AdminPlan>) {
        self.plan.store(Arc::new(plan));
    }

    /// Authenticates the operator of a request.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn admit(&self, head: &Parts) -> Result<Operator, AdminError> {
        let plan = self.plan.load_full();
        let Some(plan) = &*plan else {
            return Err(off());
        };
        let changes = !matches!(head.method, Method::GET | Method::HEAD);
        // A path without this method answers 405, which names those that it has.
        if changes && has_method(head) && !is_json(&head.headers) {
            let text = "changes are JSON: send `Content-Type: application/json`";
            return Err(AdminError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        if !plan.is_guarded() {
            let forwarded = head.extensions.get().copied();
            return Ok(Operator(LOCAL.into(), OperatorLogin::Open, forwarded));
        }
        let text = match credential_of(&head.headers) {
            OperatorCredential::Missing => {
                return Err(unknown("an operator's token is required", changes));
            }
            OperatorCredential::Password(_) if changes => {
                return Err(unknown("changes need the token as `Bearer`", changes));
            }
            OperatorCredential::Bearer(text) => text.to_owned(),
            OperatorCredential::Password(text) => text,
        };
        let peer = head
            .extensions
            .get::<OperatorAddress>()
            .map(|peer| peer.0.to_string())
            .unwrap_or_default();
        let refused = |who: &str, detail: String| {
            self.audit.record_operator_action(&OperatorAction {
                actor: who,
                action: "login",
                detail: &detail,
                took_effect: false,
            });
        };
        let admitted = self.operator(plan, &text).await;
        let forwarded = head.extensions.get().copied();
        let admitted = admitted.map(|who| Operator(who, OperatorLogin::Token, forwarded));
        admitted.map_err(|why| match why {
            OperatorAuthError::Unknown => {
                refused("unknown", format!("from {peer}: not an operator's token"));
                unknown("this is not an operator's token", changes)
            }
            OperatorAuthError::Expired(who) => {
                let who = who.as_deref().unwrap_or("unknown");
                refused(who, format!("from {peer}: an expired token"));
                unknown("this token has expired", changes)
            }
            OperatorAuthError::Unavailable => {
                refused(
                    "unknown",
                    format!("from {peer}: the token cannot be checked now"),
                );
                let text = "the token cannot be checked now: try again in a few seconds";
                AdminError::new(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER)
            }
            OperatorAuthError::Lacks { who, scope } => {
                refused(
                    &who,
                    format!("from {peer}: its token lacks the scope {scope}"),
                );
                lacks(&scope)
            }
        })
    }

    /// Returns the name of the token's operator.
    async fn operator(&self, plan: &AdminPlan, text: &str) -> Result<Arc<str>, OperatorAuthError> {
        // Digests are compared, so the time of the comparison reveals no part of a token.
        let digest: [u8; 32] = Sha256::digest(text).into();
        let now = self.clock.wall();
        let own = plan.keys.iter().find(|key| key.digest == digest);
        if let Some(key) = own {
            let lasts = key.expires.is_none_or(|expires| now < expires);
            return if lasts {
                Ok(key.name.clone())
            } else {
                Err(OperatorAuthError::Expired(Some(key.name.clone())))
            };
        }
        let Some(scope) = &plan.scope else {
            return Err(OperatorAuthError::Unknown);
        };
        let endpoint = EndpointId::new(AUDIENCE);
        let unknown = IpAddr::from([0, 0, 0, 0]);
        let evidence = Evidence {
            bearer: Some(BorrowedSecret::new(text)),
            ..Evidence::none(unknown, &endpoint)
        };
        match self.credentials.verify(&evidence).await {
            Ok(VerifiedIdentity::Subject(subject)) if subject.is_by_token => {
                let who = Arc::from(subject.subject());
                if subject.scopes.contains(scope) {
                    Ok(who)
                } else {
                    Err(OperatorAuthError::Lacks {
                        who,
                        scope: scope.clone(),
                    })
                }
            }
            Err(failure) if !matches!(failure.kind(), FailureKind::Unauthenticated(_)) => {
                Err(OperatorAuthError::Unavailable)
            }
            Err(failure) if is_expired(failure.kind()) => Err(OperatorAuthError::Expired(None)),
            Ok(_) | Err(_) => Err(OperatorAuthError::Unknown),
        }
    }
}

/// Reports if credentials were refused because they have expired.
fn is_expired(kind: &FailureKind) -> bool {
    let expired = AuthenticationDenial::Invalid("expired");
    matches!(kind, FailureKind::Unauthenticated(denial) if *denial == expired)
}

/// Returns the refusal after the config switched the listener off.
pub(super) fn off() -> AdminError {
    AdminError::new(
        StatusCode::FORBIDDEN,
        "the config switches this listener off",
    )
}

fn unknown(text: &str, changes: bool) -> AdminError {
    // A browser prompts for the first scheme that it knows.
    let challenge = if changes {
        "Bearer realm=\"weir\""
    } else {
        "Basic realm=\"weir\", charset=\"UTF-8\""
    };
    AdminError::new(StatusCode::UNAUTHORIZED, text).challenging(HeaderValue::from_static(challenge))
}

/// The refusal of a valid token without the scope (RFC 6750, 3.1).
fn lacks(scope: &str) -> AdminError {
    let text = format!("your token lacks the scope `{scope}`");
    let challenge =
        format!("Bearer realm=\"weir\", error=\"insufficient_scope\", scope=\"{scope}\"");
    let refused = AdminError::new(StatusCode::FORBIDDEN, text);
    // A scope of the config that no header can hold is in no token either.
    match HeaderValue::try_from(challenge) {
        Ok(challenge) => refused.challenging(challenge),
        Err(_) => refused,
    }
}

/// Reports if the path of a request has its method. A path that is not listed has every method, so
/// that its requests are checked.
fn has_method(head: &Parts) -> bool {
    let is_path = |pattern: &str| {
        let (mut wanted, mut given) = (pattern.split('/'), head.uri.path().split('/'));
        wanted.by_ref().all(|part| {
            let given = given.next();
            part.starts_with('{') && given.is_some() || given == Some(part)
        }) && given.next().is_none()
    };
    let mut methods = ROUTES
        .iter()
        .filter_map(|(path, method)| is_path(path).then_some(method))
        .peekable();
    methods.peek().is_none()
        || methods.any(|method| head.method.as_str().eq_ignore_ascii_case(method))
}

/// Reports if the content type is JSON. A form of a foreign page cannot send it, and a script would
/// need CORS permission, never given here.
fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = essence
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

fn credential_of(headers: &HeaderMap) -> OperatorCredential<'_> {
    let given = ReceivedHeader::of(headers.get_all(header::AUTHORIZATION));
    let text = given.once().and_then(|value| value.to_str().ok());
    let Some((scheme, rest)) = text.and_then(|text| text.split_once(' ')) else {
        return OperatorCredential::Missing;
    };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("Bearer") {
        return OperatorCredential::Bearer(rest);
    }
    let decoded = scheme
        .eq_ignore_ascii_case("Basic")
        .then(|| BASE64.decode(rest.as_bytes()).ok())
        .flatten();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|pair| pair.split_once(':')) {
        Some((_, password)) => OperatorCredential::Password(password.to_owned()),
        None => OperatorCredential::Missing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::HashMap;
    use std::time::{Duration, SystemTime};

    use axum::response::IntoResponse as _;
    use data_encoding::BASE64URL_NOPAD;
    use parking_lot::Mutex;
    use weir_core::Failure;
    use weir_core::port::{
        BoxFuture, CallAttempt, DocumentFetcher, EndedCall, FetchRequest, FetchResponse,
        GateDecision, Random, SenderEntrance,
    };
    use weir_policy::VerifierPorts;
    use weir_policy::settings::{
        KeySource, SignatureAlgorithm, TokenIssuer, TokenValidation, VerifierSettings,
    };

    use super::*;

    /// Ports without an issuer to reach. They keep the details of operators' actions.
    #[derive(Debug, Default)]
    struct UnreachableIssuer(Mutex<Vec<String>>);

    impl Clock for UnreachableIssuer {
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    impl Random for UnreachableIssuer {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(0);
        }
    }

    impl DocumentFetcher for UnreachableIssuer {
        fn fetch<'a>(
            &'a self,
            _: FetchRequest<'a>,
        ) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
            let failure = Failure::new(FailureKind::Unavailable, "not reachable");
            Box::pin(std::future::ready(Err(failure)))
        }
    }

    impl AuditLog for UnreachableIssuer {
        fn record_entrance(&self, _: &SenderEntrance<'_>) {}
        fn record_decision(&self, _: &CallAttempt<'_>, _: GateDecision<'_>) -> Result<(), Failure> {
            Ok(())
        }
        fn record_end(&self, _: &CallAttempt<'_>, _: &EndedCall) {}
        fn record_operator_action(&self, action: &OperatorAction<'_>) {
            assert!(!action.took_effect);
            let detail = format!("{} {}", action.action, action.detail);
            self.0.lock().push(detail);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn token_that_cannot_be_checked_now_is_answered_with_503() {
        let ports = Arc::new(UnreachableIssuer::default());
        let issuer = "https://id.example.com";
        let settings = VerifierSettings {
            required: true,
            base: "https://mcp.example.com".to_owned(),
            issuers: vec![TokenIssuer {
                name: issuer.into(),
                validation: TokenValidation::Keys {
                    source: KeySource::Metadata,
                    algorithms: SignatureAlgorithm::DEFAULT.to_vec(),
                    strict_type: false,
                    max_lifetime: Duration::from_secs(3600),
                },
                audiences: Vec::new(),
                groups: Vec::new(),
                claims: Vec::new(),
            }],
            implied: HashMap::new(),
            ..VerifierSettings::open()
        };
        let verifier_ports = VerifierPorts {
            fetch: ports.clone(),
            clock: ports.clone(),
            random: ports.clone(),
        };
        let plan = AdminPlan {
            scope: Some("operate".into()),
            ..AdminPlan::open(([127, 0, 0, 1], 0).into())
        };
        let credentials = CredentialVerifier::new(settings, verifier_ports);
        let auth = OperatorAuth::new(Some(plan), credentials, ports.clone(), ports.clone());
        let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let signed = |issuer: &str| {
            let claims = format!(r#"{{"iss":"{issuer}"}}"#);
            let header = r#"{"alg":"ES256","kid":"key-1"}"#;
            format!("{}.{}.{}", part(header), part(&claims), part("signature"))
        };
        let answer = async |token: String| {
            let request = axum::http::Request::get("/admin/upstreams")
                .header(header::AUTHORIZATION, format!("Bearer {token}"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            auth.admit(&head).await.unwrap_err().into_response()
        };
        let unchecked = answer(signed(issuer)).await;
        assert_eq!(unchecked.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(unchecked.headers()[header::RETRY_AFTER], "5");
        let foreign = answer(signed("https://other.example.com")).await;
        assert_eq!(foreign.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(
            *ports.0.lock(),
            [
                "login from : the token cannot be checked now",
                "login from : not an operator's token",
            ]
        );
    }

    #[test]
    fn methods_of_paths_are_those_of_the_routes() {
        for (method, path, expected) in [
            ("POST", "/admin/log", true),
            ("POST", "/admin/log/", true),
            ("POST", "/admin/upstreams/a/disable", true),
            ("POST", "/admin/upstreams/a%2Fb/disable?x=/y", true),
            ("POST", "/admin/upstreams/a", false),
            ("POST", "/admin/upstreams", false),
            ("PUT", "/admin/log", false),
            ("GET", "/", true),
        ] {
            let request = axum::http::Request::builder().method(method).uri(path);
            let (head, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(has_method(&head), expected, "{method} {path}");
        }
    }

    // Proves G14.
    #[test]
    fn changes_need_a_json_content_type() {
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
