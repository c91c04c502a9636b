//! A client of one revision that checks every message it sees against the official schema of its
//! revision, and every answer against the guarantees that weir gives for all answers.

use std::sync::OnceLock;

use serde_json::{Value, json};
use weir_testkit::{
    ClientAnswer, HttpExchange, MessageSender, ModernEnvelope, ProtocolSchemas, RawClient,
    emitted_messages,
};
use weir_wire::method::Method;
use weir_wire::{LogLevel, Revision, meta};

use super::TEST_TIMEOUT;

/// A client of one revision. Clones are the same client.
#[derive(Clone, Debug)]
pub struct CheckedClient {
    raw: RawClient,
    pub revision: Revision,
    modern: ModernEnvelope,
}

impl CheckedClient {
    /// Opens a client without capabilities, with a session if its revision has one.
    pub async fn open(url: &str, revision: Revision) -> Self {
        Self::with_capabilities(url, revision, json!({})).await
    }

    /// Opens a client with these capabilities.
    pub async fn with_capabilities(url: &str, revision: Revision, capabilities: Value) -> Self {
        Self::opened(
            RawClient::new(url).with_canary_credentials(),
            revision,
            capabilities,
        )
        .await
    }

    /// Opens a client without capabilities that sends this header from its first request on, such
    /// as its credentials.
    pub async fn open_with_header(url: &str, revision: Revision, header: (&str, &str)) -> Self {
        Self::with_capabilities_and_header(url, revision, json!({}), header).await
    }

    /// Opens a client with these capabilities that sends this header from its first request on.
    pub async fn with_capabilities_and_header(
        url: &str,
        revision: Revision,
        capabilities: Value,
        header: (&str, &str),
    ) -> Self {
        Self::opened(
            RawClient::new(url).with_header(header.0, header.1),
            revision,
            capabilities,
        )
        .await
    }

    async fn opened(bare: RawClient, revision: Revision, capabilities: Value) -> Self {
        let modern = ModernEnvelope {
            capabilities: capabilities.clone(),
            ..ModernEnvelope::default()
        };
        if revision.is_modern() {
            return Self {
                raw: bare.modern_with(modern.clone()),
                revision,
                modern,
            };
        }
        let opening = bare.legacy(revision).initialize_with(capabilities);
        let (raw, answer) = within_test_timeout("initialize", opening).await.unwrap();
        for message in &answer.messages {
            check_message(revision, "initialize", message);
        }
        assert_eq!(
            answer.result()["protocolVersion"],
            revision.as_str(),
            "R059"
        );
        assert!(raw.session().is_some(), "a session id with initialize");
        Self {
            raw,
            revision,
            modern,
        }
    }

    /// Returns the same client, which wants log messages from `level` up.
    pub async fn with_log_level(mut self, level: LogLevel) -> Self {
        if self.revision.is_modern() {
            self.modern.log_level = Some(level.as_str().to_owned());
            self.raw = self.raw.modern_with(self.modern.clone());
        } else {
            let set = self
                .ask("logging/setLevel", json!({ "level": level.as_str() }))
                .await;
            assert_eq!(set.result(), &json!({}));
        }
        self
    }

    /// Returns the same client with one more header on every request.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.raw = self.raw.with_header(name, value);
        self
    }

    /// Returns the same client at another URL, such as that of another replica.
    pub fn at_url(&self, url: &str) -> Self {
        Self {
            raw: self.raw.clone().with_url(url),
            ..self.clone()
        }
    }

    /// Returns the raw client beneath, for requests that no correct client makes.
    pub fn raw(&self) -> &RawClient {
        &self.raw
    }

    /// Makes a request and reads its whole answer.
    pub async fn ask(&self, method: &str, params: Value) -> ClientAnswer {
        let answer = within_test_timeout(method, self.raw.ask(method, params)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
        let name = answer.header("x-request-id").unwrap_or_default();
        assert!(
            !name.is_empty(),
            "an answer names its request: {:?}",
            answer.headers
        );
        self.check_answer(method, &answer);
        answer
    }

    /// Runs `tools/call` to its end.
    pub async fn call(&self, tool: &str, arguments: Value) -> ClientAnswer {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    /// Runs `tools/call` with a progress token to its end.
    pub async fn call_with_token(
        &self,
        tool: &str,
        arguments: Value,
        token: &Value,
    ) -> ClientAnswer {
        let meta = json!({ "progressToken": token });
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments, "_meta": meta }),
        )
        .await
    }

    /// Begins a `tools/call`, with a progress token if one is given; returns the stream of its
    /// messages.
    pub async fn start_call(
        &self,
        tool: &str,
        arguments: Value,
        token: Option<&Value>,
    ) -> CheckedStream {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if let Some(token) = token {
            params["_meta"] = json!({ "progressToken": token });
        }
        self.start("tools/call", params).await
    }

    /// Begins a request.
    pub async fn start(&self, method: &str, params: Value) -> CheckedStream {
        let (headers, message) = self.raw.envelope(method, params);
        let sent = self
            .raw
            .send(http::Method::POST, headers, message.to_string());
        let exchange = within_test_timeout(method, sent)
            .await
            .unwrap_or_else(|error| panic!("{method}: {error}"));
        CheckedStream {
            exchange,
            revision: self.revision,
            answered: method.to_owned(),
            id: message["id"].clone(),
        }
    }

    /// Returns all tools, page by page, and the number of pages.
    pub async fn list_tool_pages(&self) -> (Vec<Value>, usize) {
        let (mut tools, mut pages, mut params) = (Vec::new(), 0, json!({}));
        loop {
            let answer = self.ask("tools/list", params).await;
            let result = answer.result();
            tools.extend(result["tools"].as_array().unwrap().iter().cloned());
            pages += 1;
            assert!(pages <= 20_000, "the list does not end");
            match result.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return (tools, pages),
            }
        }
    }

    /// Returns the names of all tools.
    pub async fn list_tool_names(&self) -> Vec<String> {
        let (tools, _) = self.list_tool_pages().await;
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Opens a stream for changes of the tool list: the legacy GET stream, or a modern listen whose
    /// acknowledgement has come.
    pub async fn open_change_stream(&self) -> CheckedStream {
        if !self.revision.is_modern() {
            let exchange = within_test_timeout("GET", self.raw.get_stream())
                .await
                .unwrap();
            assert!(
                exchange.status.is_success() && exchange.is_stream(),
                "{:?}",
                exchange.headers
            );
            return CheckedStream {
                exchange,
                revision: self.revision,
                answered: String::new(),
                id: Value::Null,
            };
        }
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        let mut stream = self.start("subscriptions/listen", filter).await;
        let first = stream.next().await.unwrap();
        assert_eq!(
            first["method"], "notifications/subscriptions/acknowledged",
            "R194"
        );
        assert_eq!(
            first["params"]["notifications"],
            json!({ "toolsListChanged": true }),
            "R197"
        );
        stream
    }

    /// Cancels a call of this client as its revision does.
    pub async fn cancel(&self, call: CheckedStream) -> Option<CheckedStream> {
        if self.revision.is_modern() {
            return None;
        }
        let told = self
            .raw
            .notify("notifications/cancelled", json!({ "requestId": call.id }));
        let told = within_test_timeout("notifications/cancelled", told)
            .await
            .unwrap();
        assert_eq!((told.status.as_u16(), told.body.len()), (202, 0), "R033");
        Some(call)
    }

    fn check_answer(&self, method: &str, answer: &ClientAnswer) {
        for message in &answer.messages {
            check_message(self.revision, method, message);
        }
    }
}

/// An answer that is still arriving. Dropping it closes its connection.
#[derive(Debug)]
pub struct CheckedStream {
    pub exchange: HttpExchange,
    revision: Revision,
    answered: String,
    /// The id of the request.
    pub id: Value,
}

impl CheckedStream {
    /// Returns the next message, `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        let message = within_test_timeout("the next message", self.exchange.next_message()).await;
        let message = message.unwrap_or_else(|error| panic!("{}: {error}", self.answered))?;
        check_message(self.revision, &self.answered, &message);
        if self.answered == "subscriptions/listen" {
            let meta = if message.get("result").is_some() {
                &message["result"]
            } else {
                &message["params"]
            };
            assert_eq!(
                meta["_meta"][meta::SUBSCRIPTION_ID],
                self.id,
                "R195: {message}"
            );
        }
        Some(message)
    }

    /// Reads the next message, which must announce that the tool list changed.
    pub async fn expect_list_changed(&mut self) {
        let message = self
            .next()
            .await
            .unwrap_or_else(|| panic!("the stream ended, and no change came"));
        assert_eq!(message["method"], "notifications/tools/list_changed");
    }

    /// Returns all messages up to the end.
    pub async fn read_rest(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }
}

/// Waits for an event in another process.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub async fn within_test_timeout<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Checks a message that a client saw against the schema of its revision, if `MCP_SCHEMAS` names
/// the folder of the schemas, and for members that the revision must not see.
pub fn check_message(revision: Revision, answered: &str, message: &Value) {
    emitted_messages::record_message(MessageSender::Server, revision, answered, message);
    static SCHEMAS: OnceLock<Option<ProtocolSchemas>> = OnceLock::new();
    if let Some(schemas) = SCHEMAS.get_or_init(ProtocolSchemas::from_environment)
        && let Err(wrong) = schemas.check(revision, MessageSender::Server, answered, message)
    {
        panic!("an answer to {answered} breaks the schema: {wrong}");
    }
    let result = &message["result"];
    if revision.is_modern() {
        assert!(
            message.get("result").is_none() || result["resultType"].is_string(),
            "R132: {message}"
        );
        assert!(
            message.get("method").is_none() || message.get("id").is_none(),
            "R040: {message}"
        );
        let code = message["error"]["code"].as_i64().unwrap_or_default();
        let defined = [-32020, -32021, -32022].contains(&code);
        let reserved = (-32099..=-32020).contains(&code) || [-32002, -32042].contains(&code);
        assert!(defined || !reserved, "R049: {message}");
    } else {
        // The result of a method that no revision knows is up to its server, except for the members
        // of other revisions.
        let hints = ["ttlMs", "cacheScope"]
            .into_iter()
            .filter(|_| Method::parse(answered).is_some());
        for member in hints.chain(["resultType"]) {
            assert!(result.get(member).is_none(), "R131: {message}");
        }
    }
}
