//! `url` and `urls` of an upstream.

use http::Uri;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::RawUpstreamUrl;
use weir_upstream::InstanceSettings;

use weir_config_file::http_url::{HttpUrlError, http_url};
use weir_config_file::placeholder;

/// The largest weight.
const MAX_WEIGHT: u32 = 1_000_000;

/// The URLs of an upstream.
pub(super) struct UpstreamUrls {
    /// The URL, of several the first.
    pub(super) first: Uri,
    /// The instances, if there are several.
    pub(super) instances: Vec<InstanceSettings>,
}

impl UpstreamUrls {
    /// Returns all URLs, each with the path of its key.
    pub(super) fn all(&self, path: &ConfigPath) -> Vec<(&Uri, ConfigPath)> {
        if self.instances.is_empty() {
            return vec![(&self.first, path.key("url"))];
        }
        let all = self.instances.iter().enumerate();
        all.map(|(nth, one)| (&one.url, path.key("urls").key(nth)))
            .collect()
    }
}

/// Checks `url`, or `urls` if there is no `url`. Returns no value after an error.
pub(super) fn check(
    url: Option<String>,
    urls: Option<Vec<RawUpstreamUrl>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<UpstreamUrls> {
    if let Some(text) = url {
        return Some(UpstreamUrls {
            first: check_url(&text, &path.key("url"), report)?,
            instances: Vec::new(),
        });
    }
    let path = path.key("urls");
    let urls = urls?;
    let given = urls.len();
    let instances: Vec<_> = urls
        .into_iter()
        .enumerate()
        .filter_map(|(nth, raw)| check_instance(raw, &path.key(nth), report))
        .collect();
    if let Some(text) = fault(&instances, given) {
        report.add(ConfigProblem::error(path, text));
        return None;
    }
    report_duplicates(&instances, &path, report);
    let first = instances.first()?.url.clone();
    // A server with one URL needs no choice.
    let instances = if instances.len() > 1 {
        instances
    } else {
        Vec::new()
    };
    Some(UpstreamUrls { first, instances })
}

/// Returns the fault of the list as a whole. `given` is the number of its items, some of which may
/// have had errors.
fn fault(instances: &[InstanceSettings], given: usize) -> Option<String> {
    if given == 0 {
        return Some("is empty: write at least one URL".to_owned());
    }
    if given > InstanceSettings::MAX_INSTANCES {
        return Some(format!(
            "has more than {} URLs",
            InstanceSettings::MAX_INSTANCES
        ));
    }
    let is_unused = instances.len() == given && instances.iter().all(|one| one.weight == 0);
    is_unused.then(|| "gives every URL a weight of 0: no URL would get calls".to_owned())
}

fn report_duplicates(instances: &[InstanceSettings], path: &ConfigPath, report: &mut ConfigReport) {
    for (nth, one) in instances.iter().enumerate() {
        let before = &instances[..nth];
        if let Some(first) = before.iter().position(|other| other.url == one.url) {
            // The text may hold a secret from the environment, so it is not repeated.
            let text = format!("is the same URL as urls.{first}");
            let problem = ConfigProblem::error(path.key(nth), text);
            report.add(problem.hint("give one of them a larger `weight` instead"));
        }
    }
}

fn check_instance(
    raw: RawUpstreamUrl,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<InstanceSettings> {
    let (text, path, weight) = match raw {
        RawUpstreamUrl::Plain(text) => (text, path.clone(), None),
        RawUpstreamUrl::Weighted(weighted) => {
            let Some(text) = weighted.url else {
                if !report.has_error_under(path) {
                    let problem = ConfigProblem::error(path.key("url"), "is missing");
                    report.add(problem.hint("write { url: http://host:port/mcp, weight: 10 }"));
                }
                return None;
            };
            if weighted.weight.is_some_and(|weight| weight > MAX_WEIGHT) {
                report.add(ConfigProblem::error(
                    path.key("weight"),
                    format!("must be at most {MAX_WEIGHT}"),
                ));
            }
            (text, path.key("url"), weighted.weight)
        }
    };
    Some(InstanceSettings {
        url: check_url(&text, &path, report)?,
        weight: weight.unwrap_or(InstanceSettings::DEFAULT_WEIGHT),
    })
}

fn check_url(text: &str, path: &ConfigPath, report: &mut ConfigReport) -> Option<Uri> {
    let url = match http_url(text) {
        Ok(url) => url,
        Err(error) => {
            let hint = match error {
                HttpUrlError::UserInfo => {
                    "write headers: { Authorization: \"Basic ${CREDENTIALS}\" }"
                }
                HttpUrlError::NoHttp | HttpUrlError::Port => "write http://host:port/mcp",
            };
            report.add(ConfigProblem::error(path.clone(), error.to_string()).hint(hint));
            return None;
        }
    };
    let query = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|member| member.split_once('='));
    query.for_each(|(name, value)| placeholder::report_placeholder(name, value, path, report));
    Some(url)
}
