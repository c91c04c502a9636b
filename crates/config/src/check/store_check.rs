//! `store`: the memory of the process, or the Redis or Valkey that replicas share.

use std::path::Path as FilePath;
use std::time::Duration;

use http::Uri;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_secret::ConfigSecret;
use weir_config_file::local_host::is_local_host;
use weir_config_file::raw::{
    MEMORY_STORE, RawConfig, RawSharedStore, RawStore, RawStoreKind, RawStoreUrls, Time,
};
use weir_redis_store::{RedisSettings, RedisStartError, RedisTopology};
use weir_upstream::CaFile;

use crate::checked_config::StorePlan;
use weir_config_file::placeholder;

/// The default of `namespace`.
const DEFAULT_NAMESPACE: &str = "weir";
/// The longest `namespace`. It stands in every key of the store.
const MAX_NAMESPACE: usize = 64;
/// The default of `timeout`: many times the usual time of a command, and hardly noticed by a
/// client that waits for it.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
/// The shortest `timeout`. Below it, a pause of the network looks like a store that is away.
const MIN_TIMEOUT: Duration = Duration::from_millis(5);
/// The longest `timeout`. Clients would take a gateway that waits longer for broken.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// The port of Redis and Valkey.
const SERVER_PORT: u16 = 6379;
/// The port of sentinels.
const SENTINEL_PORT: u16 = 26379;
/// The hint for a text that is no URL of a store.
const URL_HINT: &str = "write redis://host:6379, or rediss://host:6379 for TLS";

/// Reports if the config has a shared store, even one with errors.
pub(super) fn is_shared(raw: &RawConfig) -> bool {
    match &raw.store {
        None => false,
        Some(RawStore::Text(text)) => text.expose().contains("://"),
        Some(RawStore::Shared(_)) => true,
    }
}

/// Checks the store. Relative paths start at `folder`.
pub(super) fn check(raw: &RawConfig, folder: &FilePath, report: &mut ConfigReport) -> StorePlan {
    let path = ConfigPath::at("store");
    let plan = match &raw.store {
        None => StorePlan::Memory,
        Some(RawStore::Text(text)) if text.expose() == MEMORY_STORE => StorePlan::Memory,
        Some(RawStore::Text(_)) if !is_shared(raw) => {
            // The text may hold a secret from the environment, so it is not repeated.
            let problem = ConfigProblem::error(path.clone(), "is not a store");
            report.add(problem.hint("write memory, or redis://host:6379"));
            StorePlan::Memory
        }
        Some(RawStore::Text(text)) => {
            let urls = [(path.clone(), text)];
            redis(&RawSharedStore::default(), &urls, folder, report)
        }
        Some(RawStore::Shared(section)) => {
            let urls = listed_urls(section, &path, report);
            redis(section, &urls, folder, report)
        }
    };
    if is_shared(raw) && raw.keys.is_none() {
        let problem = ConfigProblem::error(path, "is shared: replicas need the same sealing keys");
        report
            .add(problem.hint("`weir keygen` prints an entry for `keys`; give it to all replicas"));
    }
    plan
}

/// Returns the URLs of a section, each with its path.
fn listed_urls<'a>(
    section: &'a RawSharedStore,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(ConfigPath, &'a ConfigSecret)> {
    let path = path.key("url");
    let urls: Vec<_> = match &section.url {
        Some(RawStoreUrls::One(url)) => return vec![(path, url)],
        Some(RawStoreUrls::List(urls)) => {
            let with_path = urls.iter().enumerate();
            with_path.map(|(n, url)| (path.key(n), url)).collect()
        }
        None => Vec::new(),
    };
    if urls.is_empty() && !report.has_error_under(&path) {
        let message = match section.url {
            None => "is missing",
            Some(_) => "is empty",
        };
        report.add(ConfigProblem::error(path, message).hint(URL_HINT));
    } else if urls.len() > 1 && matches!(section.kind, None | Some(RawStoreKind::Single)) {
        let problem = ConfigProblem::error(path, "has several URLs, and `kind` is `single`");
        report.add(problem.hint("write one URL, or kind: cluster, or kind: sentinel"));
    }
    urls
}

/// Returns the settings of a shared store.
fn redis(
    section: &RawSharedStore,
    urls: &[(ConfigPath, &ConfigSecret)],
    folder: &FilePath,
    report: &mut ConfigReport,
) -> StorePlan {
    let kind = section.kind.unwrap_or(RawStoreKind::Single);
    let parsed: Vec<StoreUrl> = urls
        .iter()
        .filter_map(|(path, url)| store_url(url, kind, path, report))
        .collect();
    let tls = parsed.iter().filter(|url| url.tls).count();
    if tls > 0 && tls < parsed.len() {
        let problem = ConfigProblem::error(
            ConfigPath::at("store.url"),
            "has URLs with TLS and without it",
        );
        report.add(problem.hint("write rediss:// for all of them"));
    }
    let command_timeout = section.timeout.map_or(DEFAULT_TIMEOUT, |Time(time)| time);
    if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&command_timeout) {
        report.add(ConfigProblem::error(
            ConfigPath::at("store.timeout"),
            "must be from 5ms to 5s",
        ));
    }
    let settings = RedisSettings {
        urls: parsed.into_iter().map(|url| url.text).collect(),
        topology: topology(kind, section.primary.as_deref(), report),
        authorities: authorities(section, tls > 0, folder, report),
        namespace: namespace(section.namespace.as_deref(), report),
        command_timeout,
    };
    if !report.has_error_under(&ConfigPath::at("store")) {
        check_as_client(&settings, urls, report);
    }
    StorePlan::Redis(settings)
}

/// Reports settings that the client of the store refuses. No message repeats a URL.
fn check_as_client(
    settings: &RedisSettings,
    urls: &[(ConfigPath, &ConfigSecret)],
    report: &mut ConfigReport,
) {
    let Err(error) = settings.check() else {
        return;
    };
    let problem = match error {
        RedisStartError::BadUrl { number, reason } => {
            let url = urls.get(number - 1);
            let path = url.map_or_else(|| ConfigPath::at("store.url"), |(path, _)| path.clone());
            ConfigProblem::error(path, format!("cannot be used: {reason}"))
        }
        RedisStartError::BadSettings(reason) => ConfigProblem::error(
            ConfigPath::at("store.url"),
            format!("has URLs that cannot be used together: {reason}"),
        ),
        error @ RedisStartError::NoUrl => {
            ConfigProblem::error(ConfigPath::at("store"), error.to_string())
        }
    };
    report.add(problem);
}

/// Checks `kind` and `primary`.
fn topology(kind: RawStoreKind, primary: Option<&str>, report: &mut ConfigReport) -> RedisTopology {
    let path = ConfigPath::at("store.primary");
    let topology = match kind {
        RawStoreKind::Single => RedisTopology::Single,
        RawStoreKind::Cluster => RedisTopology::Cluster,
        RawStoreKind::Sentinel => {
            let primary = primary.unwrap_or_default();
            if primary.is_empty() && !report.has_error_under(&path) {
                let problem = ConfigProblem::error(path, "is missing or empty");
                report.add(problem.hint("write the name of the server at the sentinels: mymaster"));
            }
            let primary = primary.to_owned();
            return RedisTopology::Sentinel { primary };
        }
    };
    if primary.is_some() {
        report.add(ConfigProblem::error(
            path,
            "has no effect without `kind: sentinel`",
        ));
    }
    topology
}

/// Reads `ca_file`.
fn authorities(
    section: &RawSharedStore,
    tls: bool,
    folder: &FilePath,
    report: &mut ConfigReport,
) -> Option<Vec<u8>> {
    let file = folder.join(section.ca_file.as_ref()?);
    let path = ConfigPath::at("store.ca_file");
    if !tls && !report.has_error_under(&ConfigPath::at("store.url")) {
        let problem = ConfigProblem::error(path.clone(), "has no effect without TLS");
        report.add(problem.hint("write rediss://, or remove the key"));
    }
    CaFile::read(&file)
        .map_err(|error| report.add(ConfigProblem::error(path, error.to_string())))
        .ok()
        .map(|file| file.pem().to_vec())
}

/// Checks `namespace`.
fn namespace(raw: Option<&str>, report: &mut ConfigReport) -> String {
    let name = raw.unwrap_or(DEFAULT_NAMESPACE);
    let is_name = (1..=MAX_NAMESPACE).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        let problem = ConfigProblem::error(ConfigPath::at("store.namespace"), "is not a name");
        report.add(problem.hint("write 1 to 64 letters, digits, `-`, `_` or `.`"));
    }
    name.to_owned()
}

/// A URL of a store.
struct StoreUrl {
    /// The URL with the scheme `redis` or `rediss`, and a port.
    text: String,
    /// True if the scheme means TLS.
    tls: bool,
    host: String,
    password: Option<String>,
}

/// Checks a URL and its password. No message repeats the URL.
fn store_url(
    url: &ConfigSecret,
    kind: RawStoreKind,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<StoreUrl> {
    let url = match parse_url(url.expose(), kind) {
        Ok(url) => url,
        Err((message, hint)) => {
            report.add(ConfigProblem::error(path.clone(), message).hint(hint));
            return None;
        }
    };
    if let Some(password) = &url.password {
        placeholder::report_placeholder("password", password, path, report);
        if !url.tls && !is_local_host(&url.host) {
            let message = "sends its password to another machine unencrypted";
            let problem = ConfigProblem::warning(path.clone(), message);
            report.add(problem.hint("use rediss://, if the server has TLS"));
        }
    }
    Some(url)
}

/// Parses a URL. An error is a message and a hint.
fn parse_url(text: &str, kind: RawStoreKind) -> Result<StoreUrl, (&'static str, &'static str)> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let tls = match scheme {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err(("is not a redis or rediss URL", URL_HINT)),
    };
    let encode =
        "percent-encode special characters of the password: `/` is %2F, `@` is %40, `#` is %23";
    if rest.contains(['?', '#']) {
        return Err(("must have no query and no fragment", encode));
    }
    let invalid = ("is not a valid URL", encode);
    // `http` knows the syntax of the authority, which is the same for every scheme.
    let uri: Uri = format!("http://{rest}").parse().map_err(|_| invalid)?;
    let authority = uri.authority().ok_or(invalid)?;
    let (user, address) = authority
        .as_str()
        .rsplit_once('@')
        .map_or((None, authority.as_str()), |(user, address)| {
            (Some(user), address)
        });
    let host = authority.host();
    let port = match address.strip_prefix(host).ok_or(invalid)? {
        "" if kind == RawStoreKind::Sentinel => SENTINEL_PORT,
        "" => SERVER_PORT,
        port => port
            .trim_start_matches(':')
            .parse()
            .ok()
            .filter(|&port| port > 0)
            .ok_or(invalid)?,
    };
    if host.is_empty() || user.is_some_and(|user| user.contains('@')) {
        return Err(invalid);
    }
    let database = uri.path().trim_start_matches('/');
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Err(("has a path that is not the number of a database", encode));
    }
    if kind == RawStoreKind::Cluster && !matches!(database, "" | "0") {
        return Err((
            "names a database, and a cluster has only 0",
            "remove the path",
        ));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let credentials = user.map_or_else(String::new, |user| format!("{user}@"));
    let password = user.and_then(|user| user.split_once(':'));
    Ok(StoreUrl {
        text: format!("{scheme}://{credentials}{host}:{port}/{database}"),
        tls,
        host: host.to_owned(),
        password: password.map(|(_, password)| password.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gets_scheme_and_port() {
        let text = |text: &str, kind| parse_url(text, kind).map(|url| url.text);
        let (single, sentinel) = (RawStoreKind::Single, RawStoreKind::Sentinel);
        for (given, kind, parsed) in [
            ("redis://h", single, "redis://h:6379/"),
            ("valkey://h:7000/2", single, "redis://h:7000/2"),
            (
                "valkeys://u:p%2F@[::1]",
                single,
                "rediss://u:p%2F@[::1]:6379/",
            ),
            ("rediss://:p@h", sentinel, "rediss://:p@h:26379/"),
        ] {
            assert_eq!(text(given, kind).as_deref(), Ok(parsed), "{given}");
        }
        for bad in [
            "redis:/h",
            "redis://",
            "redis://:6379",
            "redis://h:port",
            "redis://h:0",
            "redis://u:a/b@h",
            "redis://u:a@b@h",
            "redis://u:a#b@h",
            "redis://h/zero",
            "redis://h/#insecure",
            "redis://h/?protocol=resp3",
            "redis+unix:///tmp/s",
        ] {
            assert!(parse_url(bad, single).is_err(), "{bad}");
        }
    }
}
