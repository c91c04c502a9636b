//! `cluster`: the listener for other replicas.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use weir_cluster::ClusterSettings;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{RawCluster, RawConfig, Time};

use crate::check::{admin_check, listen_check, store_check};

/// The hint with an example of the section.
const EXAMPLE: &str =
    "write cluster: { listen: \"0.0.0.0:8082\", advertise: \"${WEIR_POD_IP}:8082\" }";
/// The times of a lease: a shorter one is lost with each pause of the network.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
/// The hint with an example of `advertise`.
const ADVERTISE_EXAMPLE: &str =
    "write the host:port at which other replicas reach this one, such as \"${WEIR_POD_IP}:8082\"";

/// Checks the listener for other replicas. `others` are the listeners for clients and for operators.
pub(super) fn check(
    raw: &RawConfig,
    others: [Option<SocketAddr>; 2],
    report: &mut ConfigReport,
) -> Option<ClusterSettings> {
    let path = ConfigPath::at("cluster");
    match (&raw.cluster, store_check::is_shared(raw)) {
        (None, false) => None,
        (None, true) => {
            if !report.has_error_under(&path) {
                let problem = ConfigProblem::error(
                    ConfigPath::at("store"),
                    "is shared: replicas need `cluster`, the listener for requests between them",
                );
                report.add(problem.hint(EXAMPLE));
            }
            None
        }
        (Some(_), false) => {
            if !report.has_error_under(&ConfigPath::at("store")) {
                let problem = ConfigProblem::error(path, "has no effect without a shared `store`");
                report.add(problem.hint("write store: redis://host:6379, or remove the key"));
            }
            None
        }
        (Some(section), true) => {
            let listen = listen(section, others, report);
            let advertise = advertise(section, listen, report);
            let lease = lease(section, report);
            listen.map(|listen| ClusterSettings {
                listen,
                advertise,
                lease,
            })
        }
    }
}

/// Checks `listen`.
fn listen(
    section: &RawCluster,
    others: [Option<SocketAddr>; 2],
    report: &mut ConfigReport,
) -> Option<SocketAddr> {
    let path = ConfigPath::at("cluster.listen");
    let Some(text) = &section.listen else {
        if !report.has_error_under(&path) {
            report.add(ConfigProblem::error(path, "is missing").hint(EXAMPLE));
        }
        return None;
    };
    let address = listen_check::address(text, &path, report);
    if report.has_error_under(&path) {
        return None;
    }
    for (clients, other) in ["clients", "operators"].into_iter().zip(others) {
        let Some(other) = other else { continue };
        if address.port() != 0
            && address.port() == other.port()
            && admin_check::same_host(address, other)
        {
            let message = format!("{address} is the address of the listener for {clients}");
            report.add(
                ConfigProblem::error(path.clone(), message)
                    .hint("give the listener for replicas a port of its own"),
            );
        }
    }
    Some(address)
}

/// Checks `lease`.
fn lease(section: &RawCluster, report: &mut ConfigReport) -> Duration {
    let Some(Time(lease)) = section.lease else {
        return ClusterSettings::DEFAULT_LEASE;
    };
    if !LEASES.contains(&lease) {
        let path = ConfigPath::at("cluster.lease");
        report.add(ConfigProblem::error(path, "must be 1 second to 5 minutes"));
    }
    lease
}

/// Checks `advertise`.
fn advertise(
    section: &RawCluster,
    listen: Option<SocketAddr>,
    report: &mut ConfigReport,
) -> Option<Arc<str>> {
    let path = ConfigPath::at("cluster.advertise");
    match &section.advertise {
        Some(text) => {
            let address = reachable_address(text);
            if address.is_none() {
                let message = format!("`{text}` is not the address of one replica");
                report.add(ConfigProblem::error(path, message).hint(ADVERTISE_EXAMPLE));
            }
            address.map(Arc::from)
        }
        None => {
            let unspecified = listen.filter(|listen| listen.ip().is_unspecified());
            if let Some(listen) = unspecified
                && !report.has_error_under(&path)
            {
                let message = format!("is missing: other replicas cannot connect to {listen}");
                report.add(ConfigProblem::error(path, message).hint(ADVERTISE_EXAMPLE));
            }
            None
        }
    }
}

/// Returns `host:port` if it can be the address of a replica. An IPv6 address may come without
/// brackets, because variables of orchestrators have none.
fn reachable_address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|&port| port > 0)?;
    let text = match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    };
    let authority: Authority = text.parse().ok()?;
    let host = authority.host().trim_matches(['[', ']']);
    let is_unspecified = host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
    let is_host = !host.is_empty() && !text.contains('@') && !is_unspecified;
    (is_host && authority.port_u16().is_some()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_address_has_host_and_port() {
        for (given, address) in [
            ("10.0.0.7:8082", "10.0.0.7:8082"),
            ("weir-0.weir:8082", "weir-0.weir:8082"),
            ("[fd00::7]:8082", "[fd00::7]:8082"),
            ("fd00::7:8082", "[fd00::7]:8082"),
        ] {
            assert_eq!(
                reachable_address(given).as_deref(),
                Some(address),
                "{given}"
            );
        }
        for bad in [
            "",
            "10.0.0.7",
            ":8082",
            "10.0.0.7:0",
            "10.0.0.7:http",
            "0.0.0.0:8082",
            "[::]:8082",
            "https://a:8082",
            "u@a:8082",
            "a b:8082",
        ] {
            assert_eq!(reachable_address(bad), None, "{bad}");
        }
    }
}
