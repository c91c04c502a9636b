//! `weir login URL` and `weir logout URL`.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use url::Url;
use weir_mcp_client::login::{LoginAccounts, LoginChoices, LoginError, Logout};
use weir_mcp_client::{ClientError, login};

use crate::exit_code::{EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::server_target::{connect, print_client_error};

/// The options of `weir login`.
#[derive(Debug, Args)]
pub struct LoginOptions {
    /// The server's URL, such as https://tools.example.com/mcp
    #[allow(rustdoc::bare_urls, reason = "the text is the command's help, too")]
    url: String,
    /// A client id registered at the authorization server; without one, weir registers itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Scopes to request in addition to those of the server, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// The authorization server to log in at, if the server names several; without it, the first
    /// that can be used
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The port of the redirect on 127.0.0.1, if the authorization server requires a specific one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Only print the URL of the login page
    #[arg(long)]
    no_browser: bool,
}

/// Runs the OAuth login in the browser, and stores the tokens.
pub async fn login(options: LoginOptions) -> ExitCode {
    let server = match login::server_url(&options.url) {
        Ok(server) => server,
        Err(error) => return exit_with_error(EXIT_USAGE, error),
    };
    let challenge = match connect(&options.url, None, None).await {
        Ok(client) => {
            client.close().await;
            weir_terminal::line(format_args!("{server} requires no login"));
            return ExitCode::SUCCESS;
        }
        Err(ClientError::Unauthorized(refusal)) => refusal.challenge,
        Err(error) => return print_client_error(&error),
    };
    let LoginOptions {
        client_id,
        scope,
        issuer,
        port,
        no_browser,
        ..
    } = options;
    let mut show = |page: &Url| {
        weir_terminal::line(format_args!("Open this page to log in:\n\n{page}\n"));
        if !no_browser {
            open(page);
        }
    };
    let logged_in = async {
        let accounts = LoginAccounts::of_this_user()?;
        let choices = LoginChoices {
            client_id,
            scope,
            issuer,
            port,
        };
        let account = login::login(&server, &challenge, &choices, &accounts, &mut show).await?;
        accounts.keep(&account).await?;
        Ok::<_, LoginError>((accounts, account))
    };
    match logged_in.await {
        Ok((accounts, account)) => {
            let scope = account
                .scope()
                .map(|scope| format!(" with the scopes `{scope}`"))
                .unwrap_or_default();
            weir_terminal::line(format_args!(
                "logged in at {} for {}{scope}",
                account.issuer(),
                account.resource()
            ));
            weir_terminal::note(format_args!(
                "kept in {}; `weir logout {}` ends it",
                accounts.file().display(),
                account.resource()
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The person refused, or the authorization server refuses the scopes or the person.
            let is_denied =
                matches!(&error, LoginError::Refused(why) if why.starts_with("access_denied"));
            let hint = if is_denied {
                "; if you did not refuse it yourself, request other scopes with --scope, or log in as a user with access to the server"
            } else {
                ""
            };
            exit_with_error(EXIT_UNREACHABLE, format_args!("{error}{hint}"))
        }
    }
}

/// Forgets a login, here and at the authorization server.
pub async fn logout(url: &str) -> ExitCode {
    let server = match login::server_url(url) {
        Ok(server) => server,
        Err(error) => return exit_with_error(EXIT_USAGE, error),
    };
    let forgotten = async { LoginAccounts::of_this_user()?.forget(&server).await };
    match forgotten.await {
        Ok(Logout::NoLogin(None)) => weir_terminal::line(format_args!("not logged in at {server}")),
        Ok(Logout::NoLogin(Some(above))) => {
            let resource = above.resource();
            weir_terminal::line(format_args!(
                "not logged in at {server}; a login for {resource} exists, which `weir logout {resource}` ends"
            ));
        }
        Ok(Logout::Done { account, revoked }) => {
            weir_terminal::line(format_args!("logged out of {}", account.resource()));
            if let Err(error) = revoked {
                weir_terminal::note(format_args!(
                    "weir: its tokens could not be revoked, and are valid until they expire: {error}"
                ));
            }
        }
        Err(error) => return exit_with_error(EXIT_UNREACHABLE, error),
    }
    ExitCode::SUCCESS
}

/// Tries to open a page in the browser. If that fails, the printed URL remains.
fn open(page: &Url) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    // No shell is involved: the URL is one argument, and discovery accepts only http and https.
    let _ = Command::new(program)
        .arg(page.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}
