//! Upstreams at an address of this weir itself. weir would list its own tools as those of an
//! upstream, again and again, under longer and longer names.

use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;

use http::Uri;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::local_host::is_local_host;
use weir_front::FrontSettings;
use weir_upstream::{HttpUpstreamSettings, StdioUpstreamSettings, TransportSettings};

use crate::default_endpoint_path::DEFAULT_ENDPOINT;

/// The beginning of the warning.
pub const OWN_ADDRESS: &str = "leads to this weir itself";

/// The URLs under which clients reach this weir.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnAddresses {
    /// The listener's address. Absent if weir has no listener, or one with a port that the system
    /// chooses.
    listen: Option<SocketAddr>,
    /// The public URL, which a proxy may share between weir and other servers.
    public: Option<Uri>,
    /// The paths of the config's endpoints.
    paths: Vec<String>,
}

impl OwnAddresses {
    pub(super) fn of(front: &FrontSettings, paths: Vec<String>) -> Self {
        Self {
            listen: Some(front.listen).filter(|listen| listen.port() != 0),
            public: front.public_url.as_deref().and_then(|url| url.parse().ok()),
            paths,
        }
    }

    /// Reports if a request to this URL comes back to this weir.
    fn contains(&self, url: &Uri) -> bool {
        let Some(host) = url.host() else {
            return false;
        };
        let is_listener = self.listen.is_some_and(|listen| {
            port(url) == Some(listen.port()) && is_host_of(host, listen.ip())
        });
        is_listener || self.is_public(url, host)
    }

    fn is_public(&self, url: &Uri, host: &str) -> bool {
        let Some(public) = &self.public else {
            return false;
        };
        let is_origin = url.scheme() == public.scheme()
            && public
                .host()
                .is_some_and(|own| own.eq_ignore_ascii_case(host))
            && port(url) == port(public);
        let path = url.path().trim_end_matches('/');
        let is_default = path
            .strip_prefix(DEFAULT_ENDPOINT)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        is_origin && (is_default || self.paths.iter().any(|own| own == path))
    }

    /// Warns of an upstream that is this weir.
    pub(super) fn check(
        &self,
        transport: &TransportSettings,
        path: &ConfigPath,
        report: &mut ConfigReport,
    ) {
        let found = match transport {
            TransportSettings::Http(http) => self.own_url(http, path),
            TransportSettings::Stdio(stdio) => self.own_argument(stdio, path),
        };
        if let Some(path) = found {
            let text = format!("{OWN_ADDRESS}, so that its lists would contain themselves");
            let problem = ConfigProblem::warning(path, text);
            report.add(problem.hint(
                "remove this upstream; if another server is meant, correct its address or `listen`",
            ));
        }
    }

    fn own_url(&self, http: &HttpUpstreamSettings, path: &ConfigPath) -> Option<ConfigPath> {
        if http.instances.is_empty() {
            return self.contains(&http.url).then(|| path.key("url"));
        }
        let mut instances = http.instances.iter();
        let nth = instances.position(|one| self.contains(&one.url))?;
        Some(path.key("urls").key(nth))
    }

    /// Returns the path of the URL in a command such as `weir stdio URL`.
    fn own_argument(&self, stdio: &StdioUpstreamSettings, path: &ConfigPath) -> Option<ConfigPath> {
        let program = FilePath::new(&stdio.command).file_name()?;
        if program != "weir" || stdio.args.first().is_none_or(|first| first != "stdio") {
            return None;
        }
        let mut arguments = stdio.args.iter();
        let is_own = |text: &String| text.parse().is_ok_and(|url| self.contains(&url));
        let nth = arguments.position(is_own)?;
        Some(path.key("args").key(nth))
    }
}

/// Returns the port of a URL, or that of its scheme.
fn port(url: &Uri) -> Option<u16> {
    url.port_u16().or(match url.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    })
}

/// Reports if a URL's host is the address of a listener, or one of those behind the address of all
/// interfaces that are certainly this machine's.
fn is_host_of(host: &str, listener: IpAddr) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = bare.parse().ok();
    let is_name = bare.eq_ignore_ascii_case("localhost");
    if listener.is_unspecified() {
        return is_local_host(host) || address.is_some_and(|address| address.is_unspecified());
    }
    address == Some(listener) || (is_name && listener.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_urls_are_told_from_those_of_other_servers() {
        let own = |listen: &str, public: Option<&str>| OwnAddresses {
            listen: Some(listen.parse().expect("an address")),
            public: public.map(|url| url.parse().expect("a URL")),
            paths: vec!["/tools".to_owned()],
        };
        let public = Some("https://mcp.example.com");
        for (addresses, url, expected) in [
            (
                own("127.0.0.1:8080", None),
                "http://127.0.0.1:8080/mcp",
                true,
            ),
            (own("127.0.0.1:8080", None), "http://LOCALHOST:8080/", true),
            (
                own("127.0.0.1:8080", None),
                "http://127.0.0.1:8081/mcp",
                false,
            ),
            (
                own("127.0.0.1:8080", None),
                "http://127.0.0.2:8080/mcp",
                false,
            ),
            (own("127.0.0.1:80", None), "http://127.0.0.1/mcp", true),
            (own("127.0.0.1:443", None), "https://localhost/mcp", true),
            (own("0.0.0.0:8080", None), "http://127.0.0.2:8080/mcp", true),
            (own("[::]:8080", None), "http://[::1]:8080/mcp", true),
            (own("[::]:8080", None), "http://10.0.0.7:8080/mcp", false),
            (own("10.0.0.7:8080", None), "http://10.0.0.7:8080/mcp", true),
            (
                own("10.0.0.7:8080", None),
                "http://localhost:8080/mcp",
                false,
            ),
            (
                own("0.0.0.0:1", public),
                "https://MCP.example.com/mcp",
                true,
            ),
            (
                own("0.0.0.0:1", public),
                "https://mcp.example.com:443/mcp/a",
                true,
            ),
            (
                own("0.0.0.0:1", public),
                "https://mcp.example.com/tools/",
                true,
            ),
            // A proxy leads to other servers under the same name.
            (
                own("0.0.0.0:1", public),
                "https://mcp.example.com/other/mcp",
                false,
            ),
            (
                own("0.0.0.0:1", public),
                "https://mcp.example.com/mcp2",
                false,
            ),
            (
                own("0.0.0.0:1", public),
                "http://mcp.example.com/mcp",
                false,
            ),
        ] {
            let url: Uri = url.parse().expect("a URL");
            assert_eq!(addresses.contains(&url), expected, "{url} {addresses:?}");
        }
    }
}
