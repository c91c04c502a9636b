//! Token requests to an authorization server: client credentials (RFC 6749, 4.4), or the exchange
//! of a caller's token (RFC 8693). Each names the server that the token is for (`resource`, RFC
//! 8707).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use url::Url;
use weir_core::ClientToken;
use weir_core::port::{BorrowedSecret, DocumentFetcher, FetchRequest, UrlSource};
use weir_era::lower;
use weir_http_client::HttpClient;
use weir_oauth::{BearerChallenge, ClientAuthentication, FormRequest};
use weir_wire::header::{JSON, JSON_OR_EVENTS};
use weir_wire::method::Method as Rpc;

use crate::bearer_token::BearerToken;
use crate::challenge_headers::read_challenge;
use crate::settings::{ClientAuthMethod, TokenAuthority, TokenExchange, UpstreamOAuth};
use crate::token_context::TokenContext;
use crate::token_discovery::{TokenDiscovery, TokenTarget, resource_identifier};
use crate::token_error::TokenError;
use crate::token_response;

const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest token response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The time for which discovered metadata is used before it is fetched again.
const DISCOVERY_TTL: Duration = Duration::from_secs(3600);
/// The time in which further refusals do not repeat the discovery; also the timeout of the request
/// that asks for a challenge.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// The parameters of one token request.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamTokenRequest {
    /// The caller's token that is exchanged.
    pub(crate) subject: Option<ClientToken>,
    /// The scopes that the authorization server stated for a token without requested ones. They
    /// stand for configured scopes in a request that adds scopes: it would be one without them
    /// otherwise.
    pub(crate) default_scopes: Vec<String>,
    /// Scopes beyond these.
    pub(crate) added_scopes: Vec<String>,
    /// The server's challenge to the last token.
    pub(crate) challenge: Option<BearerChallenge>,
}

/// Gets tokens for one server.
pub(crate) struct TokenFetcher {
    context: TokenContext,
    /// The server, without credentials.
    http: HttpClient,
    fetch: Arc<dyn DocumentFetcher>,
    settings: UpstreamOAuth,
    /// The discovered endpoint and the time of its discovery. Locked during the discovery.
    target: tokio::sync::Mutex<Option<(TokenTarget, Duration)>>,
}

impl TokenFetcher {
    pub(crate) fn new(
        context: TokenContext,
        http: HttpClient,
        fetch: Arc<dyn DocumentFetcher>,
        settings: UpstreamOAuth,
    ) -> Self {
        Self {
            context,
            http,
            fetch,
            settings,
            target: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn context(&self) -> &TokenContext {
        &self.context
    }

    /// Returns the scopes of a challenge that may be added at the server's request.
    pub(crate) fn permitted_scopes(&self, challenge: &BearerChallenge) -> Vec<String> {
        let requested: Vec<&str> = challenge.scopes().collect();
        let permitted = self.settings.step_up.iter();
        permitted
            .filter(|own| requested.contains(&own.as_str()))
            .cloned()
            .collect()
    }

    /// Requests a token.
    ///
    /// # Errors
    /// No token can be had; the error's text is for clients and the log.
    pub(crate) async fn fetch_token(
        &self,
        want: &UpstreamTokenRequest,
    ) -> Result<BearerToken, TokenError> {
        if let TokenAuthority::Provider(keeper) = &self.settings.authority {
            let requested_at = self.context.clock.now();
            let kept = keeper.0.token(want.challenge.is_some()).await;
            let kept = kept.map_err(|cause| {
                TokenError::new("The token for this upstream cannot be renewed now")
                    .caused_by(&cause)
            })?;
            let lifetime = kept
                .as_ref()
                .and_then(|kept| kept.lifetime)
                .unwrap_or(token_response::DEFAULT_LIFETIME);
            return Ok(BearerToken::new(
                kept.map(|kept| kept.header),
                requested_at,
                lifetime,
                self.context.clock.random(),
            ));
        }
        let place = self.token_target(want.challenge.as_ref()).await?;
        let request = self.build_request(&place, want)?;
        let began = self.context.clock.now();
        let ask = FetchRequest {
            url: &place.endpoint,
            form: Some(BorrowedSecret::new(&request.form)),
            authorization: request.authorization.as_deref().map(BorrowedSecret::new),
            limit: MAX_RESPONSE_BYTES,
            timeout: TOKEN_TIMEOUT,
            url_source: place.named_by,
        };
        let fetched = self.fetch.fetch(ask).await;
        let fetched = fetched.map_err(|failure| {
            TokenError::new("The authorization server cannot be reached for a token")
                .because(&failure)
        })?;
        let shown = want
            .subject
            .as_ref()
            .map(|subject| subject.expose().expose());
        let shown: Vec<&str> = shown
            .into_iter()
            .chain([self.settings.client_secret.expose()])
            .collect();
        let granted =
            token_response::read_token_response(&fetched, want.subject.is_some(), &shown)?;
        let bearer = BearerToken::new(
            Some(granted.header),
            began,
            granted.lifetime,
            self.context.clock.random(),
        );
        Ok(BearerToken {
            stated_scopes: granted.scopes,
            ..bearer
        })
    }

    async fn token_target(
        &self,
        challenge: Option<&BearerChallenge>,
    ) -> Result<TokenTarget, TokenError> {
        let server = Url::parse(&self.http.url().to_string());
        let server =
            server.map_err(|_| TokenError::new("The upstream's URL has no resource identifier"))?;
        let own = self.settings.resource.as_ref();
        let issuer = match &self.settings.authority {
            TokenAuthority::Issuer(issuer) => issuer,
            TokenAuthority::Provider(_) => {
                return Err(TokenError::new("Tokens of a keeper are not asked for"));
            }
            TokenAuthority::TokenEndpoint(endpoint) => {
                let resource = own.cloned().unwrap_or_else(|| resource_identifier(&server));
                let endpoint = endpoint.clone();
                return Ok(TokenTarget {
                    endpoint,
                    named_by: UrlSource::Operator,
                    methods: None,
                    resource,
                });
            }
        };
        let mut known = self.target.lock().await;
        let now = self.context.clock.now();
        let good_for = if challenge.is_some() {
            REDISCOVERY_INTERVAL
        } else {
            DISCOVERY_TTL
        };
        if let Some((place, _)) = known.as_ref().filter(|(_, found)| now < *found + good_for) {
            return Ok(place.clone());
        }
        let fetched;
        let challenge = match challenge {
            Some(challenge) => challenge,
            None => {
                fetched = self.fetch_challenge().await;
                &fetched
            }
        };
        let hint = challenge.resource_metadata.as_deref();
        let mut place = TokenDiscovery {
            fetch: &*self.fetch,
            issuer,
            server: &server,
            hint,
        }
        .run()
        .await?;
        if let Some(own) = own {
            place.resource.clone_from(own);
        }
        *known = Some((place.clone(), now));
        Ok(place)
    }

    /// Sends a request without a token, for the server's challenge with the URL of its metadata.
    /// The challenge is empty if the server sends no such header.
    async fn fetch_challenge(&self) -> BearerChallenge {
        let json = HeaderValue::from_static(JSON);
        let accept = HeaderValue::from_static(JSON_OR_EVENTS);
        let ping: Bytes = lower::legacy_request(self.context.request_ids.next_id(), Rpc::Ping, &[]);
        let headers = [(header::ACCEPT, accept), (header::CONTENT_TYPE, json)];
        let response = self.http.send(&Method::POST, &headers, &ping);
        match tokio::time::timeout(REDISCOVERY_INTERVAL, response).await {
            Ok(Ok(answer)) => read_challenge(answer.headers()),
            _ => BearerChallenge::default(),
        }
    }

    /// Builds the form, with the client's authentication.
    fn build_request(
        &self,
        place: &TokenTarget,
        want: &UpstreamTokenRequest,
    ) -> Result<FormRequest, TokenError> {
        let UpstreamOAuth {
            client_id,
            exchange,
            scopes,
            ..
        } = &self.settings;
        let mut fields = match (&want.subject, exchange) {
            (Some(subject), Some(exchange)) => {
                let mut fields = vec![
                    (
                        "grant_type",
                        "urn:ietf:params:oauth:grant-type:token-exchange",
                    ),
                    ("subject_token", subject.expose().expose()),
                    ("subject_token_type", exchange.subject_type.as_str()),
                    ("requested_token_type", TokenExchange::ACCESS_TOKEN),
                ];
                fields.extend(exchange.audience.as_deref().map(|name| ("audience", name)));
                fields
            }
            _ => vec![("grant_type", "client_credentials")],
        };
        fields.push(("resource", &place.resource));
        let mut scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        if scopes.is_empty() && !want.added_scopes.is_empty() {
            scopes.extend(want.default_scopes.iter().map(String::as_str));
        }
        for added in &want.added_scopes {
            if !scopes.contains(&&**added) {
                scopes.push(added);
            }
        }
        let scope = scopes.join(" ");
        if !scopes.is_empty() {
            fields.push(("scope", &scope));
        }
        Ok(FormRequest::new(
            &fields,
            client_id,
            self.client_auth(place)?,
        ))
    }

    fn client_auth(&self, place: &TokenTarget) -> Result<ClientAuthentication<'_>, TokenError> {
        let secret = self.settings.client_secret.expose();
        let offers = |name: &str| {
            place
                .methods
                .as_ref()
                .is_none_or(|methods| methods.iter().any(|method| method == name))
        };
        match self.settings.client_auth {
            ClientAuthMethod::Basic => Ok(ClientAuthentication::Basic(secret)),
            ClientAuthMethod::Post => Ok(ClientAuthentication::Post(secret)),
            ClientAuthMethod::Discovered if offers("client_secret_basic") => {
                Ok(ClientAuthentication::Basic(secret))
            }
            ClientAuthMethod::Discovered if offers("client_secret_post") => {
                Ok(ClientAuthentication::Post(secret))
            }
            ClientAuthMethod::Discovered => Err(TokenError::new(
                "The authorization server takes no client secrets",
            )),
        }
    }
}
