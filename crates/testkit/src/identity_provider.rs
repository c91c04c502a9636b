//! A small identity provider on loopback: metadata, keys, introspection, and tokens for any
//! subject. It misbehaves on demand, and counts requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::accept::answer_all;
use crate::closed_port::ClosedPort;
use crate::owned_task::OwnedTask;
use crate::token_signer::TokenSigner;

/// The largest request it reads, in bytes.
const MAX_BODY: usize = 1 << 20;

/// A running provider. Dropping it, or [`IdentityProvider::stop`], closes every connection.
#[derive(Debug)]
pub struct IdentityProvider {
    state: Arc<Mutex<IdpState>>,
    server: Option<OwnedTask>,
    /// Keeps the port also while the provider is stopped.
    port: ClosedPort,
}

/// The answer of the provider in place of its keys.
#[derive(Clone, Debug)]
pub enum IdpMisbehaviour {
    /// This status, without a body.
    Status(u16),
    /// This text, as if it were a key set.
    Body(String),
    /// A redirect to this URL.
    Redirect(String),
    /// No answer, ever.
    Stall,
}

#[derive(Debug)]
struct IdpState {
    signer: Arc<TokenSigner>,
    /// The introspection responses, by the token's text.
    opaque: Vec<(String, Value)>,
    misbehaviour: Option<IdpMisbehaviour>,
    asked: Vec<String>,
}

impl IdentityProvider {
    /// Starts with one ES256 key, `key-1`.
    pub async fn start() -> Self {
        let state = IdpState {
            signer: Arc::new(TokenSigner::es256("key-1")),
            opaque: Vec::new(),
            misbehaviour: None,
            asked: Vec::new(),
        };
        let mut idp = Self {
            state: Arc::new(Mutex::new(state)),
            server: None,
            port: ClosedPort::new(),
        };
        idp.restart().await;
        idp
    }

    /// Its name as an issuer.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// The URL of its keys.
    pub fn keys_url(&self) -> String {
        format!("{}/keys", self.issuer())
    }

    /// The URL of token introspection; the client is `weir`, its secret
    /// `introspection-secret-0123456789`.
    pub fn introspection_url(&self) -> String {
        format!("{}/introspect", self.issuer())
    }

    /// Closes the listener and every connection.
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Serves again, at the same address.
    pub async fn restart(&mut self) {
        self.stop();
        let (state, address) = (Arc::clone(&self.state), self.port.address());
        let listener = self.port.listen().await;
        self.server = Some(OwnedTask::spawn(answer_all(listener, move |request| {
            let state = Arc::clone(&state);
            async move { answer(&state, address, request).await }
        })));
    }

    /// Signs with another key from now on; the old key leaves the set.
    pub fn rotate_key(&self, signer: TokenSigner) {
        self.state.lock().signer = Arc::new(signer);
    }

    /// The key it signs with.
    pub fn signer(&self) -> Arc<TokenSigner> {
        Arc::clone(&self.state.lock().signer)
    }

    /// Changes the answer to key requests; `None` restores it.
    pub fn set_misbehaviour(&self, how: Option<IdpMisbehaviour>) {
        self.state.lock().misbehaviour = how;
    }

    /// Sets the introspection response for this token.
    pub fn set_introspection(&self, token: &str, answer: Value) {
        self.state.lock().opaque.push((token.to_owned(), answer));
    }

    /// Counts the requests of this path.
    pub fn request_count(&self, path: &str) -> usize {
        self.state
            .lock()
            .asked
            .iter()
            .filter(|asked| *asked == path)
            .count()
    }

    /// Returns valid claims of `subject` for `audience`, for five minutes; a test may change them.
    pub fn claims(&self, subject: &str, audience: &str) -> Value {
        let now = now();
        json!({
            "iss": self.issuer(), "sub": subject, "aud": audience, "iat": now, "exp": now + 300,
            "client_id": "test-client", "scope": "read",
        })
    }

    /// Returns a valid token of `subject` for `audience`.
    pub fn token(&self, subject: &str, audience: &str) -> String {
        self.signer().token(&self.claims(subject, audience))
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

async fn answer(
    state: &Mutex<IdpState>,
    address: SocketAddr,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    state.lock().asked.push(path.clone());
    let base = format!("http://{address}");
    match path.as_str() {
        "/.well-known/openid-configuration" => json_answer(&json!({
            "issuer": base, "jwks_uri": format!("{base}/keys"), "introspection_endpoint": format!("{base}/introspect"),
        })),
        "/keys" => keys(state).await,
        "/introspect" => introspect(state, request).await,
        _ => status(StatusCode::NOT_FOUND),
    }
}

async fn keys(state: &Mutex<IdpState>) -> Response<Full<Bytes>> {
    let misbehaviour = state.lock().misbehaviour.clone();
    match misbehaviour {
        None => json_answer(&json!({ "keys": [state.lock().signer.jwk()] })),
        Some(IdpMisbehaviour::Status(code)) => {
            status(StatusCode::from_u16(code).expect("a test has a real status"))
        }
        Some(IdpMisbehaviour::Body(text)) => Response::new(Full::from(text)),
        Some(IdpMisbehaviour::Redirect(url)) => {
            let mut answer = status(StatusCode::FOUND);
            answer.headers_mut().insert(
                header::LOCATION,
                url.parse().expect("a test has a real URL"),
            );
            answer
        }
        Some(IdpMisbehaviour::Stall) => std::future::pending().await,
    }
}

/// Answers token introspection (RFC 7662), for the client `weir` only.
async fn introspect(state: &Mutex<IdpState>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let known = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let expected = data_encoding::BASE64.encode(b"weir:introspection-secret-0123456789");
    if known != Some(&format!("Basic {expected}")) {
        return status(StatusCode::UNAUTHORIZED);
    }
    let Ok(body) = Limited::new(request.into_body(), MAX_BODY).collect().await else {
        return status(StatusCode::BAD_REQUEST);
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let token = body
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))
        .unwrap_or_default();
    let state = state.lock();
    let known = state.opaque.iter().find(|(text, _)| text == token);
    json_answer(&known.map_or_else(|| json!({ "active": false }), |(_, answer)| answer.clone()))
}

fn json_answer(document: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(document.to_string()));
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    answer
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = code;
    answer
}
