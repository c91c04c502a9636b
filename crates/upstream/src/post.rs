//! Documents posted for whoever may not open sockets. It holds its connections; what is in the documents is not its
//! business.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use weir_core::port::{Fetched, Fut, Post};
use weir_core::{Failure, FailureKind};

use crate::streamable::{Http, SendError};

/// More than any collector says about what it took.
const ANSWER: usize = 64 << 10;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Posts to one URL.
pub(crate) struct Poster(pub(crate) Http);

impl Poster {
    async fn send(&self, json: Bytes) -> Result<Fetched, Failure> {
        let headers = [(header::CONTENT_TYPE, JSON), (header::ACCEPT, JSON)];
        let response = self.0.send(Method::POST, headers, json).await.map_err(|error| match error {
            SendError::Lost { source, .. } => {
                Failure::new(FailureKind::Unavailable, "The collector cannot be reached").because(source)
            }
            SendError::NoToken(failure) => failure,
        })?;
        let status = response.status().as_u16();
        match Limited::new(response.into_body(), ANSWER).collect().await {
            Ok(body) => Ok(Fetched { status, max_age: None, body: body.to_bytes() }),
            Err(error) => {
                Err(Failure::new(FailureKind::BadAnswer, "The answer is too large or broke off").because(error))
            }
        }
    }
}

impl Post for Poster {
    fn post(&self, json: Bytes, within: Duration) -> Fut<'_, Result<Fetched, Failure>> {
        Box::pin(async move {
            match tokio::time::timeout(within, self.send(json)).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::new(FailureKind::TimedOut, "The collector did not answer in time")),
            }
        })
    }
}
