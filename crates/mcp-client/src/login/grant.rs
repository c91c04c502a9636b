//! Requests to an authorization server: registration, authorization, token exchange, refresh and
//! revocation.

use std::time::SystemTime;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use weir_oauth::{
    ClientAuthentication, FormRequest, TokenResponse, error_code, optional_text, read_lifetime,
};

use crate::login::discovery::{LoginDiscovery, OFFLINE_ACCESS, quoted_issuers};
use crate::login::json_http;
use crate::login::login_account::{LoginAccount, LoginClientAuthMethod, LoginClientSecret};
use crate::login::login_error::{LoginError, plain};

/// This program's identity at the authorization server: a public client, unless the server gives it
/// a secret all the same.
#[derive(Debug)]
pub(super) struct LoginClient {
    id: String,
    secret: Option<LoginClientSecret>,
}

/// One authorization request.
#[derive(Debug)]
pub(super) struct LoginAuthorizationRequest<'a> {
    pub(super) client: &'a LoginClient,
    pub(super) redirect_uri: &'a str,
    pub(super) state: &'a str,
    pub(super) code_challenge: &'a str,
    pub(super) scope: Option<&'a str>,
}

/// The members of a token response beside the token.
#[derive(Deserialize)]
struct LoginTokenMembers {
    #[serde(default)]
    expires_in: Value,
    #[serde(default, deserialize_with = "optional_text")]
    refresh_token: Option<String>,
    #[serde(default, deserialize_with = "optional_text")]
    scope: Option<String>,
}

impl LoginAuthorizationRequest<'_> {
    /// Returns the URL that the person opens.
    pub(super) fn url(&self, found: &LoginDiscovery) -> Url {
        let mut url = found.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", self.redirect_uri)
            .append_pair("state", self.state)
            .append_pair("code_challenge", self.code_challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource);
        if let Some(scope) = self.scope {
            url.query_pairs_mut().append_pair("scope", scope);
            // Without it the scope is to be ignored (OpenID Connect Core, section 11).
            if scope
                .split_ascii_whitespace()
                .any(|one| one == OFFLINE_ACCESS)
            {
                url.query_pairs_mut().append_pair("prompt", "consent");
            }
        }
        url
    }
}

impl LoginClient {
    /// Returns a client that was registered by hand.
    pub(super) fn known(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: None,
        }
    }

    /// Returns the client that a login was made with.
    fn of(account: &LoginAccount) -> Self {
        Self {
            id: account.client_id.clone(),
            secret: account.client_secret.clone(),
        }
    }

    fn authentication(&self) -> ClientAuthentication<'_> {
        match &self.secret {
            None => ClientAuthentication::Public,
            Some(LoginClientSecret { secret, method }) => match method {
                LoginClientAuthMethod::Basic => ClientAuthentication::Basic(secret),
                LoginClientAuthMethod::Post => ClientAuthentication::Post(secret),
            },
        }
    }

    /// Registers this program as a native client (RFC 7591).
    pub(super) async fn register(
        found: &LoginDiscovery,
        redirect_uri: &str,
    ) -> Result<Self, LoginError> {
        let Some(endpoint) = found.registration_endpoint()? else {
            let other = match &*found.other_issuers {
                [] => String::new(),
                others => format!(
                    ", or choose another authorization server with --issuer: {}",
                    quoted_issuers(others)
                ),
            };
            return Err(LoginError::Unfit(format!(
                "{} has no dynamic client registration: register a client there, and give its id with --client-id{other}",
                plain(&found.issuer)
            )));
        };
        let wanted = json!({
            "client_name": "weir command line",
            "application_type": "native",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        let answer = json_http::post_json(&endpoint, &wanted).await?;
        match answer.body["client_id"].as_str() {
            Some(id) if answer.status.is_success() && !id.is_empty() => Ok(Self {
                id: id.to_owned(),
                secret: registered_secret(&answer.body, &found.issuer)?,
            }),
            _ => Err(refusal(&answer)),
        }
    }

    /// Exchanges the code for a token.
    pub(super) async fn exchange(
        self,
        found: &LoginDiscovery,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<LoginAccount, LoginError> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
            ("resource", &found.resource),
        ];
        let granted = granted(&found.token, &self, &fields).await?;
        Ok(LoginAccount {
            resource: found.resource.clone(),
            issuer: found.issuer.clone(),
            client_id: self.id,
            client_secret: self.secret,
            token_endpoint: found.token.to_string(),
            revocation_endpoint: found.revocation.as_ref().map(Url::to_string),
            expires_at: granted.members.expires_at(),
            access_token: granted.access_token,
            refresh_token: granted.members.refresh_token,
            scope: granted.members.scope,
        })
    }
}

/// Refreshes an account's token. Returns `None` if it has no refresh token.
pub(super) async fn refresh(account: &LoginAccount) -> Result<Option<LoginAccount>, LoginError> {
    let Some(refresh_token) = &account.refresh_token else {
        return Ok(None);
    };
    let endpoint = Url::parse(&account.token_endpoint)
        .map_err(|_| LoginError::Url(plain(&account.token_endpoint)))?;
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh_token),
        ("resource", &account.resource),
    ];
    let granted = match granted(&endpoint, &LoginClient::of(account), &fields).await {
        Ok(granted) => granted,
        Err(LoginError::Refused(error)) => {
            let issuer = plain(&account.issuer);
            return Err(LoginError::NotRefreshed { issuer, error });
        }
        Err(other) => return Err(other),
    };
    Ok(Some(LoginAccount {
        expires_at: granted.members.expires_at(),
        access_token: granted.access_token,
        // A server that does not rotate refresh tokens omits it.
        refresh_token: granted
            .members
            .refresh_token
            .or_else(|| account.refresh_token.clone()),
        scope: granted.members.scope.or_else(|| account.scope.clone()),
        ..account.clone()
    }))
}

/// Revokes an account's tokens (RFC 7009), if the authorization server has a revocation endpoint.
pub(super) async fn revoke(account: &LoginAccount) -> Result<(), LoginError> {
    let Some(endpoint) = account
        .revocation_endpoint
        .as_deref()
        .and_then(|url| Url::parse(url).ok())
    else {
        return Ok(());
    };
    let token = account
        .refresh_token
        .as_deref()
        .unwrap_or(&account.access_token);
    let answer = post_form(&endpoint, &LoginClient::of(account), &[("token", token)]).await?;
    if answer.status.is_success() {
        Ok(())
    } else {
        Err(refusal(&answer))
    }
}

/// Returns the secret in the response to a registration, which may differ from the request (RFC
/// 7591, 3.2.1).
fn registered_secret(
    response: &Value,
    issuer: &str,
) -> Result<Option<LoginClientSecret>, LoginError> {
    let secret = response["client_secret"].as_str();
    let Some(secret) = secret.filter(|secret| !secret.is_empty()) else {
        return Ok(None);
    };
    let method = match response["token_endpoint_auth_method"].as_str() {
        Some("none") => return Ok(None),
        // The default (RFC 7591, 2).
        None | Some("client_secret_basic") => LoginClientAuthMethod::Basic,
        Some("client_secret_post") => LoginClientAuthMethod::Post,
        Some(other) => {
            return Err(LoginError::Unfit(format!(
                "{} registers clients that authenticate with `{}`, which this command cannot: register a client there, and give its id with --client-id",
                plain(issuer),
                plain(other)
            )));
        }
    };
    Ok(Some(LoginClientSecret {
        secret: secret.to_owned(),
        method,
    }))
}

/// Posts a form as this client.
async fn post_form(
    endpoint: &Url,
    client: &LoginClient,
    fields: &[(&str, &str)],
) -> Result<json_http::LoginJsonResponse, LoginError> {
    let request = FormRequest::new(fields, &client.id, client.authentication());
    json_http::post_form(endpoint, request).await
}

/// Requests a token as this client.
async fn granted(
    endpoint: &Url,
    client: &LoginClient,
    fields: &[(&str, &str)],
) -> Result<TokenResponse<LoginTokenMembers>, LoginError> {
    let answer = post_form(endpoint, client, fields).await?;
    // Neither says anything about the grant: it may be good a moment later.
    if answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS {
        let why = format!("HTTP {}", answer.status.as_u16());
        return Err(LoginError::Web {
            url: endpoint.to_string(),
            why,
        });
    }
    if !answer.status.is_success() || error_code(&answer.body).is_some() {
        return Err(refusal(&answer));
    }
    // The cause is not shown: it could quote the token.
    let odd = |why: &str| LoginError::Web {
        url: endpoint.to_string(),
        why: why.to_owned(),
    };
    let no_token = "its response has no bearer token";
    let granted: TokenResponse<_> =
        serde_json::from_value(answer.body).map_err(|_| odd(no_token))?;
    if !granted.is_bearer() {
        return Err(odd(no_token));
    }
    if !granted.is_sendable() {
        return Err(odd(
            "its response has an access token that is empty, or that no header can carry",
        ));
    }
    Ok(granted)
}

/// Returns the error of RFC 6749, 5.2, without control characters.
fn refusal(answer: &json_http::LoginJsonResponse) -> LoginError {
    let text = |member: &str| {
        let text = answer.body[member].as_str().map(plain);
        text.filter(|text| !text.is_empty())
    };
    LoginError::Refused(match (text("error"), text("error_description")) {
        (Some(error), Some(description)) => format!("{error}: {description}"),
        (Some(error), None) => error,
        (None, _) => format!("HTTP {}", answer.status.as_u16()),
    })
}

impl LoginTokenMembers {
    /// Returns the token's expiry, in seconds since 1970; absent if unknown.
    fn expires_at(&self) -> Option<u64> {
        let end = SystemTime::now().checked_add(read_lifetime(&self.expires_in)?)?;
        end.duration_since(SystemTime::UNIX_EPOCH)
            .ok()
            .map(|since| since.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use weir_testkit::TokenServer;

    use super::*;

    // Proves C19.
    #[test]
    fn a_refusal_cannot_steer_the_terminal() {
        let body = json!({ "error": "invalid\u{1b}[2J_grant", "error_description": "x\u{7}".repeat(4000) });
        let said = refusal(&json_http::LoginJsonResponse {
            status: StatusCode::BAD_REQUEST,
            body,
        })
        .to_string();
        assert!(
            said.starts_with("the authorization server refused: invalid[2J_grant: x"),
            "{said}"
        );
        assert!(said.len() < 500, "{said}");
        let bare = refusal(&json_http::LoginJsonResponse {
            status: StatusCode::BAD_GATEWAY,
            body: Value::Null,
        });
        assert_eq!(
            bare.to_string(),
            "the authorization server refused: HTTP 502"
        );
    }

    fn discovery(server: &TokenServer) -> LoginDiscovery {
        let endpoint = Url::parse(&server.endpoint()).expect("a URL");
        LoginDiscovery::with_endpoints("https://a.example/mcp", &server.issuer(), &endpoint)
    }

    async fn exchange(server: &TokenServer) -> Result<LoginAccount, LoginError> {
        let client = LoginClient::known("command line");
        let found = discovery(server);
        client
            .exchange(&found, "the-code", "http://127.0.0.1/callback", "verifier")
            .await
    }

    // Proves R255.
    #[test]
    fn refresh_token_is_requested_with_the_consent_that_it_needs() {
        let endpoint = Url::parse("https://id.example/authorize").expect("a URL");
        let found = LoginDiscovery::with_endpoints(
            "https://a.example/mcp",
            "https://id.example",
            &endpoint,
        );
        let client = LoginClient::known("command line");
        for (scope, prompt) in [
            (None, None),
            (Some("read offline_access_of_others"), None),
            (Some("read offline_access"), Some("consent")),
        ] {
            let request = LoginAuthorizationRequest {
                client: &client,
                redirect_uri: "http://127.0.0.1/callback",
                state: "state",
                code_challenge: "challenge",
                scope,
            };
            let url = request.url(&found);
            let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
            assert_eq!(query.get("prompt").map(String::as_str), prompt, "{url}");
            assert_eq!(query.get("scope").map(String::as_str), scope, "{url}");
        }
    }

    // Proves R255.
    #[tokio::test]
    async fn code_and_refresh_token_are_exchanged_as_a_public_client() {
        let server = TokenServer::start().await;
        let tokens = |access: &str, refresh: Option<&str>| json!({ "access_token": access, "token_type": "bearer", "refresh_token": refresh, "scope": "a b" });
        server.queue_answer(200, &tokens("first", Some("again")));
        let account = exchange(&server).await.expect("an account");
        assert_eq!(account.access_token, "first");
        assert_eq!(account.scope.as_deref(), Some("a b"));
        assert_eq!(account.expires_at, None);
        server.queue_answer(200, &tokens("second", None));
        let fresh = refresh(&account)
            .await
            .expect("an answer")
            .expect("a token");
        assert_eq!(fresh.access_token, "second");
        assert_eq!(fresh.refresh_token.as_deref(), Some("again"));
        // A busy server says nothing about the refresh token.
        server.queue_answer(429, &json!({ "error": "slow_down" }));
        let error = refresh(&fresh).await.expect_err("no answer now");
        assert_eq!(
            error.to_string(),
            format!("{}: HTTP 429", server.endpoint())
        );
        server.queue_answer(400, &json!({ "error": "invalid_grant" }));
        let refused = refresh(&fresh).await.expect_err("the login has ended");
        assert_eq!(
            refused.to_string(),
            format!(
                "{} refused to refresh the token: invalid_grant",
                fresh.issuer
            )
        );

        let requests = server.requests();
        assert!(
            requests
                .iter()
                .all(|request| request.authorization.is_none())
        );
        let form = |fields: &[(&str, &str)]| -> HashMap<String, String> {
            let fields = fields.iter();
            fields
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect()
        };
        let code = form(&[
            ("grant_type", "authorization_code"),
            ("code", "the-code"),
            ("redirect_uri", "http://127.0.0.1/callback"),
            ("code_verifier", "verifier"),
            ("resource", "https://a.example/mcp"),
            ("client_id", "command line"),
        ]);
        let again = form(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", "again"),
            ("resource", "https://a.example/mcp"),
            ("client_id", "command line"),
        ]);
        let forms: Vec<_> = requests.into_iter().map(|request| request.form).collect();
        assert_eq!(forms, [code, again.clone(), again.clone(), again]);
    }

    #[tokio::test]
    async fn secret_of_a_registration_authenticates_every_request() {
        let basic = Some("Basic aWQ6Q0FOQVJZ");
        for (method, header, in_form) in [
            (json!("client_secret_basic"), basic, [None, None]),
            (Value::Null, basic, [None, None]),
            (
                json!("client_secret_post"),
                None,
                [Some("id"), Some("CANARY")],
            ),
            (json!("none"), None, [Some("id"), None]),
        ] {
            let server = TokenServer::start().await;
            let url = |text: &str| Some(Url::parse(text).expect("a URL"));
            let mut found = discovery(&server);
            found.registration = Some(format!("{}/register", server.issuer()));
            found.revocation = url(&server.endpoint());
            let registered = json!({ "client_id": "id", "client_secret": "CANARY", "token_endpoint_auth_method": method });
            server.serve_document("/register", &registered);
            let redirect = "http://127.0.0.1/callback";
            let client = LoginClient::register(&found, redirect)
                .await
                .expect("a client");
            assert!(!format!("{client:?}").contains("CANARY"));
            let tokens =
                json!({ "access_token": "a", "token_type": "Bearer", "refresh_token": "r" });
            server.queue_answer(200, &tokens);
            server.queue_answer(200, &tokens);
            let exchanged = client
                .exchange(&found, "the-code", redirect, "verifier")
                .await;
            // As the file of logins keeps it.
            let kept = serde_json::to_value(exchanged.expect("an account")).expect("JSON");
            let account: LoginAccount = serde_json::from_value(kept).expect("an account");
            refresh(&account)
                .await
                .expect("an answer")
                .expect("a token");
            revoke(&account).await.expect("it is revoked");
            let requests = server.requests();
            assert_eq!(requests.len(), 3, "{method}");
            for request in requests {
                assert_eq!(request.authorization.as_deref(), header, "{method}");
                let given = ["client_id", "client_secret"].map(|name| request.form.get(name));
                assert_eq!(
                    given.map(|text| text.map(String::as_str)),
                    in_form,
                    "{method}"
                );
            }
        }
    }

    #[test]
    fn registration_with_another_authentication_is_refused() {
        let body =
            json!({ "client_secret": "CANARY", "token_endpoint_auth_method": "private_key_jwt" });
        let error = registered_secret(&body, "https://id.example").expect_err("no such method");
        let text = error.to_string();
        assert!(
            text.contains("`private_key_jwt`") && text.contains("--client-id"),
            "{text}"
        );
        assert!(!text.contains("CANARY"), "{text}");
    }

    #[tokio::test]
    async fn only_bearer_tokens_are_a_login_and_a_lifetime_may_be_text() {
        let server = TokenServer::start().await;
        for (lifetime, is_known) in [(json!(60), true), (json!("60"), true), (json!({}), false)] {
            let granted =
                json!({ "access_token": "CANARY", "token_type": "Bearer", "expires_in": lifetime });
            server.queue_answer(200, &granted);
            let account = exchange(&server).await.expect("an account");
            assert_eq!(account.expires_at.is_some(), is_known, "{lifetime}");
        }
        for body in [
            json!({ "access_token": "CANARY", "token_type": "DPoP" }),
            json!({ "access_token": 7, "token_type": "Bearer" }),
            json!({ "token_type": "Bearer" }),
            json!([]),
        ] {
            server.queue_answer(200, &body);
            let error = exchange(&server).await.expect_err("no bearer token");
            let url = server.endpoint();
            let expected = format!("{url}: its response has no bearer token");
            assert_eq!(error.to_string(), expected, "{body}");
        }
        for token in ["", "CANARY\n", "CANARY CANARY"] {
            server.queue_answer(
                200,
                &json!({ "access_token": token, "token_type": "Bearer" }),
            );
            let error = exchange(&server).await.expect_err("no token").to_string();
            assert!(error.contains("no header can carry"), "{error}");
            assert!(!error.contains("CANARY"), "{error}");
        }
    }

    #[tokio::test]
    async fn optional_member_that_is_empty_or_no_text_is_absent() {
        let server = TokenServer::start().await;
        for member in [json!(["a", "b"]), json!(""), json!(7), Value::Null] {
            let granted = json!({ "access_token": "a", "token_type": "Bearer", "scope": member, "refresh_token": member });
            server.queue_answer(200, &granted);
            let account = exchange(&server).await.expect("an account");
            assert_eq!(
                (account.scope, account.refresh_token),
                (None, None),
                "{member}"
            );
        }
    }

    #[tokio::test]
    async fn refusal_with_status_200_is_a_refusal() {
        let server = TokenServer::start().await;
        let refused = json!({ "error": "bad_verification_code", "error_description": "expired" });
        server.queue_answer(200, &refused);
        let error = exchange(&server).await.expect_err("no token");
        assert_eq!(
            error.to_string(),
            "the authorization server refused: bad_verification_code: expired"
        );
    }
}
