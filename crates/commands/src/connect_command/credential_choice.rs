//! The credential of a connection: absent, the name of a variable, or a secret of this user.

use clap::Args;
use url::Url;
use weir_client_configs::mcp_clients::McpClient;
use weir_client_configs::mcp_clients::client_entry::{EntryCredential, TOKEN_VARIABLE};
use weir_config::Config;
use weir_config_file::foreign::inputs::InputVariable;
use weir_mcp_client::login::{LoginAccounts, LoginError};
use weir_mcp_client::{Token, login};

use crate::input_prompt::prompt_input;

/// The options of the credential.
#[derive(Debug, Args)]
pub(super) struct CredentialOptions {
    /// Have the client send an API key, from this environment variable of the client
    #[arg(long, value_name = "VARIABLE", num_args = 0..=1, default_missing_value = "WEIR_TOKEN", value_parser = variable_name)]
    key: Option<String>,
    /// Put the credential itself into the entry: WEIR_TOKEN, or the token of `weir login`, or one
    /// that you type
    #[arg(long, conflicts_with = "key")]
    with_secret: bool,
}

impl CredentialOptions {
    /// Returns the variable of the API key that the client is to send, if it is to send one.
    pub(crate) fn key_variable(&self, config: Option<&Config>) -> Option<String> {
        let required = || config.filter(|config| config.requires_api_keys());
        let usual = || required().map(|_| TOKEN_VARIABLE.to_owned());
        self.key.clone().or_else(usual)
    }

    /// Returns the credential that the options ask for, or that the config requires.
    ///
    /// # Errors
    /// A message for people: there is no secret.
    pub(crate) async fn choose(
        &self,
        client: McpClient,
        url: &str,
        config: Option<&Config>,
    ) -> Result<EntryCredential, String> {
        if self.with_secret {
            return secret(url).await.map(EntryCredential::Secret);
        }
        let Some(variable) = self.key_variable(config) else {
            return Ok(EntryCredential::None);
        };
        if client.has_variables() {
            return Ok(EntryCredential::Variable(variable));
        }
        let name = client.title();
        let instead = match client.supports_programs_only() {
            true => {
                "--with-secret writes the key into the file, or `weir login` gets a token if weir accepts tokens"
            }
            false => "--with-secret writes the key into the file",
        };
        weir_terminal::note(format_args!(
            "weir: files of {name} have no variables, so the key is left out: {instead}"
        ));
        Ok(EntryCredential::None)
    }
}

/// Returns a secret from the environment, a login, or a person at the terminal.
async fn secret(url: &str) -> Result<String, String> {
    if !is_safe(url) {
        return Err(format!(
            "{url} is neither https nor on this machine: a credential could be intercepted"
        ));
    }
    if let Some(given) = std::env::var(TOKEN_VARIABLE)
        .ok()
        .filter(|text| !text.trim().is_empty())
    {
        return usable(&given);
    }
    let server = login::server_url(url).map_err(|error| error.to_string())?;
    let account = match LoginAccounts::of_this_user() {
        Ok(accounts) => match accounts.token(&server, None).await {
            Err(error @ LoginError::NotRefreshed { .. }) => {
                weir_terminal::note(format_args!("weir: continuing without the login: {error}"));
                None
            }
            found => found.map_err(|error| error.to_string())?,
        },
        Err(_) => None,
    };
    if let Some(account) = account {
        weir_terminal::note(
            "weir: this token of `weir login` expires, and the client cannot renew it; clients with a \
             login of their own, and `weir stdio URL`, can",
        );
        return usable(account.access_token());
    }
    let question = InputVariable {
        id: TOKEN_VARIABLE.to_owned(),
        description: Some(format!("API key or token for {url}")),
        is_secret: true,
        ..InputVariable::default()
    };
    match prompt_input(&question).filter(|answer| !answer.is_empty()) {
        Some(answer) => usable(&answer),
        None => Err(format!(
            "there is no credential for {url}: set {TOKEN_VARIABLE}, or run `weir login {url}` first"
        )),
    }
}

fn usable(text: &str) -> Result<String, String> {
    let text = text.trim();
    match Token::new(text) {
        Some(_) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err("the credential has characters that are not allowed in a token".to_owned()),
    }
}

/// Reports if a credential may be sent to a URL: HTTPS, or this machine.
fn is_safe(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        url.scheme() == "https"
            || url
                .host_str()
                .is_some_and(weir_config_file::local_host::is_local_host)
    })
}

/// Checks the name of a variable on the command line.
fn variable_name(text: &str) -> Result<String, String> {
    if weir_config_file::env::is_variable(text) {
        Ok(text.to_owned())
    } else {
        Err("that is not the name of an environment variable, such as WEIR_TOKEN".to_owned())
    }
}
