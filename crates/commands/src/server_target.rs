//! The server that a command connects to, and the credentials that it sends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use url::Url;
use weir_mcp_client::login::{LoginAccount, LoginAccounts};
use weir_mcp_client::{CONNECT_TIMEOUT, Client, ClientError, Respondent, Token, login};
use weir_text::url_without_credentials;

use crate::exit_code::{EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::terminal_respondent::TerminalRespondent;

/// The wait after which a command prints what it waits for.
const NOTED: Duration = Duration::from_secs(3);

/// The server that a command connects to.
#[derive(Debug, Args)]
pub(super) struct ServerTarget {
    /// The server's URL, such as http://127.0.0.1:8080/mcp
    pub url: String,
    /// A bearer token, instead of that of `weir login`; better given in the environment, hidden
    /// from other users
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

impl ServerTarget {
    /// Connects with the token of the command line or the environment; or else with that of a
    /// login, refreshed if necessary; or else without a token.
    pub(crate) async fn open(&self) -> Result<Client, ClientError> {
        let given = self
            .token
            .as_deref()
            .map(|text| Token::new(text).ok_or(ClientError::Token))
            .transpose()?;
        let Some(logins) = ServerLogins::at(&self.url).filter(|_| given.is_none()) else {
            return self.connect(given).await;
        };
        let account = logins.account(None).await;
        let first = self.connect(token(account.as_ref())).await;
        let Some(account) = account.filter(|_| is_unauthenticated(&first)) else {
            return first;
        };
        // The token may have been revoked, or the server's keys rotated, so it is refreshed and
        // tried once more.
        match logins.account(Some(&account)).await {
            Some(fresh) => self.connect(token(Some(&fresh))).await,
            None => first,
        }
    }

    /// Connects. At a terminal it declares the capabilities that a person can answer.
    async fn connect(&self, token: Option<Token>) -> Result<Client, ClientError> {
        let respondent = weir_terminal::can_ask()
            .then(|| Arc::new(TerminalRespondent::default()) as Arc<dyn Respondent>);
        connect(&self.url, token, respondent).await
    }
}

/// Connects to a server, and prints a note if its answer takes long.
pub(crate) async fn connect(
    url: &str,
    token: Option<Token>,
    respondent: Option<Arc<dyn Respondent>>,
) -> Result<Client, ClientError> {
    // Boxed: it happens once, and a command must not make room for all of it.
    let mut connecting = Box::pin(Client::connect(url, token, respondent));
    tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(NOTED) => {
            let most = CONNECT_TIMEOUT.as_secs();
            let url = url_without_credentials(url);
            weir_terminal::note(format_args!("weir: {url} has not answered yet: waiting for up to {most} s"));
            connecting.await
        }
    }
}

fn is_unauthenticated(connected: &Result<Client, ClientError>) -> bool {
    matches!(connected, Err(ClientError::Unauthorized(refusal)) if refusal.status == 401)
}

/// Prints the error of a request to a server.
pub(super) fn print_client_error(error: &ClientError) -> ExitCode {
    let code = match error {
        ClientError::Url(_) | ClientError::UserInfo(_) | ClientError::Token => EXIT_USAGE,
        ClientError::Unreachable { .. }
        | ClientError::Unauthorized(_)
        | ClientError::Busy { .. }
        | ClientError::NotMcp { .. }
        | ClientError::Refused { .. }
        | ClientError::Unanswered(_) => EXIT_UNREACHABLE,
    };
    exit_with_error(code, error)
}

/// This user's logins, for one server.
struct ServerLogins {
    accounts: LoginAccounts,
    server: Url,
}

impl ServerLogins {
    fn at(url: &str) -> Option<Self> {
        Some(Self {
            accounts: LoginAccounts::of_this_user().ok()?,
            server: login::server_url(url).ok()?,
        })
    }

    /// Returns the account. A failure is only printed, because the server may not require a token.
    async fn account(&self, anew: Option<&LoginAccount>) -> Option<LoginAccount> {
        match self.accounts.token(&self.server, anew).await {
            Ok(account) => account,
            Err(error) => {
                weir_terminal::note(format_args!("weir: continuing without the login: {error}"));
                None
            }
        }
    }
}

fn token(account: Option<&LoginAccount>) -> Option<Token> {
    Token::new(account?.access_token())
}
