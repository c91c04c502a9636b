//! One client of the load generator: one HTTP/1.1 connection, kept alive, in either era.
//!
//! It checks every answer: its id, that it is a result, and its content. It never retries; the
//! caller counts errors.

use crate::protocol::{self, Era, SESSION};
use crate::sse::EventLines;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The address of a tool.
#[derive(Clone, Debug)]
pub(crate) struct ToolAddress {
    pub(crate) addr: SocketAddr,
    pub(crate) path: Uri,
    pub(crate) tool: String,
    /// The value of `Authorization` in its clients' requests.
    pub(crate) credential: Option<HeaderValue>,
}

/// A connection, and for a legacy client its session or sessions.
#[derive(Debug)]
pub(crate) struct LoadClient {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<Option<TcpStream>>,
    host: String,
    era: Era,
    path: Uri,
    session: Option<HeaderValue>,
    /// Further sessions, which take turns with that one.
    waiting: VecDeque<HeaderValue>,
    credential: Option<HeaderValue>,
    last_id: u64,
}

/// A complete HTTP answer.
#[derive(Debug)]
pub(crate) struct LoadAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One page of a tool list.
#[derive(Debug)]
pub(crate) struct ToolPage {
    pub(crate) names: Vec<String>,
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
struct ReplyEnvelope<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallResult<'a> {
    #[serde(borrow)]
    content: Vec<TextContent<'a>>,
    #[serde(default)]
    is_error: bool,
    #[serde(borrow)]
    result_type: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct TextContent<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolListResult {
    tools: Vec<ListedTool>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct ListedTool {
    name: String,
}

impl LoadClient {
    /// Connects; a legacy client also opens its session. Dropping it closes the connection but not
    /// the session.
    ///
    /// # Errors
    /// No connection, or a handshake that is not answered as it must be.
    pub(crate) async fn connect(addr: SocketAddr, path: &Uri, era: Era) -> Result<Self> {
        Self::connect_as(None, addr, path, era).await
    }

    /// Connects with a credential on every request.
    ///
    /// # Errors
    /// As [`LoadClient::connect`].
    pub(crate) async fn connect_as(
        credential: Option<HeaderValue>,
        addr: SocketAddr,
        path: &Uri,
        era: Era,
    ) -> Result<Self> {
        let stream = TcpStream::connect(addr)
            .await
            .with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            let parts = connection.without_shutdown().await.ok()?;
            Some(parts.io.into_inner())
        });
        let (host, path) = (addr.to_string(), path.clone());
        let mut client = Self {
            sender,
            driver,
            host,
            era,
            path,
            session: None,
            waiting: VecDeque::new(),
            credential,
            last_id: 0,
        };
        if era == Era::Legacy {
            client.initialize().await.context("initialize")?;
        }
        Ok(client)
    }

    /// Opens a (further) legacy session on this connection; the former one is forgotten, not ended.
    ///
    /// # Errors
    /// The handshake is not answered as it must be.
    pub(crate) async fn initialize(&mut self) -> Result<()> {
        self.session = None;
        let path = self.path.clone();
        let id = self.next_id();
        let answer = self
            .post(&path, "initialize", None, protocol::initialize(id))
            .await?;
        self.session = answer.headers.get(SESSION).cloned();
        let text = answer.message(id)?;
        let version = format!("\"{}\"", Era::Legacy.version());
        ensure!(
            result(&text, id)?.contains(&version),
            "another version than asked for"
        );
        let told = self
            .post(
                &path,
                "notifications/initialized",
                None,
                protocol::INITIALIZED.to_owned(),
            )
            .await?;
        ensure!(
            told.status == StatusCode::ACCEPTED,
            "initialized got {}",
            told.status
        );
        Ok(())
    }

    /// Opens legacy sessions until there are `count`, all of which are kept.
    ///
    /// # Errors
    /// As [`LoadClient::initialize`].
    pub(crate) async fn open_sessions(&mut self, count: usize) -> Result<()> {
        while 1 + self.waiting.len() < count {
            let former = self.session.clone();
            self.initialize().await?;
            self.waiting.extend(former);
        }
        Ok(())
    }

    /// Makes its next request in the least recently used session.
    pub(crate) fn turn_session(&mut self) {
        if let Some(next) = self.waiting.pop_front() {
            self.waiting.extend(self.session.replace(next));
        }
    }

    /// Calls an echo tool with `message`, which must need no JSON escape, and checks that it comes
    /// back.
    ///
    /// # Errors
    /// No answer, or any other one.
    pub(crate) async fn echo(&mut self, site: &ToolAddress, message: &str) -> Result<()> {
        self.call(site, &format!(r#"{{"message":"{message}"}}"#), message)
            .await
    }

    /// Calls a tool with `arguments` (a JSON object) and checks that the answer is the one text
    /// `expected`.
    ///
    /// # Errors
    /// No answer, or any other one.
    pub(crate) async fn call(
        &mut self,
        site: &ToolAddress,
        arguments: &str,
        expected: &str,
    ) -> Result<()> {
        let id = self.next_id();
        let body = protocol::call(self.era, id, &site.tool, arguments);
        let answer = self
            .post(&site.path, "tools/call", Some(&site.tool), body)
            .await?;
        let text = answer.message(id)?;
        check_called(result(&text, id)?, self.era, expected)
    }

    /// Asks for one page of tools and returns the raw answer for [`LoadClient::page`], so that the
    /// caller can time the request without the parsing.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn list(&mut self, cursor: Option<&str>) -> Result<LoadAnswer> {
        let params = cursor.map_or_else(String::new, |cursor| format!(r#""cursor":"{cursor}""#));
        let path = self.path.clone();
        let id = self.next_id();
        self.post(
            &path,
            "tools/list",
            None,
            protocol::request(self.era, id, "tools/list", &params),
        )
        .await
    }

    /// Reads the page out of the answer to the last [`LoadClient::list`].
    ///
    /// # Errors
    /// It is not a page.
    pub(crate) fn page(&self, answer: &LoadAnswer) -> Result<ToolPage> {
        let text = answer.message(self.last_id)?;
        let listed: ToolListResult = serde_json::from_str(result(&text, self.last_id)?)?;
        Ok(ToolPage {
            names: listed.tools.into_iter().map(|tool| tool.name).collect(),
            next: listed.next_cursor,
        })
    }

    /// Lists all names, over all pages.
    ///
    /// # Errors
    /// An invalid page, or more than a thousand of them.
    pub(crate) async fn names(&mut self) -> Result<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..1000 {
            let answer = self.list(cursor.as_deref()).await?;
            let page = self.page(&answer)?;
            names.extend(page.names);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(names);
            }
        }
        bail!("tools/list does not end");
    }

    /// Ends a legacy session and the connection.
    ///
    /// # Errors
    /// The session does not end.
    pub(crate) async fn close(mut self) -> Result<()> {
        if self.session.is_none() {
            return Ok(());
        }
        let path = self.path.clone();
        let headers = protocol::headers(self.era, &self.host, "tools/call", None)?;
        let answer = self
            .send(Method::DELETE, &path, headers, String::new())
            .await?;
        ensure!(answer.status.is_success(), "DELETE got {}", answer.status);
        Ok(())
    }

    /// Ends the use of HTTP and returns the connection and the session's id.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn into_stream(self) -> Result<(TcpStream, Option<HeaderValue>)> {
        drop(self.sender);
        let stream = self.driver.await?.context("the connection broke")?;
        Ok((stream, self.session))
    }

    const fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    async fn post(
        &mut self,
        path: &Uri,
        method: &'static str,
        tool: Option<&str>,
        body: String,
    ) -> Result<LoadAnswer> {
        let headers = protocol::headers(self.era, &self.host, method, tool)?;
        self.send(Method::POST, path, headers, body).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &Uri,
        mut headers: HeaderMap,
        body: String,
    ) -> Result<LoadAnswer> {
        if let Some(session) = &self.session {
            headers.insert(SESSION, session.clone());
        }
        if let Some(credential) = &self.credential {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = path.clone();
        *request.headers_mut() = headers;
        self.sender.ready().await?;
        let (parts, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(LoadAnswer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

impl LoadAnswer {
    /// The JSON-RPC message with this id, from a JSON body or an event.
    fn message(&self, id: u64) -> Result<Cow<'_, str>> {
        let kind = self
            .headers
            .get(CONTENT_TYPE)
            .map_or(&b""[..], HeaderValue::as_bytes);
        if self.status != StatusCode::OK {
            bail!("HTTP {}: {}", self.status, excerpt(&self.body));
        }
        if !kind.starts_with(b"text/event-stream") {
            return Ok(Cow::Borrowed(std::str::from_utf8(&self.body)?));
        }
        let mut found = None;
        let read = EventLines::default().push(&self.body, |data| {
            if serde_json::from_slice::<ReplyEnvelope<'_>>(data)
                .is_ok_and(|reply| reply.id == Some(id))
            {
                found = Some(data.to_vec());
            }
        });
        read.map_err(|_| anyhow!("an event without end"))?;
        Ok(Cow::Owned(String::from_utf8(
            found.context("the stream ended without the answer")?,
        )?))
    }
}

/// The result in an answer to the request `id`.
fn result(text: &str, id: u64) -> Result<&str> {
    let reply: ReplyEnvelope<'_> =
        serde_json::from_str(text).with_context(|| excerpt(text.as_bytes()))?;
    if let Some(error) = reply.error {
        bail!("error: {}", excerpt(error.get().as_bytes()));
    }
    ensure!(
        reply.id == Some(id),
        "the answer to another request: {}",
        excerpt(text.as_bytes())
    );
    Ok(reply.result.context("neither result nor error")?.get())
}

fn check_called(result: &str, era: Era, expected: &str) -> Result<()> {
    let called: ToolCallResult<'_> =
        serde_json::from_str(result).with_context(|| excerpt(result.as_bytes()))?;
    ensure!(
        !called.is_error,
        "the tool failed: {}",
        excerpt(result.as_bytes())
    );
    ensure!(
        era == Era::Legacy || called.result_type.as_deref() == Some("complete"),
        "no complete result"
    );
    match called.content.as_slice() {
        [TextContent { text: Some(text) }] if text == expected => Ok(()),
        _ => bail!(
            "other content than expected: {}",
            excerpt(result.as_bytes())
        ),
    }
}

fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn answer(kind: &'static str, body: &'static str) -> LoadAnswer {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        LoadAnswer {
            status: StatusCode::OK,
            headers,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[test]
    fn the_answer_is_found_among_notes() {
        let stream = answer(
            "text/event-stream; charset=utf-8",
            ": hi\n\ndata: {\"method\":\"notifications/message\"}\n\ndata: {\"id\":4,\"result\":{}}\n\n",
        );
        assert_eq!(result(&stream.message(4).unwrap(), 4).unwrap(), "{}");
        assert!(stream.message(5).is_err());
    }

    #[test]
    fn wrong_answers_are_errors() {
        let good = r#"{"resultType":"complete","content":[{"type":"text","text":"a"}]}"#;
        check_called(good, Era::Modern, "a").unwrap();
        assert!(check_called(good, Era::Modern, "b").is_err());
        assert!(
            check_called(
                r#"{"content":[{"type":"text","text":"a"}]}"#,
                Era::Modern,
                "a"
            )
            .is_err()
        );
        assert!(
            check_called(
                r#"{"isError":true,"content":[{"type":"text","text":"a"}]}"#,
                Era::Legacy,
                "a"
            )
            .is_err()
        );
        assert!(check_called(r#"{"content":[]}"#, Era::Legacy, "a").is_err());
        assert!(result(r#"{"id":1,"result":{}}"#, 2).is_err());
        assert!(result(r#"{"id":1,"error":{"code":-32603}}"#, 1).is_err());
    }
}
