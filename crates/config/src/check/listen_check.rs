//! `listen`, `public_url`, `tls`, `cors`, `allowed_hosts`, `trusted_proxies`, `legacy_sessions`,
//! `server`.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::Uri;
use http::uri::Authority;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{
    OrOff, RawClientAuth, RawConfig, RawLegacySessions, RawServer, RawTls,
};
use weir_front::settings::{AddressRange, ClientCertificates, ListenerTlsFiles, ServerIdentity};
use weir_front::{ListenerTlsError, check_tls_files};

use crate::check::limits_check;
use crate::checked_config::without_default_port;
use weir_config_file::http_url::has_valid_port;
use weir_system::regular_file;

/// The default address, on loopback, so that a first try exposes no port to the network.
pub(crate) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

pub(super) fn check(
    raw: &RawConfig,
    folder: &std::path::Path,
    report: &mut ConfigReport,
) -> weir_front::FrontSettings {
    let listen = raw.listen.as_deref().map_or(DEFAULT_LISTEN, |text| {
        address(text, &ConfigPath::at("listen"), report)
    });
    weir_front::FrontSettings {
        tls: tls(OrOff::section(raw.tls.as_ref()), folder, report),
        public_url: raw
            .public_url
            .as_deref()
            .and_then(|url| public_url(url, report)),
        hosts: hosts(
            raw.allowed_hosts.as_deref(),
            &ConfigPath::at("allowed_hosts"),
            report,
        ),
        origins: origins(raw, report),
        trusted_proxies: proxies(raw, report),
        sessionless: matches!(raw.legacy_sessions, Some(RawLegacySessions::Optional)),
        http_sse: raw.http_sse.unwrap_or(true),
        server: server(raw.server.as_ref()),
        limits: limits_check::check(raw.limits.as_ref(), report),
        ..weir_front::FrontSettings::at(listen)
    }
}

pub(super) fn address(text: &str, path: &ConfigPath, report: &mut ConfigReport) -> SocketAddr {
    if let Ok(address) = text.parse() {
        return address;
    }
    let hint = match text.rsplit_once(':') {
        Some(("localhost", port)) => format!("write 127.0.0.1:{port}"),
        Some(("" | "*", port)) => {
            format!("write 0.0.0.0:{port} for all interfaces, 127.0.0.1:{port} for this machine")
        }
        None if text.parse::<u16>().is_ok() => format!("write 127.0.0.1:{text}"),
        _ => "write address:port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
    };
    report.add(
        ConfigProblem::error(path.clone(), format!("`{text}` is not an address and port"))
            .hint(hint),
    );
    DEFAULT_LISTEN
}

fn tls(
    raw: Option<&RawTls>,
    folder: &std::path::Path,
    report: &mut ConfigReport,
) -> Option<ListenerTlsFiles> {
    let raw = raw?;
    let clients = client_certificates(raw, folder, report);
    let mut file = |name: &Option<String>, key: &str| {
        let path = ConfigPath::at("tls").key(key);
        match name {
            Some(name) => readable(name, folder, path, report),
            None => {
                if !report.has_error_under(&path) {
                    report.add(
                        ConfigProblem::error(path, "is missing")
                            .hint("TLS needs both `cert` and `key`"),
                    );
                }
                PathBuf::new()
            }
        }
    };
    let files = ListenerTlsFiles {
        cert: file(&raw.cert, "cert"),
        key: file(&raw.key, "key"),
        clients,
    };
    if !report.has_error_under(&ConfigPath::at("tls"))
        && let Err(error) = check_tls_files(&files)
    {
        report.add(unusable(&error));
    }
    Some(files)
}

/// Returns the problem of files that can be opened, at the key of the file.
fn unusable(error: &ListenerTlsError) -> ConfigProblem {
    let tls = ConfigPath::at("tls");
    match error {
        ListenerTlsError::File { key, cause, .. } => {
            ConfigProblem::error(tls.key(key), format!("cannot be used: {cause}"))
        }
        ListenerTlsError::ForeignKey(_) => ConfigProblem::error(
            tls.key("key"),
            "does not belong to the certificate in `cert`",
        )
        .hint("name two files that belong together"),
        ListenerTlsError::Unusable(_) => ConfigProblem::error(tls, error.to_string()),
    }
}

fn readable(
    name: &str,
    folder: &std::path::Path,
    path: ConfigPath,
    report: &mut ConfigReport,
) -> PathBuf {
    let file = folder.join(name);
    if let Err(error) = regular_file::open(&file) {
        report.add(ConfigProblem::error(
            path,
            format!("cannot read {}: {error}", file.display()),
        ));
    }
    file
}

/// Checks the authorities and the need of client certificates.
fn client_certificates(
    raw: &RawTls,
    folder: &std::path::Path,
    report: &mut ConfigReport,
) -> Option<ClientCertificates> {
    let Some(name) = &raw.client_ca else {
        if raw.client_auth.is_some() {
            let problem = ConfigProblem::error(
                ConfigPath::at("tls.client_auth"),
                "has no effect without `client_ca`",
            );
            report.add(
                problem
                    .hint("name the authorities of clients' certificates: client_ca: clients.pem"),
            );
        }
        return None;
    };
    let ca = readable(name, folder, ConfigPath::at("tls.client_ca"), report);
    Some(ClientCertificates {
        ca,
        required: matches!(raw.client_auth, Some(RawClientAuth::Required)),
    })
}

/// True if an authority is the name of one host, with a port or without.
fn is_host_and_port(authority: &Authority) -> bool {
    let host = authority.host();
    // `http` checks the syntax of the host.
    !host.is_empty() && !host.starts_with('.') && !host.contains('*') && has_valid_port(authority)
}

/// Returns the text without a trailing slash if it is only `scheme://host[:port]`.
fn origin(text: &str) -> Option<&str> {
    let uri: Uri = text.parse().ok()?;
    let scheme = uri.scheme_str()?;
    let authority = uri.authority()?;
    let bare = (scheme == "http" || scheme == "https")
        && is_host_and_port(authority)
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    bare.then(|| text.trim_end_matches('/'))
}

fn public_url(text: &str, report: &mut ConfigReport) -> Option<String> {
    let origin = origin(text);
    if origin.is_none() {
        report.add(
            ConfigProblem::error(
                ConfigPath::at("public_url"),
                format!("`{text}` is not of the form scheme://host[:port]"),
            )
            .hint("paths come from `endpoints`; write https://mcp.example.com"),
        );
    }
    origin.map(|origin| without_default_port(origin).to_owned())
}

fn origins(raw: &RawConfig, report: &mut ConfigReport) -> Vec<String> {
    let listed = raw.cors.as_ref().and_then(|cors| cors.origins.as_ref());
    let mut origins = Vec::new();
    for (n, text) in listed.into_iter().flatten().enumerate() {
        match origin(text) {
            Some(origin) => origins.push(origin.to_owned()),
            None => {
                let hint = match text.as_str() {
                    "*" => "every website could call every tool: list the allowed origins",
                    _ if text.contains('*') => "list each origin: there are no wildcards",
                    _ => "write https://app.example.com",
                };
                let message = format!("`{text}` is not an origin");
                report.add(
                    ConfigProblem::error(ConfigPath::at("cors.origins").key(n), message).hint(hint),
                );
            }
        }
    }
    origins
}

pub(super) fn hosts(
    given: Option<&[String]>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<String> {
    let mut hosts = Vec::new();
    for (n, host) in given.into_iter().flatten().enumerate() {
        let authority = host.parse::<Authority>().ok();
        let Some(authority) = authority.filter(is_host_and_port) else {
            let message = format!("`{host}` is not a host");
            let hint = match host.contains('*') || host.starts_with('.') {
                true => "list each name: there are no wildcards",
                false => "write mcp.example.com, or mcp.example.com:8443 for that port only",
            };
            report.add(ConfigProblem::error(path.key(n), message).hint(hint));
            continue;
        };
        if let Some(port @ (80 | 443)) = authority.port_u16() {
            let message = format!("clients leave out port {port}, their scheme's default");
            let hint = format!("write {}, which is allowed at any port", authority.host());
            report.add(ConfigProblem::warning(path.key(n), message).hint(hint));
        }
        hosts.push(host.to_ascii_lowercase());
    }
    hosts
}

fn proxies(raw: &RawConfig, report: &mut ConfigReport) -> Vec<AddressRange> {
    let mut networks = Vec::new();
    for (n, text) in raw.trusted_proxies.iter().flatten().enumerate() {
        let path = ConfigPath::at("trusted_proxies").key(n);
        let network: AddressRange = match text.parse() {
            Ok(network) => network,
            Err(error) => {
                report.add(ConfigProblem::error(path, format!("{error}")));
                continue;
            }
        };
        if network.is_everything() {
            let message = "every client could forge the address that its requests come from";
            report.add(ConfigProblem::warning(path, message));
        }
        networks.push(network);
    }
    networks
}

fn server(raw: Option<&RawServer>) -> ServerIdentity {
    let own = ServerIdentity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..ServerIdentity::default()
    };
    let Some(raw) = raw else { return own };
    ServerIdentity {
        name: raw.name.clone().unwrap_or(own.name),
        title: raw.title.clone(),
        version: own.version,
    }
}
