//! A small MCP client for the commands such as `weir tools` and `weir call`: it speaks to any
//! server, modern first.
//!
//! Not the way weir reaches its upstreams; that is the upstream crate's. This one is for a person
//! at a terminal: one request at a time, no pool, no retries but of streams that a server lets
//! clients resume, and clear words when something does not work.

pub(crate) mod answer;
mod challenge_headers;
pub(crate) mod environment_proxy;
pub(crate) mod error;
pub(crate) mod lists;
mod no_mcp;
mod request_parts;
pub(crate) mod respondent;
mod resumed_stream;
pub(crate) mod transport;
pub(crate) mod unreachable;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method as HttpMethod, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_wire::{ErrorObject, Method, RequestId, Revision, error_code, scan, write};

use answer::InterimMessage;
pub(crate) use answer::{Answer, Note};
pub(crate) use error::ClientError;
pub(crate) use respondent::{DeclinedRequest, Respondent};
pub(crate) use transport::Token;
use transport::{Transport, TransportResponse};

/// The longest wait for an answer to `server/discover`: a server of the older revisions may not
/// answer it at all.
const DISCOVER: Duration = Duration::from_secs(6);
/// The longest wait for an answer to `initialize`, after that.
const INITIALIZE: Duration = Duration::from_secs(9);

/// The longest wait of [`Client::connect`] for answers.
pub const CONNECT_TIMEOUT: Duration =
    Duration::from_secs(DISCOVER.as_secs() + INITIALIZE.as_secs());

/// Rounds of questions in one request; a server that asks more often does not end.
const MAX_ROUNDS: usize = 100;
/// The wait before a request is sent again that waits for no answer.
const POLL: Duration = Duration::from_millis(500);

/// The era that a server speaks.
#[derive(Clone, Debug)]
enum ConnectedEra {
    Modern,
    Legacy {
        revision: Revision,
        session: Option<String>,
    },
}

/// A connection to a server, in the way it understands.
pub struct Client {
    transport: Transport,
    era: ConnectedEra,
    next_id: i64,
    about: Value,
    respondent: Option<Arc<dyn Respondent>>,
    /// Headers of the next calls that repeat arguments.
    repeated: HeaderMap,
}

impl Client {
    /// Connects: `server/discover` first; any answer that is not modern leads to `initialize`. The
    /// respondent answers the server's questions in the middle of requests.
    pub async fn connect(
        url: &str,
        token: Option<Token>,
        respondent: Option<Arc<dyn Respondent>>,
    ) -> Result<Self, ClientError> {
        Self::connect_to(Transport::new(url, token)?, respondent).await
    }

    async fn connect_to(
        transport: Transport,
        respondent: Option<Arc<dyn Respondent>>,
    ) -> Result<Self, ClientError> {
        let (era, repeated) = (ConnectedEra::Modern, HeaderMap::new());
        let mut client = Self {
            transport,
            era,
            next_id: 1,
            about: Value::Null,
            respondent,
            repeated,
        };
        let mut ignore = |_| {};
        let probe = client.request(Method::Discover, Value::Null, &mut ignore);
        match tokio::time::timeout(DISCOVER, probe).await {
            Ok(Ok(about)) if speaks_modern(&about) => client.about = about,
            Ok(Err(error @ (ClientError::Unreachable { .. } | ClientError::Unauthorized(_)))) => {
                return Err(error);
            }
            Ok(Err(error @ ClientError::Refused { code, .. })) if is_modern_refusal(code) => {
                return Err(error);
            }
            // Any other answer, or silence: a server that knows no `server/discover`.
            Ok(_) | Err(_) => match tokio::time::timeout(INITIALIZE, client.initialize()).await {
                Ok(initialized) => initialized?,
                Err(_) => {
                    let seconds = CONNECT_TIMEOUT.as_secs();
                    let why = format!(
                        "no answer within {seconds} s: check that this is the port of an MCP server, and that the server is not stuck"
                    );
                    return Err(client.not_mcp(why));
                }
            },
        }
        Ok(client)
    }

    async fn initialize(&mut self) -> Result<(), ClientError> {
        let newest = Revision::NEWEST_LEGACY;
        self.era = ConnectedEra::Legacy {
            revision: newest,
            session: None,
        };
        let params = json!({
            "protocolVersion": newest.as_str(), "capabilities": self.capabilities(),
            "clientInfo": { "name": request_parts::NAME, "version": env!("CARGO_PKG_VERSION") },
        });
        let (id, response) = self.send(Method::Initialize, params, None).await?;
        let session = response.header("mcp-session-id");
        let about = self.finish(Answer::new(response, id), &mut |_| {}).await?;
        let answered = about["protocolVersion"].as_str().and_then(Revision::parse);
        let Some(revision) = answered.filter(|revision| !revision.is_modern()) else {
            return Err(self.not_mcp(
                "it offers a protocol version that weir does not know: use a newer weir",
            ));
        };
        self.era = ConnectedEra::Legacy { revision, session };
        self.about = about;
        self.notify(Method::Initialized).await
    }

    fn capabilities(&self) -> Value {
        self.respondent
            .as_ref()
            .map_or_else(|| json!({}), |respondent| respondent.capabilities())
    }

    /// The server's own words about itself: name, version, instructions.
    pub fn about(&self) -> &Value {
        &self.about
    }

    /// The revision spoken.
    pub fn revision(&self) -> Revision {
        match &self.era {
            ConnectedEra::Modern => Revision::MODERN,
            ConnectedEra::Legacy { revision, .. } => *revision,
        }
    }

    /// Has the next calls repeat arguments as headers (`Mcp-Param-*`), as the definition of their
    /// tool asks for.
    pub fn repeat_as_headers(&mut self, tool: &Value, arguments: &RawValue) {
        self.repeated = request_parts::repeated(tool, arguments);
    }

    /// Calls a tool; `on_note` sees progress and log messages while it runs. Dropping the future
    /// cancels a modern call. The arguments are sent as they are written: a JSON tree would round
    /// long numbers.
    pub async fn call(
        &mut self,
        tool: &str,
        arguments: &RawValue,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        let params = json!({ "name": tool, "_meta": { "progressToken": 1 } });
        self.request_with_input(Method::ToolsCall, params, Some(arguments), on_note)
            .await
    }

    /// A prompt, filled in.
    pub async fn prompt(
        &mut self,
        name: &str,
        arguments: &RawValue,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        let params = json!({ "name": name });
        self.request_with_input(Method::PromptsGet, params, Some(arguments), on_note)
            .await
    }

    /// The contents of a resource.
    pub async fn read(
        &mut self,
        uri: &str,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        self.request_with_input(Method::ResourcesRead, json!({ "uri": uri }), None, on_note)
            .await
    }

    /// Waits for the server's notification that its tools changed. Opens a stream for it if
    /// `stream` is `None`.
    pub async fn changed(&mut self, stream: &mut Option<Answer>) -> Result<(), ClientError> {
        if stream.is_none() {
            *stream = Some(self.listen().await?);
        }
        while let Some(answer) = stream {
            match self.next_note(answer).await? {
                Some(Note::Changed) => return Ok(()),
                Some(_) => {}
                None => *stream = None,
            }
        }
        Err(self.not_mcp("the stream of changes ended"))
    }

    async fn listen(&mut self) -> Result<Answer, ClientError> {
        match &self.era {
            ConnectedEra::Modern => {
                let params = json!({ "notifications": { "toolsListChanged": true } });
                let (id, response) = self.send(Method::SubscriptionsListen, params, None).await?;
                Ok(Answer::new(response, id))
            }
            ConnectedEra::Legacy { .. } => {
                let response = self
                    .transport
                    .send(HttpMethod::GET, self.legacy_headers(), Bytes::new())
                    .await?;
                if response.status() == StatusCode::METHOD_NOT_ALLOWED {
                    return Err(self.not_mcp("it sends no notifications when its tools change"));
                }
                Ok(Answer::new(response, RequestId::from(0_u64)))
            }
        }
    }

    /// Ends a legacy session. A server that will not hear of it is left alone.
    pub async fn close(self) {
        if let ConnectedEra::Legacy {
            session: Some(_), ..
        } = &self.era
        {
            let goodbye =
                self.transport
                    .send(HttpMethod::DELETE, self.legacy_headers(), Bytes::new());
            let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
        }
    }

    async fn request(
        &mut self,
        method: Method,
        params: Value,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        self.request_with_arguments(method, params, None, on_note)
            .await
    }

    async fn request_with_arguments(
        &mut self,
        method: Method,
        params: Value,
        arguments: Option<&RawValue>,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        let (id, response) = self.send(method, params, arguments).await?;
        self.finish(Answer::new(response, id), on_note).await
    }

    /// Sends a request that may need input (2026-07-28), with the answers as often as the server
    /// asks. In the older revisions the server's questions come on the request's stream.
    async fn request_with_input(
        &mut self,
        method: Method,
        params: Value,
        arguments: Option<&RawValue>,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        let mut sent = params.clone();
        for _ in 0..MAX_ROUNDS {
            let mut result = self
                .request_with_arguments(method, sent, arguments, on_note)
                .await?;
            if result["resultType"] != "input_required" {
                return Ok(result);
            }
            let answers =
                respondent::answer_all(self.respondent(), &result["inputRequests"]).await?;
            if answers.is_empty() {
                tokio::time::sleep(POLL).await;
            }
            sent = params.clone();
            sent["inputResponses"] = Value::Object(answers);
            if let state @ Value::String(_) = result["requestState"].take() {
                sent["requestState"] = state;
            }
        }
        Err(ClientError::Unanswered(format!(
            "the server asked {MAX_ROUNDS} times and gave no result: ask its operator"
        )))
    }

    async fn send(
        &mut self,
        method: Method,
        params: Value,
        arguments: Option<&RawValue>,
    ) -> Result<(RequestId, TransportResponse), ClientError> {
        let id = RequestId::from(self.next_id);
        self.next_id += 1;
        let (headers, params) = match &self.era {
            ConnectedEra::Modern => {
                let (mut headers, params) =
                    request_parts::modern(method, params, &self.capabilities());
                if method == Method::ToolsCall {
                    headers.extend(self.repeated.clone());
                }
                (headers, params)
            }
            ConnectedEra::Legacy { .. } => (self.legacy_headers(), params),
        };
        let params = (!params.is_null()).then(|| with_arguments(&params, arguments));
        let body = write::request(&id, method.as_str(), params.as_deref().map(str::as_bytes));
        Ok((
            id,
            self.transport.send(HttpMethod::POST, headers, body).await?,
        ))
    }

    async fn notify(&mut self, method: Method) -> Result<(), ClientError> {
        let body = write::notification(method.as_str(), None);
        self.transport
            .send(HttpMethod::POST, self.legacy_headers(), body)
            .await
            .map(drop)
    }

    /// Reads an answer to its end, answers the requests in it, and returns its result.
    async fn finish(
        &self,
        mut answer: Answer,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        while let Some(note) = self.next_note(&mut answer).await? {
            on_note(note);
        }
        answer.into_result()
    }

    /// Returns the next notification of an answer, and answers the requests before it. `None`
    /// after the answer or the end of a stream that cannot be resumed.
    async fn next_note(&self, answer: &mut Answer) -> Result<Option<Note>, ClientError> {
        loop {
            let request = match answer.next().await? {
                Some(InterimMessage::Notification(note)) => return Ok(Some(note)),
                Some(InterimMessage::Request(request)) => request,
                None if self.resume(answer).await? => continue,
                None => return Ok(None),
            };
            let params = request
                .params
                .as_ref()
                .and_then(|params| serde_json::from_slice(params).ok())
                .unwrap_or_default();
            self.reply(&request.id, request.method.as_str(), &params)
                .await?;
        }
    }

    /// Answers a request that a legacy server makes of its client.
    async fn reply(&self, id: &RequestId, method: &str, params: &Value) -> Result<(), ClientError> {
        let body = match respondent::answer(self.respondent(), method, params).await {
            Ok(result) => write::response(id, result.to_string().as_bytes()),
            Err(DeclinedRequest { code, why }) => {
                write::error_response(Some(id), false, &ErrorObject::new(code, why))
            }
        };
        self.transport
            .send(HttpMethod::POST, self.legacy_headers(), body)
            .await
            .map(drop)
    }

    fn respondent(&self) -> Option<&dyn Respondent> {
        self.respondent.as_deref()
    }

    fn legacy_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let ConnectedEra::Legacy { revision, session } = &self.era {
            if let Some(session) = session.as_deref().and_then(|session| session.parse().ok()) {
                headers.insert("mcp-session-id", session);
            }
            if revision.has_version_header() && !self.about.is_null() {
                headers.insert(
                    "mcp-protocol-version",
                    http::HeaderValue::from_static(revision.as_str()),
                );
            }
        }
        headers
    }

    fn not_mcp(&self, why: impl Into<String>) -> ClientError {
        ClientError::NotMcp {
            url: self.transport.url().clone(),
            why: why.into(),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:?}, {:?})", self.transport, self.era)
    }
}

/// A `server/discover` result that has a version this client speaks.
fn speaks_modern(about: &Value) -> bool {
    let versions = about["supportedVersions"].as_array();
    versions.is_some_and(|versions| {
        versions
            .iter()
            .any(|version| version == Revision::MODERN.as_str())
    })
}

/// Codes that only a modern server uses.
fn is_modern_refusal(found: i64) -> bool {
    [
        error_code::HEADER_MISMATCH,
        error_code::MISSING_REQUIRED_CLIENT_CAPABILITY,
        error_code::UNSUPPORTED_PROTOCOL_VERSION,
    ]
    .contains(&found)
}

/// Writes the parameters of a request with its arguments unchanged.
fn with_arguments(params: &Value, arguments: Option<&RawValue>) -> String {
    let (Value::Object(members), Some(arguments)) = (params, arguments) else {
        return params.to_string();
    };
    let mut members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
        .collect();
    members.push(format!("\"arguments\":{}", arguments.get()));
    format!("{{{}}}", members.join(","))
}

/// Checks the JSON a person typed: an object, within the limits of a message. Returns its members,
/// each as it is written.
pub fn arguments(text: &str) -> Result<BTreeMap<String, Box<RawValue>>, String> {
    scan::check_unique(text.as_bytes(), &scan::JsonLimits::default())
        .map_err(|error| error.to_string())?;
    if !text.trim_start().starts_with('{') {
        return Err("arguments are an object, such as '{\"text\": \"hello\"}'".to_owned());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
