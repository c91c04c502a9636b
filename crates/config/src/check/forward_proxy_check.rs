//! `forward_proxy`.

use std::sync::Arc;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::env::Environment;
use weir_config_file::placeholder;
use weir_config_file::raw::{RawForwardProxy, RawProxyKeys};
use weir_upstream::{ForwardProxy, ProxyBypass};

const URL_HINT: &str = "write http://host:port, or http://USER:PASSWORD@host:port; percent-encode special characters: `@` is %40, `/` is %2F";

/// Returns the proxy; absent without one and after an error. No message repeats the URL.
pub(super) fn check(
    raw: Option<RawForwardProxy>,
    environment: Environment<'_>,
    report: &mut ConfigReport,
) -> Option<Arc<ForwardProxy>> {
    let path = ConfigPath::at("forward_proxy");
    let proxy = match raw? {
        RawForwardProxy::Environment => of_environment(environment, &path, report),
        RawForwardProxy::Keys(keys) => of_keys(keys, &path, report),
    };
    proxy.map(Arc::new)
}

fn of_environment(
    environment: Environment<'_>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<ForwardProxy> {
    let found = match ForwardProxy::from_environment(environment) {
        Ok(found) => found,
        Err((variable, error)) => {
            let text = format!("uses the variable {variable}, which {error}");
            report.add(ConfigProblem::error(path.clone(), text).hint(URL_HINT));
            return None;
        }
    };
    let Some(found) = found else {
        let text = "has no effect: neither HTTPS_PROXY nor ALL_PROXY is set";
        report.add(ConfigProblem::note(path.clone(), text));
        return None;
    };
    for entry in found.ignored {
        let text = format!("ignores `{entry}` in NO_PROXY");
        let hint = "use names, addresses, networks such as 10.0.0.0/8, or `*` there";
        report.add(ConfigProblem::warning(path.clone(), text).hint(hint));
    }
    Some(found.proxy)
}

fn of_keys(
    keys: RawProxyKeys,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<ForwardProxy> {
    let mut bypass = ProxyBypass::default();
    for (n, entry) in keys.bypass.iter().flatten().enumerate() {
        if let Err(error) = bypass.add(entry) {
            let path = path.key("bypass").key(n);
            report.add(ConfigProblem::error(path, error.to_string()));
        }
    }
    let path = path.key("url");
    let Some(url) = keys.url else {
        if !report.has_error_under(&path) {
            report.add(ConfigProblem::error(path, "is missing").hint(URL_HINT));
        }
        return None;
    };
    let user = url.expose().rsplit_once('@').map(|(user, _)| user);
    if let Some((_, password)) = user.and_then(|user| user.rsplit_once(':')) {
        placeholder::report_placeholder("password", password, &path, report);
    }
    ForwardProxy::new(url.expose(), bypass)
        .map_err(|error| report.add(ConfigProblem::error(path, error.to_string()).hint(URL_HINT)))
        .ok()
}
