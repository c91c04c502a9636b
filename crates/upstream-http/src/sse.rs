//! HTTP+SSE, the transport of 2024-11-05: one stream with all messages of a server, and a URL that
//! it names for posts. The rest of weir treats it as a child's two pipes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use url::Url;
use weir_core::port::BoxFuture;
use weir_core::{Failure, FailureKind};
use weir_http_client::HttpResponseBody;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_stdio::{
    ChildChannel, MessageMemory, SkippedMessage, SseConnector, UpstreamChild,
};
use weir_wire::header::EVENTS;
use weir_wire::sse::{SseCaps, SseDecoder, SseItem};

use crate::content_headers::{content_coding, media_type};
use crate::http_post::unsent_attempt;
use crate::idle_events::IdleEvents;
use crate::sse_posts::SsePosts;

/// The connector of HTTP+SSE streams to the server of a client.
#[derive(Debug)]
pub(crate) struct SseServer(pub(crate) AuthorizedHttpClient);

impl SseConnector for SseServer {
    fn connect<'a>(
        &'a self,
        context: &'a Arc<UpstreamContext>,
    ) -> BoxFuture<'a, Result<UpstreamChild, Failure>> {
        Box::pin(connect(context, &self.0))
    }
}

async fn connect(
    context: &Arc<UpstreamContext>,
    http: &AuthorizedHttpClient,
) -> Result<UpstreamChild, Failure> {
    let unavailable = |text: &'static str| context.label.fail(FailureKind::Unavailable, text);
    let opening = tokio::time::timeout(endpoint_timeout(context), open(context, http)).await;
    let (stream, posts) =
        opening.map_err(|_| unavailable("The upstream opens no stream in time"))??;
    let pipe = ChildChannel::new(context.clone());
    let (child, stop) = UpstreamChild::without_process(pipe.clone());
    let ended = SseEndNotifier {
        context: context.clone(),
        pipe: pipe.clone(),
        child: child.ended(),
    };
    context.label.add_open_sessions(1);
    let posts = SsePosts::new(context.clone(), http.with_url(posts), pipe.clone());
    context.tasks.spawn(posts.run(stop.clone()));
    context.tasks.spawn(read(stream, pipe, stop, ended));
    Ok(child)
}

/// True if a server of this transport at the URL sends its first event within this time. Any
/// failure is a no.
pub(crate) async fn probe_endpoint(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    wait: Duration,
) -> bool {
    matches!(
        tokio::time::timeout(wait, open(context, http)).await,
        Ok(Ok(_))
    )
}

/// Returns the time limit of the `endpoint` event: half of that of the whole handshake.
pub(crate) fn endpoint_timeout(context: &UpstreamContext) -> Duration {
    context.own_requests.deadlines.probe / 2
}

/// A stream of events.
struct SseMessageStream {
    body: HttpResponseBody,
    decoder: SseDecoder,
    idle: IdleEvents,
    rest: Bytes,
    /// The size of the body part that is being decoded.
    part: usize,
    /// The data of the event that is being read.
    data: BytesMut,
    memory: MessageMemory,
    /// Present if there is no memory for the event.
    skipped: Option<SkippedMessage>,
}

/// An event of a stream.
enum SseReceived {
    /// A message, and its event type.
    Message(Option<String>, Bytes),
    /// A message that was skipped for want of memory, and the id of the request that it answered.
    Skipped(Option<u64>),
}

impl SseMessageStream {
    fn new(body: HttpResponseBody, context: &UpstreamContext) -> Self {
        let most = context.responses.max_reply;
        let caps = SseCaps {
            max_event: most as u64,
            ..SseCaps::default()
        };
        let memory = MessageMemory::new(context.budgets.results.clone());
        let (rest, data) = (Bytes::new(), BytesMut::new());
        let (decoder, idle) = (SseDecoder::new(caps), IdleEvents::new());
        Self {
            body,
            decoder,
            idle,
            rest,
            part: 0,
            data,
            memory,
            skipped: None,
        }
    }

    /// Reads the next message; absent at the end, and on a flood of idle events.
    async fn next(&mut self) -> Option<SseReceived> {
        loop {
            match self.decoder.feed(&mut self.rest).ok()? {
                Some(SseItem::Data(chunk)) => {
                    self.idle.note_data();
                    self.add_data(&chunk).await;
                }
                Some(SseItem::End {
                    event, has_data, ..
                }) => {
                    if let Some(skipped) = self.skipped.take() {
                        return Some(SseReceived::Skipped(skipped.request()));
                    }
                    let data = self.memory.hold(std::mem::take(&mut self.data).freeze());
                    if has_data && !data.is_empty() && is_known(event.as_deref()) {
                        return Some(SseReceived::Message(event, data));
                    }
                    self.idle.count_item();
                }
                Some(SseItem::Retry(_) | SseItem::Comment) => self.idle.count_item(),
                None => {
                    self.idle.count_bytes(std::mem::take(&mut self.part)).ok()?;
                    self.rest = self
                        .body
                        .frame()
                        .await?
                        .ok()?
                        .into_data()
                        .unwrap_or_default();
                    self.part = self.rest.len();
                }
            }
        }
    }

    /// Takes a part of the event's data.
    async fn add_data(&mut self, chunk: &Bytes) {
        if self.skipped.is_none() && !self.memory.cover(self.data.len() + chunk.len()).await {
            self.memory.release();
            self.skipped = Some(SkippedMessage::new(&std::mem::take(&mut self.data)));
        }
        match &mut self.skipped {
            Some(skipped) => skipped.feed(chunk),
            None => self.data.extend_from_slice(chunk),
        }
    }
}

/// True if the transport has events of this type.
fn is_known(event: Option<&str>) -> bool {
    weir_wire::sse::is_message(event) || event == Some("endpoint")
}

/// Opens the stream. Returns it with the post URL of its first event.
async fn open(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
) -> Result<(SseMessageStream, Uri), Failure> {
    let no_server = || {
        context.label.fail(
            FailureKind::Unavailable,
            "No MCP server of HTTP+SSE at the upstream's URL",
        )
    };
    let accept = (header::ACCEPT, HeaderValue::from_static(EVENTS));
    let sent = http.send(Method::GET, vec![accept], Bytes::new()).await;
    let (head, body) = sent
        .map_err(|error| unsent_attempt(&context.label, error).failure)?
        .into_parts();
    if head.status != StatusCode::OK || media_type(&head.headers).as_deref() != Some(EVENTS) {
        return Err(no_server());
    }
    if let Some(coding) = content_coding(&head.headers) {
        return Err(no_server().because(format!("its stream is compressed ({coding})")));
    }
    let mut stream = SseMessageStream::new(body, context);
    match stream.next().await {
        Some(SseReceived::Message(Some(event), data)) if event == "endpoint" => {
            let posts = std::str::from_utf8(&data)
                .ok()
                .and_then(|text| resolve(http.url(), text.trim()));
            let elsewhere = || {
                context.label.fail(
                    FailureKind::BadAnswer,
                    "The upstream names another server to post messages to",
                )
            };
            Ok((stream, posts.ok_or_else(elsewhere)?))
        }
        _ => Err(no_server()),
    }
}

/// Resolves the URL that a server names, relative to its own. Another origin is refused, because
/// posts carry credentials.
fn resolve(own: &Uri, named: &str) -> Option<Uri> {
    let own = Url::parse(&own.to_string()).ok()?;
    let url = own.join(named).ok()?;
    if url.origin() == own.origin() {
        url.as_str().parse().ok()
    } else {
        None
    }
}

/// Reads the server's messages, until it or weir ends the stream.
async fn read(
    mut stream: SseMessageStream,
    pipe: Arc<ChildChannel>,
    stop: CancellationToken,
    _ended: SseEndNotifier,
) {
    let reading = async {
        while let Some(received) = stream.next().await {
            match received {
                SseReceived::Message(event, data) => {
                    if event.as_deref().is_none_or(|event| event == "message") {
                        pipe.context.responses.meter.received(data.len());
                        pipe.receive(&data);
                    }
                }
                SseReceived::Skipped(request) => pipe.fail_skipped(request),
            }
        }
    };
    tokio::select! {
        () = reading => pipe.close("the stream ended"),
        () = stop.cancelled() => pipe.close("weir ended the stream"),
    }
    stop.cancel();
}

/// Closes the channel when the reading ends, for any reason.
struct SseEndNotifier {
    context: Arc<UpstreamContext>,
    pipe: Arc<ChildChannel>,
    child: CancellationToken,
}

impl Drop for SseEndNotifier {
    fn drop(&mut self) {
        self.pipe.close("the stream is not read any more");
        self.context.label.add_open_sessions(-1);
        self.child.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves C18.
    #[test]
    fn messages_are_posted_to_the_servers_own_origin_alone() {
        let own = Uri::from_static("http://127.0.0.1:9/a/sse");
        for (named, expected) in [
            ("/messages?id=1", Some("http://127.0.0.1:9/messages?id=1")),
            ("messages?id=1", Some("http://127.0.0.1:9/a/messages?id=1")),
            ("http://127.0.0.1:9/m", Some("http://127.0.0.1:9/m")),
            ("http://127.0.0.1:10/m", None),
            ("https://127.0.0.1:9/m", None),
            ("//evil.example/m", None),
            ("http://evil.example/m", None),
        ] {
            assert_eq!(
                resolve(&own, named).map(|uri| uri.to_string()).as_deref(),
                expected,
                "{named}"
            );
        }
    }
}
