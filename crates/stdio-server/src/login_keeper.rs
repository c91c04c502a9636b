//! The tokens for the remote server: the given one, or those of the person's login.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use http::HeaderValue;
use parking_lot::Mutex;
use url::Url;
use weir_core::port::BoxFuture;
use weir_mcp_client::login::{LoginAccount, LoginAccounts, LoginError};
use weir_mcp_client::{bearer, login};
use weir_text::url_without_credentials;
use weir_upstream::{ProvidedToken, TokenProvider};

/// The keeper of the tokens for one remote server.
pub(super) struct LoginKeeper {
    url: String,
    source: LoginTokenSource,
}

enum LoginTokenSource {
    /// The token of the command line or the environment.
    Given(HeaderValue),
    /// The login of this user, perhaps not made yet.
    Login(Box<UserLogin>),
    /// No token: the environment names no folder of logins.
    Nothing,
}

struct UserLogin {
    accounts: LoginAccounts,
    server: Url,
    /// The account that was used last.
    last: Mutex<Option<LoginAccount>>,
    /// True once the end of the login was logged.
    is_end_logged: AtomicBool,
}

impl LoginKeeper {
    pub(crate) fn new(url: &str, given: Option<HeaderValue>) -> Self {
        let source = match (given, LoginAccounts::of_this_user(), login::server_url(url)) {
            (Some(given), _, _) => LoginTokenSource::Given(given),
            (None, Ok(accounts), Ok(server)) => LoginTokenSource::Login(Box::new(UserLogin {
                accounts,
                server,
                last: Mutex::default(),
                is_end_logged: AtomicBool::new(false),
            })),
            (None, _, _) => LoginTokenSource::Nothing,
        };
        Self {
            url: url_without_credentials(url),
            source,
        }
    }
}

impl TokenProvider for LoginKeeper {
    fn token(&self, is_refused: bool) -> BoxFuture<'_, Result<Option<ProvidedToken>, String>> {
        Box::pin(async move {
            match &self.source {
                LoginTokenSource::Given(header) => Ok(Some(ProvidedToken {
                    header: header.clone(),
                    lifetime: None,
                })),
                LoginTokenSource::Login(login) => login.token(is_refused).await,
                LoginTokenSource::Nothing => Ok(None),
            }
        })
    }

    fn advice(&self) -> String {
        let url = &self.url;
        match self.source {
            LoginTokenSource::Given(_) => format!(
                "the token of --token or WEIR_TOKEN is not taken; start `weir stdio` with another, or without one after `weir login {url}`"
            ),
            LoginTokenSource::Login(_) | LoginTokenSource::Nothing => {
                format!(
                    "log in with `weir login {url}`, or start `weir stdio` with a token in WEIR_TOKEN"
                )
            }
        }
    }
}

impl UserLogin {
    async fn token(&self, is_refused: bool) -> Result<Option<ProvidedToken>, String> {
        let last = self.last.lock().clone();
        let refused = last.as_ref().filter(|_| is_refused);
        let account = match self.accounts.token(&self.server, refused).await {
            Ok(account) => account,
            // There may be no login at this server, and it may not want a token.
            Err(error @ LoginError::Local { .. }) if last.is_none() => {
                tracing::warn!(%error, "stored login not usable, continuing without a token");
                None
            }
            // The login has ended. The server's refusal says how to log in again.
            Err(error @ LoginError::NotRefreshed { .. }) => {
                if !self.is_end_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "stored login not usable, continuing without a token");
                }
                None
            }
            Err(error) => return Err(format!("the login cannot be renewed: {error}")),
        };
        self.last.lock().clone_from(&account);
        let Some(account) = account else {
            return Ok(None);
        };
        let header = bearer(account.access_token())
            .ok_or("the stored login has a token that no header can carry")?;
        Ok(Some(ProvidedToken {
            header,
            lifetime: account.lifetime(SystemTime::now()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_no_query_of_the_url() {
        for given in [None, Some(HeaderValue::from_static("Bearer a"))] {
            let advice = LoginKeeper::new("http://h/mcp?token=canary", given).advice();
            assert!(advice.contains("`weir login http://h/mcp`"), "{advice}");
        }
    }
}
