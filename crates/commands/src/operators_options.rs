//! Finds the operators' listener of a running weir for commands.

use std::path::PathBuf;

use clap::Args;
use weir_config::DEFAULT_ADMIN_LISTEN as DEFAULT_OPERATORS;
use weir_config_file::http_url::{HttpUrlError, http_url};
use weir_system::on_this_machine;
use weir_text::url_without_credentials;

use crate::admin_address::find_admin_address;

/// The hint for an operator if no weir answers.
pub(super) const ADMIN_URL_HINT: &str =
    "--config FILE finds the operators' listener of a config, and --admin URL names it";

/// The operators' listener: given by URL, by a config, or the default one.
#[derive(Debug, Args)]
pub(super) struct OperatorsOptions {
    /// The operators' listener of a running weir; default: that of the config, or
    /// http://127.0.0.1:8081
    #[arg(long, global = true, env = "WEIR_ADMIN", value_name = "URL")]
    admin: Option<String>,
    /// The config file of the running weir, to look up its operators' listener
    #[arg(long, short, global = true, env = "WEIR_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl OperatorsOptions {
    /// Returns the given URL, without a slash at its end.
    pub(super) fn given_url(&self) -> Option<String> {
        self.admin
            .as_deref()
            .map(|admin| admin.trim_end_matches('/').to_owned())
    }

    /// Returns the URL of the listener.
    ///
    /// # Errors
    /// A message for people: the given text is no URL, or the config gives no address. The default
    /// is only for a command without a config: with one, it would be the address of another weir.
    pub(crate) fn url(&self) -> Result<String, String> {
        if let Some(admin) = self.given_url() {
            let example = format!("such as http://{DEFAULT_OPERATORS}");
            let shown = url_without_credentials(&admin);
            return match http_url(&admin) {
                Ok(_) => Ok(admin),
                Err(HttpUrlError::UserInfo) => Err(format!(
                    "{shown} was given with a user or a password, which weir does not send: give \
                     the token in WEIR_ADMIN_TOKEN or with --token-file"
                )),
                Err(error) => Err(format!("`{shown}` {error}, {example}")),
            };
        }
        let Some(file) = &self.config else {
            return Ok(format!("http://{DEFAULT_OPERATORS}"));
        };
        let found = find_admin_address(file, &|name| std::env::var(name).ok());
        let file = file.display();
        match found {
            Ok(Some(address)) if address.port() == 0 => Err(format!(
                "{file} has port 0 in `admin.listen`, for which the system chooses a port: \
                 --admin URL names the listener"
            )),
            Ok(Some(address)) => Ok(format!("http://{}", on_this_machine(address))),
            Ok(None) => Err(format!(
                "{file} has `admin: {{ listen: off }}`: this weir has no listener for operators"
            )),
            Err(why) => Err(format!(
                "{file} gives no address of a listener for operators: {why}; \
                 --admin URL names the listener"
            )),
        }
    }
}

#[cfg(test)]
impl OperatorsOptions {
    /// The options with a config alone.
    pub(super) fn of_config(file: &str) -> Self {
        Self {
            admin: None,
            config: Some(PathBuf::from(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_listener_wins_and_the_default_is_for_no_config_alone() {
        let operators = |admin: Option<&str>, config: Option<&str>| OperatorsOptions {
            admin: admin.map(str::to_owned),
            config: config.map(PathBuf::from),
        };
        assert_eq!(
            operators(Some("http://h:1/"), Some("/nowhere")).url(),
            Ok("http://h:1".to_owned())
        );
        for not_a_url in ["127.0.0.1:8081", "h", "ftp://h:1", "http://h:99999"] {
            let refused = operators(Some(not_a_url), None).url().expect_err(not_a_url);
            assert!(
                refused.contains("such as http://127.0.0.1:8081"),
                "{refused}"
            );
        }
        let refused = operators(Some("http://any:canary@h:1"), None)
            .url()
            .expect_err("a user");
        assert!(
            refused.starts_with("http://h:1 ") && !refused.contains("canary"),
            "{refused}"
        );
        assert_eq!(
            operators(None, None).url(),
            Ok("http://127.0.0.1:8081".to_owned())
        );
        let why = operators(None, Some("/nowhere/weir.yaml"))
            .url()
            .expect_err("the file gives no address");
        for part in ["/nowhere/weir.yaml", "No such file", "--admin URL"] {
            assert!(why.contains(part), "{why}");
        }
        let file = std::env::temp_dir().join(format!("weir-port-0-{}.yaml", std::process::id()));
        std::fs::write(&file, "admin: { listen: \"127.0.0.1:0\" }\n").expect("it is written");
        let url = operators(None, file.to_str()).url();
        std::fs::remove_file(file).expect("it is there");
        assert!(url.expect_err("no port").contains("port 0"));
    }
}
