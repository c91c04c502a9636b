//! Discovery of the authorization server's endpoints from an MCP server's URL: RFC 9728, then RFC
//! 8414 or OpenID discovery.

use serde::Deserialize;
use serde_json::Value;
use url::Url;
use weir_oauth::{
    AuthorizationServerMetadata, BearerChallenge, ProtectedResourceMetadata, is_same_issuer,
    null_as_default, optional_url, resource_metadata_urls, server_metadata_urls,
};

use crate::login::json_http;
use crate::login::login_choices::LoginChoices;
use crate::login::login_error::{LoginError, plain};
use crate::login::server_url::{covers, server_url};

/// The scope for a refresh token.
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// The most authorization servers of one resource that are tried.
const MAX_ISSUERS: usize = 4;

/// The discovered and checked metadata that a login needs.
#[derive(Debug)]
pub(super) struct LoginDiscovery {
    /// The resource that tokens are for, as its own metadata writes it.
    pub(super) resource: String,
    /// The scopes that the resource needs at least.
    pub(super) scope: Option<String>,
    pub(super) issuer: String,
    /// The other authorization servers that the resource names.
    pub(super) other_issuers: Vec<String>,
    pub(super) authorization: Url,
    pub(super) token: Url,
    /// The registration endpoint as the metadata writes it.
    pub(super) registration: Option<String>,
    pub(super) revocation: Option<Url>,
    scopes: Vec<String>,
    names_itself: bool,
    /// The MCP server, which decides about safe URLs.
    server: Url,
}

/// The members of protected resource metadata that a login needs.
#[derive(Debug, Deserialize)]
struct ResourceScopes {
    #[serde(default, deserialize_with = "null_as_default")]
    scopes_supported: Vec<String>,
}

/// The members of authorization server metadata that a login needs.
#[derive(Debug, Deserialize)]
struct LoginEndpoints {
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default, deserialize_with = "optional_url")]
    registration_endpoint: Option<String>,
    #[serde(default, deserialize_with = "optional_url")]
    revocation_endpoint: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    scopes_supported: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    authorization_response_iss_parameter_supported: bool,
}

impl LoginDiscovery {
    /// Discovers the authorization server of `server`: the chosen one, or else the first of those
    /// that the server names that can be used. With a client id only the first is tried, because
    /// the id is one of a certain authorization server.
    pub(super) async fn of(
        server: &Url,
        challenge: &BearerChallenge,
        choices: &LoginChoices,
    ) -> Result<Self, LoginError> {
        let resource = resource(server, challenge).await?;
        let named = &resource.authorization_servers;
        let tried = match (&choices.issuer, &choices.client_id) {
            (Some(chosen), _) => vec![find_issuer(named, chosen, server)?],
            (None, Some(_)) => named.iter().take(1).collect(),
            (None, None) => named.iter().take(MAX_ISSUERS).collect(),
        };
        let mut first_error = None;
        for issuer in tried {
            match Self::at_issuer(issuer, &resource, server).await {
                Ok(found) => return Ok(found),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        let none = || LoginError::Unfit(format!("{server} names no authorization server"));
        Err(first_error.unwrap_or_else(none))
    }

    /// Discovers the endpoints of one authorization server of a resource.
    async fn at_issuer(
        issuer: &str,
        resource: &ProtectedResourceMetadata<ResourceScopes>,
        server: &Url,
    ) -> Result<Self, LoginError> {
        let metadata = metadata(issuer, server).await?;
        let endpoints = metadata.members;
        if !endpoints
            .code_challenge_methods_supported
            .iter()
            .any(|method| method == "S256")
        {
            let issuer = plain(issuer);
            return Err(LoginError::Unfit(format!(
                "{issuer} does not advertise PKCE with S256"
            )));
        }
        Ok(Self {
            scope: Some(resource.members.scopes_supported.join(" "))
                .filter(|scopes| !scopes.is_empty()),
            resource: resource.resource.clone(),
            other_issuers: others(&resource.authorization_servers, issuer),
            authorization: json_http::check_url(
                "the authorization endpoint",
                &endpoints.authorization_endpoint,
                server,
            )?,
            token: json_http::check_url("the token endpoint", &endpoints.token_endpoint, server)?,
            registration: endpoints.registration_endpoint,
            revocation: endpoints
                .revocation_endpoint
                .map(|url| json_http::check_url("the revocation endpoint", &url, server))
                .transpose()?,
            issuer: metadata.issuer,
            scopes: endpoints.scopes_supported,
            names_itself: endpoints.authorization_response_iss_parameter_supported,
            server: server.clone(),
        })
    }

    /// Makes the metadata of an authorization server with one URL for all endpoints.
    #[cfg(test)]
    pub(super) fn with_endpoints(resource: &str, issuer: &str, url: &Url) -> Self {
        Self {
            resource: resource.to_owned(),
            scope: None,
            issuer: issuer.to_owned(),
            other_issuers: Vec::new(),
            authorization: url.clone(),
            token: url.clone(),
            registration: None,
            revocation: None,
            scopes: Vec::new(),
            names_itself: false,
            server: url.clone(),
        }
    }

    /// Returns the registration endpoint, if there is one. A login with a known client needs none.
    ///
    /// # Errors
    /// The URL is not safe.
    pub(super) fn registration_endpoint(&self) -> Result<Option<Url>, LoginError> {
        let url = self.registration.as_ref();
        url.map(|url| json_http::check_url("the registration endpoint", url, &self.server))
            .transpose()
    }

    /// Reports if the authorization server offers the scope for refresh tokens.
    pub(super) fn offline_access(&self) -> bool {
        self.scopes.iter().any(|scope| scope == OFFLINE_ACCESS)
    }

    /// Compares the `iss` of an authorization response with the expected issuer as text (RFC 9207).
    pub(super) fn check_issuer(&self, issuer: Option<&str>) -> Result<(), LoginError> {
        match issuer {
            Some(issuer) if issuer == self.issuer => Ok(()),
            None if !self.names_itself => Ok(()),
            _ => Err(LoginError::WrongIssuer),
        }
    }
}

/// Returns the issuer that a person chose, as the resource writes it.
fn find_issuer<'a>(
    named: &'a [String],
    chosen: &str,
    server: &Url,
) -> Result<&'a String, LoginError> {
    let found = named.iter().find(|issuer| is_same_issuer(issuer, chosen));
    found.ok_or_else(|| {
        let choices = if named.is_empty() {
            "it names none".to_owned()
        } else {
            format!("it names {}", quoted_issuers(named))
        };
        let chosen = plain(chosen);
        LoginError::Unfit(format!(
            "`{chosen}` is not an authorization server of {server}: {choices}"
        ))
    })
}

/// Returns the named issuers beside this one.
fn others(named: &[String], issuer: &str) -> Vec<String> {
    let others = named.iter().filter(|other| *other != issuer);
    others.cloned().collect()
}

/// Returns issuers as a text, each in backticks.
pub(super) fn quoted_issuers(issuers: &[String]) -> String {
    let quoted: Vec<_> = issuers
        .iter()
        .take(MAX_ISSUERS)
        .map(|issuer| format!("`{}`", plain(issuer)))
        .collect();
    quoted.join(", ")
}

/// Fetches the server's own metadata: from the URL in its challenge, else from the well-known
/// places.
async fn resource(
    server: &Url,
    challenge: &BearerChallenge,
) -> Result<ProtectedResourceMetadata<ResourceScopes>, LoginError> {
    let places = match &challenge.resource_metadata {
        Some(named) => vec![same_server_or_safe(named, server)?],
        None => resource_metadata_urls(server),
    };
    let mut unreadable = None;
    for place in &places {
        let answer = json_http::get(place).await?;
        if !answer.status.is_success() {
            continue;
        }
        // A server may answer every path with a page of its own.
        let read: ProtectedResourceMetadata<ResourceScopes> = match read(place, answer.body) {
            Ok(read) => read,
            Err(error) => {
                unreadable.get_or_insert(error);
                continue;
            }
        };
        let named = server_url(&read.resource)?;
        if !covers(&named, server) {
            let why = format!("it is about {}, not about {server}", plain(&read.resource));
            return Err(LoginError::Web {
                url: place.to_string(),
                why,
            });
        }
        return Ok(read);
    }
    Err(unreadable.unwrap_or_else(|| {
        LoginError::Unfit(format!(
            "{server} names no authorization server, because it has no protected resource metadata; give a token with --token or WEIR_TOKEN"
        ))
    }))
}

/// Accepts any URL at the server's own origin, because the person chose it; other URLs must be safe
/// by themselves.
fn same_server_or_safe(named: &str, server: &Url) -> Result<Url, LoginError> {
    match Url::parse(named) {
        Ok(url) if url.origin() == server.origin() && url.username().is_empty() => Ok(url),
        _ => json_http::check_url("its metadata", named, server),
    }
}

/// Fetches the metadata from the first well-known place that has any. Metadata of another issuer is
/// refused.
async fn metadata(
    issuer: &str,
    server: &Url,
) -> Result<AuthorizationServerMetadata<LoginEndpoints>, LoginError> {
    let url = json_http::check_url("the authorization server", issuer, server)?;
    let mut unreadable = None;
    for place in &server_metadata_urls(&url) {
        let answer = json_http::get(place).await?;
        if answer.status.is_server_error() {
            return Err(LoginError::Web {
                url: place.to_string(),
                why: format!("HTTP {}", answer.status.as_u16()),
            });
        }
        if !answer.status.is_success() {
            continue;
        }
        let read: AuthorizationServerMetadata<LoginEndpoints> = match read(place, answer.body) {
            Ok(read) => read,
            Err(error) => {
                unreadable.get_or_insert(error);
                continue;
            }
        };
        if !read.is_about(issuer) {
            let why = format!(
                "it is the metadata of {}, not of {}",
                plain(&read.issuer),
                plain(issuer)
            );
            return Err(LoginError::Web {
                url: place.to_string(),
                why,
            });
        }
        return Ok(read);
    }
    let none = || LoginError::Unfit(format!("{url} publishes no metadata"));
    Err(unreadable.unwrap_or_else(none))
}

fn read<T: for<'a> Deserialize<'a>>(place: &Url, body: Value) -> Result<T, LoginError> {
    serde_json::from_value(body).map_err(|error| LoginError::Web {
        url: place.to_string(),
        why: format!("is not valid metadata: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use weir_testkit::TokenServer;

    use super::*;

    fn found(names_itself: bool) -> LoginDiscovery {
        let url = Url::parse("https://id.example/x").expect("a URL");
        let found =
            LoginDiscovery::with_endpoints("https://a.example/mcp", "https://id.example", &url);
        LoginDiscovery {
            names_itself,
            ..found
        }
    }

    // Proves R260.
    #[test]
    fn the_issuer_of_an_answer_is_compared_letter_by_letter() {
        assert!(found(true).check_issuer(Some("https://id.example")).is_ok());
        assert!(found(false).check_issuer(None).is_ok());
        assert!(
            found(true).check_issuer(None).is_err(),
            "advertised and missing"
        );
        for other in [
            "https://id.example/",
            "https://ID.example",
            "https://evil.example",
            "",
        ] {
            assert!(found(false).check_issuer(Some(other)).is_err(), "{other}");
        }
    }

    #[tokio::test]
    async fn place_without_metadata_is_passed_over() {
        let server = TokenServer::start().await;
        let url = Url::parse(&format!("{}/mcp", server.issuer())).expect("a URL");
        let page = serde_json::json!("a page");
        let resource = "/.well-known/oauth-protected-resource";
        let metadata = serde_json::json!({
            "issuer": server.issuer(),
            "authorization_endpoint": server.endpoint(),
            "token_endpoint": server.endpoint(),
            "code_challenge_methods_supported": ["S256"],
        });
        let at_first = [
            format!("{resource}/mcp"),
            "/.well-known/oauth-authorization-server".to_owned(),
        ];
        for path in &at_first {
            server.serve_document(path, &page);
        }
        let challenge = BearerChallenge::default();
        let choices = LoginChoices::default();
        let of = || LoginDiscovery::of(&url, &challenge, &choices);
        // Nothing else is there: the page is the fault.
        let error = of().await.expect_err("no metadata").to_string();
        assert!(
            error.contains(&at_first[0]) && error.contains("not valid"),
            "{error}"
        );
        server.serve_document(
            resource,
            &serde_json::json!({ "resource": url.as_str(), "authorization_servers": [server.issuer()] }),
        );
        let error = of().await.expect_err("no metadata").to_string();
        assert!(
            error.contains(&at_first[1]) && error.contains("not valid"),
            "{error}"
        );
        server.serve_document("/.well-known/openid-configuration", &metadata);
        let found = of().await.expect("both documents are there");
        assert_eq!(found.issuer, server.issuer());
    }

    #[tokio::test]
    async fn first_usable_or_chosen_authorization_server_is_taken() {
        let server = TokenServer::start().await;
        let url = Url::parse(&format!("{}/mcp", server.issuer())).expect("a URL");
        let issuers = ["none", "first", "second"].map(|name| format!("{}/{name}", server.issuer()));
        let resource =
            serde_json::json!({ "resource": url.as_str(), "authorization_servers": issuers });
        server.serve_document("/.well-known/oauth-protected-resource", &resource);
        for (issuer, name) in issuers.iter().zip(["none", "first", "second"]).skip(1) {
            let metadata = serde_json::json!({
                "issuer": issuer,
                "authorization_endpoint": server.endpoint(),
                "token_endpoint": server.endpoint(),
                "code_challenge_methods_supported": ["S256"],
            });
            let place = format!("/.well-known/oauth-authorization-server/{name}");
            server.serve_document(&place, &metadata);
        }
        let challenge = BearerChallenge::default();
        let of = async |issuer: Option<&str>, client_id: Option<&str>| {
            let choices = LoginChoices {
                issuer: issuer.map(str::to_owned),
                client_id: client_id.map(str::to_owned),
                ..LoginChoices::default()
            };
            let found = LoginDiscovery::of(&url, &challenge, &choices).await;
            found
                .map(|found| (found.issuer, found.other_issuers))
                .map_err(|error| error.to_string())
        };
        let [none, first, second] = &issuers;
        let others = |one: &String, two: &String| vec![one.clone(), two.clone()];
        assert_eq!(
            of(None, None).await,
            Ok((first.clone(), others(none, second)))
        );
        for client_id in [None, Some("known there")] {
            let found = of(Some(second), client_id).await;
            assert_eq!(found, Ok((second.clone(), others(none, first))));
        }
        for (issuer, client_id) in [(None, Some("id")), (Some(none.as_str()), None)] {
            let error = of(issuer, client_id).await.expect_err("no metadata");
            assert_eq!(error, format!("{none} publishes no metadata"));
        }
        let error = of(Some("https://other.example"), None)
            .await
            .expect_err("not named");
        assert_eq!(
            error,
            format!(
                "`https://other.example` is not an authorization server of {url}: it names `{none}`, `{first}`, `{second}`"
            )
        );
    }

    #[tokio::test]
    async fn null_and_empty_members_of_metadata_are_absent() {
        let server = TokenServer::start().await;
        let url = Url::parse(&format!("{}/mcp", server.issuer())).expect("a URL");
        let resource = serde_json::json!({
            "resource": url.as_str(),
            "authorization_servers": [server.issuer()],
            "scopes_supported": null,
        });
        server.serve_document("/.well-known/oauth-protected-resource", &resource);
        let mut metadata = serde_json::json!({
            "issuer": server.issuer(),
            "authorization_endpoint": server.endpoint(),
            "token_endpoint": server.endpoint(),
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": null,
            "authorization_response_iss_parameter_supported": null,
            "registration_endpoint": "",
            "revocation_endpoint": "",
        });
        let place = "/.well-known/oauth-authorization-server";
        server.serve_document(place, &metadata);
        let challenge = BearerChallenge::default();
        let choices = LoginChoices::default();
        let of = || LoginDiscovery::of(&url, &challenge, &choices);
        let found = of().await.expect("valid");
        assert!(!found.names_itself && found.scopes.is_empty() && found.scope.is_none());
        assert_eq!(found.revocation, None);
        assert_eq!(found.registration_endpoint().expect("no URL"), None);

        metadata["registration_endpoint"] = "http://other.example/register".into();
        server.serve_document(place, &metadata);
        let found = of().await.expect("valid");
        let error = found.registration_endpoint().expect_err("not safe");
        assert!(
            error.to_string().contains("the registration endpoint"),
            "{error}"
        );
    }

    #[test]
    fn invalid_metadata_is_refused_with_its_fault() {
        let fault = |body: &str| {
            let place = Url::parse("https://id.example/metadata").expect("a URL");
            let body = serde_json::from_str(body).unwrap_or_default();
            read::<AuthorizationServerMetadata<LoginEndpoints>>(&place, body)
                .expect_err("invalid")
                .to_string()
        };
        let endpoints = r#""authorization_endpoint":"https://a/","token_endpoint":"https://a/""#;
        for (body, expected) in [
            (
                "<html>".to_owned(),
                "invalid type: null, expected a JSON object",
            ),
            (format!("{{{endpoints}}}"), "missing field `issuer`"),
            (
                r#"{"issuer":"https://a"}"#.to_owned(),
                "missing field `authorization_endpoint`",
            ),
            (
                format!(r#"{{"issuer":5,{endpoints}}}"#),
                "invalid type: integer `5`, expected a string",
            ),
            (
                format!(r#"{{"issuer":"https://a",{endpoints},"revocation_endpoint":true}}"#),
                "invalid type: boolean `true`, expected a string",
            ),
            (
                format!(r#"{{"issuer":"https://a",{endpoints},"scopes_supported":"all"}}"#),
                r#"invalid type: string "all", expected a sequence"#,
            ),
        ] {
            assert_eq!(
                fault(&body),
                format!("https://id.example/metadata: is not valid metadata: {expected}"),
                "{body}"
            );
        }
    }
}
