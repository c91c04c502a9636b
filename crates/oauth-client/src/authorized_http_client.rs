//! The HTTP client of one upstream, for one account if the server wants tokens.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri, header};
use weir_core::{Failure, FailureKind, UpstreamId};
use weir_http_client::{HeaderField, HttpClient, HttpResponseBody, UpstreamHttpError};

use crate::challenge_headers::read_challenge;
use crate::token_account::TokenAccount;

/// The client of one server, for one account if the server wants tokens. Clones share the
/// connections.
#[derive(Clone, Debug)]
pub struct AuthorizedHttpClient {
    client: HttpClient,
    token: RequestToken,
}

/// The token of a client's requests.
#[derive(Clone, Debug)]
enum RequestToken {
    /// Requests have none.
    None,
    /// The token of an account.
    Of(Arc<TokenAccount>),
    /// The token of a caller that has not called yet: no request is sent to this server.
    Unknown(UpstreamId),
}

/// The error of a request without a response.
#[derive(Debug)]
pub enum SendError {
    /// The connection failed.
    Lost(UpstreamHttpError),
    /// The request was not sent, for want of a token.
    NoToken(Failure),
}

impl AuthorizedHttpClient {
    /// Makes a client whose requests have no token.
    #[must_use]
    pub fn without_token(client: HttpClient) -> Self {
        let token = RequestToken::None;
        Self { client, token }
    }

    /// Makes the client of an account.
    pub(crate) fn of_account(client: HttpClient, account: Arc<TokenAccount>) -> Self {
        let token = RequestToken::Of(account);
        Self { client, token }
    }

    /// Makes a client that sends no request, for want of a caller's token.
    pub(crate) fn of_unknown_caller(client: HttpClient, upstream: UpstreamId) -> Self {
        let token = RequestToken::Unknown(upstream);
        Self { client, token }
    }

    /// Returns the same client for another URL of the same origin.
    pub fn with_url(&self, uri: Uri) -> Self {
        Self {
            client: self.client.with_url(uri),
            token: self.token.clone(),
        }
    }

    /// Returns the same client without reuse of HTTP/1.1 connections. On a new connection a
    /// response can only belong to its own request.
    pub fn without_reuse(&self) -> Self {
        Self {
            client: self.client.without_reuse(),
            token: self.token.clone(),
        }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> &Uri {
        self.client.url()
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body,
    /// cancels the request: the connection is closed (HTTP/1.1) or the stream reset (HTTP/2).
    ///
    /// A token that the server refuses (401) is replaced once, and one with too narrow scopes (403)
    /// widened once, if possible. A server that refuses a token has not executed the request.
    pub async fn send(
        &self,
        method: Method,
        own: Vec<HeaderField>,
        body: Bytes,
    ) -> Result<Response<HttpResponseBody>, SendError> {
        match &self.token {
            RequestToken::None => {
                let sent = self.client.send(&method, &own, &body).await;
                sent.map_err(SendError::Lost)
            }
            RequestToken::Of(account) => {
                Box::pin(self.send_with_token(account, &method, own, &body)).await
            }
            RequestToken::Unknown(upstream) => {
                let text = "The caller of the session has not called since weir was restarted";
                let failure = Failure::new(FailureKind::Unavailable, text);
                Err(SendError::NoToken(failure.with_upstream(upstream)))
            }
        }
    }

    async fn send_with_token(
        &self,
        account: &Arc<TokenAccount>,
        method: &Method,
        mut own: Vec<HeaderField>,
        body: &Bytes,
    ) -> Result<Response<HttpResponseBody>, SendError> {
        let mut bearer = account.current_token().await.map_err(SendError::NoToken)?;
        let (mut renewed, mut widened) = (false, false);
        let at = own.len();
        loop {
            own.truncate(at);
            own.extend(
                bearer
                    .header
                    .clone()
                    .map(|header| (header::AUTHORIZATION, header)),
            );
            let sent = self.client.send(method, &own, body).await;
            let answer = sent.map_err(SendError::Lost)?;
            let challenge = || read_challenge(answer.headers());
            let another = match answer.status() {
                StatusCode::UNAUTHORIZED if !std::mem::replace(&mut renewed, true) => account
                    .replace_refused(&bearer, challenge())
                    .await
                    .map_err(SendError::NoToken)?,
                StatusCode::FORBIDDEN if !std::mem::replace(&mut widened, true) => {
                    account.step_up(&bearer, &challenge()).await
                }
                _ => None,
            };
            match another {
                Some(another) => bearer = another,
                None => return Ok(answer),
            }
        }
    }
}
