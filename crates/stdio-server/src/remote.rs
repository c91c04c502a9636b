//! A remote server behind the gateway of `weir stdio URL`: its config, and the wait until it is
//! reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Uri};
use serde_json::Value;
use tokio::time::{Instant, interval_at, timeout};
use weir_catalog::Catalog;
use weir_catalog::{UpstreamReach, UpstreamStatus};
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_mcp_client::environment_proxy;
use weir_text::{one_line, url_without_credentials};
use weir_upstream::{SharedTokenProvider, TransportSettings, UpstreamOAuth};

use crate::login_keeper::LoginKeeper;

/// The longest wait for the first answer of the remote server.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// The time between two checks of its state.
const LOOK: Duration = Duration::from_millis(20);
/// The longest answer that may be a failure of weir.
const MAX_FAILURE: usize = 8 << 10;
/// The cause of a failure without one.
const NO_CAUSE: &str = "it cannot be reached";
/// The reason in the failure of a call that did not reach its server.
const UNAVAILABLE: &str = "unavailable";
/// The failure in a result: `_meta` has it under [`weir_wire::meta::WEIR_ERROR`], whose slash is
/// escaped in a JSON pointer.
const WEIR_FAILURE: &str = "/result/_meta/dev.weir~1error";

/// A config with one server, transparent, at `/mcp`. The URL is set afterwards, so that `${NAME}`
/// in it stays text.
const TEXT: &str = r#"{"upstreams": {"remote": {"url": "http://localhost/"}}, "endpoints": {"/mcp": {"upstream": "remote"}}}"#;

/// Returns the config of a gateway in front of the server at `url`, with the given credential, or
/// else with the person's login.
///
/// # Errors
///
/// In words: the URL is not http or https, or has a user, or the environment names an invalid
/// proxy.
pub fn remote_config(url: &str, authorization: Option<HeaderValue>) -> Result<Config, String> {
    let shown = url_without_credentials(url);
    let wrong =
        || format!("`{shown}` is not an http or https URL, such as http://127.0.0.1:8080/mcp");
    let keeper = SharedTokenProvider(Arc::new(LoginKeeper::new(url, authorization)));
    let url: Uri = url.parse().map_err(|_| wrong())?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return Err(wrong());
    }
    if url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(format!(
            "{shown} was given with a user or a password, which weir does not send: leave them \
             out, and give a token in WEIR_TOKEN"
        ));
    }
    let source = ConfigSource::Text {
        name: "the URL".to_owned(),
        text: TEXT.to_owned(),
    };
    let outcome = ConfigLoader::new(source, &|_| None).load();
    let mut config = outcome.config.ok_or_else(|| outcome.report.to_string())?;
    if url.scheme_str() == Some("https") {
        config.forward_proxy = environment_proxy()?;
    }
    for plan in &mut config.upstreams {
        if let TransportSettings::Http(http) = &mut plan.settings.transport {
            http.url = url.clone();
            http.auth = Some(Box::new(UpstreamOAuth::from_provider(keeper.clone())));
        }
    }
    Ok(config)
}

/// The wait for the remote server. Before its first answer requests of the host fail with the
/// cause, instead of showing a server without tools.
#[derive(Debug)]
pub struct RemoteGate {
    catalog: Arc<Catalog>,
    url: String,
    was_up: AtomicBool,
}

impl RemoteGate {
    /// Returns the gate of the server at this URL, the only upstream of the catalog.
    pub fn new(catalog: Arc<Catalog>, url: &str) -> Self {
        Self {
            catalog,
            url: url_without_credentials(url),
            was_up: AtomicBool::new(false),
        }
    }

    /// Waits until the server was reached for the first time.
    ///
    /// # Errors
    ///
    /// In words, with the next step: it cannot be reached now. A later call may succeed.
    pub(super) async fn reached(&self) -> Result<(), String> {
        if self.was_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let settled = async {
            let mut looks = interval_at(Instant::now(), LOOK);
            loop {
                looks.tick().await;
                let status = self.catalog.status();
                match status.first().map(|remote| (remote, remote.reach())) {
                    Some((_, UpstreamReach::Unknown)) => {}
                    Some((remote, UpstreamReach::Down)) => return Err(self.cause(remote)),
                    Some((_, UpstreamReach::Up)) | None => return Ok(()),
                }
            }
        };
        match timeout(FIRST_ANSWER, settled).await {
            Ok(outcome) => {
                self.was_up.store(outcome.is_ok(), Ordering::Relaxed);
                outcome
            }
            Err(_) => {
                let seconds = FIRST_ANSWER.as_secs();
                Err(format!(
                    "{} gives no answer within {seconds} s: try again, or ask who runs the server",
                    self.url
                ))
            }
        }
    }

    /// Returns an answer with the cause and the remedy, if it is weir's own and says only that the
    /// server cannot be reached. Other clients of a gateway do not see them; the host of this one
    /// is run by the person who chose the URL.
    pub(super) fn explain(&self, answer: &[u8]) -> Option<Bytes> {
        if answer.len() > MAX_FAILURE || !holds(answer, UNAVAILABLE) {
            return None;
        }
        let status = self.catalog.status();
        let remote = status
            .first()
            .filter(|remote| remote.reach() == UpstreamReach::Down)?;
        // That of the call itself, if the lists have another obstacle.
        let last = remote.health.last_error.as_deref();
        let cause = last.or(remote.cause()).unwrap_or(NO_CAUSE);
        with_text(answer, &format!("{}: {}", self.url, one_line(cause)))
    }

    fn cause(&self, remote: &UpstreamStatus) -> String {
        format!(
            "{}: {}",
            self.url,
            one_line(remote.cause().unwrap_or(NO_CAUSE))
        )
    }
}

/// Returns a failure of weir with another text: an error, or a result with `isError`.
fn with_text(answer: &[u8], text: &str) -> Option<Bytes> {
    let mut answer: Value = serde_json::from_slice(answer).ok()?;
    let (failure, shown) = if answer["error"].is_object() {
        ("/error/data", "/error/message")
    } else {
        (WEIR_FAILURE, "/result/content/0/text")
    };
    // An id beyond 64 bits would not keep its digits.
    if answer.pointer(failure)?["reason"] != UNAVAILABLE || answer["id"].is_f64() {
        return None;
    }
    *answer.pointer_mut(shown)? = Value::from(text);
    Some(Bytes::from(answer.to_string()))
}

fn holds(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_gets_the_cause_as_its_text() {
        let failure = r#"{"reason":"unavailable","upstream":"remote"}"#;
        let error =
            |text: &str| format!(r#"{{"id":1,"error":{{"message":"{text}","data":{failure}}}}}"#);
        let result = |text: &str| {
            format!(
                r#"{{"id":1,"result":{{"content":[{{"text":"{text}"}}],"_meta":{{"{}":{failure}}}}}}}"#,
                weir_wire::meta::WEIR_ERROR
            )
        };
        let tree = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
        for made in [&error as &dyn Fn(&str) -> String, &result] {
            let explained = with_text(made("no").as_bytes(), "the cause").expect("a failure");
            assert_eq!(tree(&explained), tree(made("the cause").as_bytes()));
        }
        for other in [
            r#"{"id":1,"result":{"content":[{"text":"\"reason\":\"unavailable\""}]}}"#,
            r#"{"id":1,"error":{"message":"no","data":{"reason":"timed_out"}}}"#,
            r#"{"id":1,"error":{"message":"unavailable"}}"#,
            r#"{"id":99999999999999999999,"error":{"message":"no","data":{"reason":"unavailable"}}}"#,
        ] {
            assert_eq!(with_text(other.as_bytes(), "the cause"), None, "{other}");
        }
    }

    #[test]
    fn url_with_a_user_is_refused_without_its_password() {
        for url in [
            "http://user:canary@127.0.0.1:1/mcp?token=canary",
            "ftp://user:canary@127.0.0.1:1/mcp",
        ] {
            let why = remote_config(url, None).expect_err(url);
            assert!(!why.contains("canary"), "{why}");
            assert!(why.contains("127.0.0.1:1/mcp"), "{why}");
        }
        assert!(remote_config("http://127.0.0.1:1/mcp?token=canary", None).is_ok());
    }
}
