//! `weir login URL` and `weir logout URL`, and the tokens of a login for the commands that need one.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use url::Url;

use super::{Target, UNREACHABLE, USAGE, fail};
use crate::client::{Client, ClientError, Token};
use crate::login::{self, Account, Accounts, LoginError, Wishes};
use crate::terminal;

/// What `weir login` can be told.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server's URL, such as https://tools.example.com/mcp
    url: String,
    /// A client id that the authorization server knows; without one weir registers itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Scopes to ask for besides those that the server names, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// The port of the redirect on 127.0.0.1, where the authorization server wants a certain one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Only print the page to open
    #[arg(long)]
    no_browser: bool,
}

/// Sends the person to the server's authorization server and keeps what comes back.
pub(super) async fn login(options: Options) -> ExitCode {
    let server = match login::server_url(&options.url) {
        Ok(server) => server,
        Err(error) => return fail(USAGE, error),
    };
    let challenge = match Client::connect(&options.url, None).await {
        Ok(client) => {
            client.close().await;
            terminal::line(format_args!("{server} asks for no login"));
            return ExitCode::SUCCESS;
        }
        Err(ClientError::Unauthorized { challenge, .. }) => challenge,
        Err(error) => return fail(UNREACHABLE, error),
    };
    let Options { client_id, scope, port, no_browser, .. } = options;
    let mut show = |page: &Url| {
        terminal::line(format_args!("Open this page to log in:\n\n{page}\n"));
        if !no_browser {
            open(page);
        }
    };
    let logged_in = async {
        let accounts = Accounts::of_this_user()?;
        // Who asks for more keeps what there was; who asks for nothing begins anew.
        let scope = match scope {
            Some(more) => Some(accounts.scope(&server)?.map_or(more.clone(), |earlier| format!("{earlier} {more}"))),
            None => None,
        };
        let wishes = Wishes { client_id, scope, port };
        let account = login::login(&server, &challenge, &wishes, &mut show).await?;
        accounts.keep(&account)?;
        Ok::<_, LoginError>((accounts, account))
    };
    match logged_in.await {
        Ok((accounts, account)) => {
            let scope = account.scope().map(|scope| format!(" with the scopes `{scope}`")).unwrap_or_default();
            terminal::line(format_args!("logged in at {} for {}{scope}", account.issuer(), account.resource()));
            terminal::note(format_args!("kept in {}; `weir logout {server}` ends it", accounts.file().display()));
            ExitCode::SUCCESS
        }
        Err(error) => fail(UNREACHABLE, error),
    }
}

/// Forgets a login, here and at the authorization server.
pub(super) async fn logout(url: &str) -> ExitCode {
    let server = match login::server_url(url) {
        Ok(server) => server,
        Err(error) => return fail(USAGE, error),
    };
    let forgotten = async { Accounts::of_this_user()?.forget(&server).await };
    match forgotten.await {
        Ok(None) => terminal::line(format_args!("nobody is logged in at {server}")),
        Ok(Some((account, Ok(())))) => terminal::line(format_args!("logged out of {}", account.resource())),
        Ok(Some((account, Err(error)))) => {
            terminal::line(format_args!("logged out of {}", account.resource()));
            terminal::note(format_args!(
                "weir: its tokens are good until they expire, for they could not be revoked: {error}"
            ));
        }
        Err(error) => return fail(UNREACHABLE, error),
    }
    ExitCode::SUCCESS
}

impl Target {
    /// Connects with the token of the command line or the environment; else with that of a login, refreshed where it
    /// must be; else without.
    ///
    /// # Errors
    /// The exit code, and why.
    pub(super) async fn open(&self) -> Result<Client, (u8, String)> {
        let refused = |error: ClientError| (UNREACHABLE, error.to_string());
        let given = self.token().map_err(|why| (USAGE, why))?;
        let Some(logins) = Logins::at(&self.url).filter(|_| given.is_none()) else {
            return Client::connect(&self.url, given).await.map_err(refused);
        };
        let account = logins.account(None).await;
        let first = Client::connect(&self.url, token(account.as_ref())).await;
        let (Err(ClientError::Unauthorized { status: 401, .. }), Some(account)) = (&first, &account) else {
            return first.map_err(refused);
        };
        // What the server refuses may have been revoked, or its keys rotated: once more with a new one.
        match logins.account(Some(account)).await {
            Some(fresh) => Client::connect(&self.url, token(Some(&fresh))).await.map_err(refused),
            None => first.map_err(refused),
        }
    }
}

/// This user's logins, for one server.
struct Logins {
    accounts: Accounts,
    server: Url,
}

impl Logins {
    fn at(url: &str) -> Option<Self> {
        Some(Self { accounts: Accounts::of_this_user().ok()?, server: login::server_url(url).ok()? })
    }

    /// What goes wrong here is only said: the server may not want a token.
    async fn account(&self, anew: Option<&Account>) -> Option<Account> {
        match self.accounts.token(&self.server, anew).await {
            Ok(account) => account,
            Err(error) => {
                terminal::note(format_args!("weir: going on without the login: {error}"));
                None
            }
        }
    }
}

fn token(account: Option<&Account>) -> Option<Token> {
    Token::new(account?.access_token())
}

/// Tries to show a page. Where that does not work there is still the printed address.
fn open(page: &Url) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    // No shell: the address is one argument, and discovery let only http and https through.
    let _ = Command::new(program)
        .arg(page.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}
