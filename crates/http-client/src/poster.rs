//! Posts documents for parts that may not open sockets. It holds the connections and does not look
//! at the documents.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use weir_core::port::{BoxFuture, DocumentPoster, PostEncoding, PostResponse};
use weir_core::{Failure, FailureKind};

use crate::advice::with_advice;
use crate::http_client::HttpClient;

/// The longest response. It is more than any collector sends about a document.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The status of gRPC: in the trailers, or for a response without a body in the head.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Posts to one URL.
#[derive(Debug)]
pub struct Poster(HttpClient);

impl Poster {
    /// Makes a poster to the URL of `client`.
    #[must_use]
    pub fn new(client: HttpClient) -> Self {
        Self(client)
    }

    async fn send(&self, form: PostEncoding, document: Bytes) -> Result<PostResponse, Failure> {
        let (kind, extra) = match form {
            PostEncoding::Json => ("application/json", (header::ACCEPT, "application/json")),
            PostEncoding::Protobuf => (
                "application/x-protobuf",
                (header::ACCEPT, "application/x-protobuf"),
            ),
            // Every request of gRPC has this header.
            PostEncoding::Grpc => ("application/grpc", (header::TE, "trailers")),
        };
        let headers = [(header::CONTENT_TYPE, kind), extra]
            .map(|(name, text)| (name, HeaderValue::from_static(text)));
        let response = self
            .0
            .send(&Method::POST, &headers, &document)
            .await
            .map_err(|error| {
                Failure::new(FailureKind::Unavailable, "The collector cannot be reached")
                    .because(format!("{}: {}", self.0.url(), with_advice(error)))
            })?;
        let (head, body) = response.into_parts();
        match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
            Ok(body) => {
                let code = body
                    .trailers()
                    .and_then(grpc_status)
                    .or_else(|| grpc_status(&head.headers));
                Ok(PostResponse {
                    status: head.status.as_u16(),
                    code,
                    body: body.to_bytes(),
                })
            }
            Err(error) => Err(Failure::new(
                FailureKind::BadAnswer,
                "The answer is too large or broke off",
            )
            .because(error)),
        }
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

impl DocumentPoster for Poster {
    fn post(
        &self,
        form: PostEncoding,
        document: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<PostResponse, Failure>> {
        Box::pin(async move {
            match tokio::time::timeout(within, self.send(form, document)).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::new(
                    FailureKind::TimedOut,
                    "The collector did not answer in time",
                )
                .because(self.0.url().to_string())),
            }
        })
    }
}
