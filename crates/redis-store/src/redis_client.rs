//! Opens connections to a server, to the primary server that sentinels know, or to a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::PubSub;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisError, RedisResult, TlsCertificates, TlsMode,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::redis_connection::RedisConnection;
use crate::server_dialer::ServerDialer;
use crate::settings::{RedisSettings, RedisTopology};
use crate::start_error::RedisStartError;

/// The longest time for a connection to one server, with its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time that a node of a cluster gets for one command. The caller's limit is shorter in
/// most cases.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time for a subscription at one node of a cluster: another one may answer.
const NODE_SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Attempts of one command at a cluster, so that a failover of a node is bridged.
const CLUSTER_RETRIES: u32 = 4;

/// The servers of the settings.
pub(crate) enum RedisClient {
    /// One server.
    Single(Client),
    /// The primary server behind sentinels, with the ways to ask them: with the credentials of the
    /// URL, and without, because sentinels often have no password. The first that works is used.
    Sentinel(Mutex<Vec<SentinelClient>>),
    /// A cluster, and its configured nodes one by one, for subscriptions.
    Cluster(Box<ClusterClient>, ClusterNodes),
    /// One server, reached by another way than a socket.
    Dialed(Arc<dyn ServerDialer>),
}

/// The configured nodes of a cluster.
pub(crate) struct ClusterNodes {
    clients: Vec<Client>,
    /// The number of the node that is asked next. A node that answered too late is asked again after
    /// all others.
    next: AtomicUsize,
}

impl RedisSettings {
    /// Checks the settings as the start of a gateway does, without a connection.
    ///
    /// # Errors
    ///
    /// A start with these settings would fail.
    pub fn check(&self) -> Result<(), RedisStartError> {
        RedisClient::new(self).map(drop)
    }
}

impl RedisClient {
    /// Checks the settings; it connects to no server.
    pub(crate) fn new(settings: &RedisSettings) -> Result<Self, RedisStartError> {
        let servers = parse_urls(&settings.urls)?;
        let Some(first) = servers.first() else {
            return Err(RedisStartError::NoUrl);
        };
        let has_tls = servers.iter().any(is_tls);
        if has_tls {
            // It fails if the process has chosen one already; that one is used then.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let authorities = settings.authorities.clone().filter(|_| has_tls);
        let certificates = authorities.map(|pem| TlsCertificates {
            client_tls: None,
            root_cert: Some(pem),
        });
        match &settings.topology {
            RedisTopology::Single => {
                open_client(first.clone(), certificates.as_ref()).map(Self::Single)
            }
            RedisTopology::Sentinel { primary } => {
                let with = sentinel_client(&servers, primary, certificates.as_ref(), true)?;
                let mut ways = vec![with];
                if first.redis_settings().password().is_some() {
                    ways.push(sentinel_client(
                        &servers,
                        primary,
                        certificates.as_ref(),
                        false,
                    )?);
                }
                Ok(Self::Sentinel(Mutex::new(ways)))
            }
            RedisTopology::Cluster => cluster_client(servers, certificates),
        }
    }

    /// Opens a connection for commands.
    pub(crate) async fn open(&self) -> RedisResult<RedisConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let connection = match self {
            Self::Cluster(cluster, _) => {
                let connection = cluster.get_async_connection().await?;
                return Ok(RedisConnection::Cluster(connection));
            }
            Self::Dialed(dialer) => dialer.open(config).await?,
            Self::Single(_) | Self::Sentinel(_) => {
                let server = self.current_server().await?;
                server
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?
            }
        };
        Ok(RedisConnection::Server(connection))
    }

    /// Subscribes to a channel, on a connection of its own.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<PubSub> {
        let mut subscription = match self {
            Self::Cluster(_, nodes) => return nodes.subscribe(channel).await,
            Self::Dialed(dialer) => dialer.open_subscriber().await?,
            Self::Single(_) | Self::Sentinel(_) => {
                self.current_server().await?.get_async_pubsub().await?
            }
        };
        subscription.subscribe(channel).await?;
        Ok(subscription)
    }

    async fn current_server(&self) -> RedisResult<Client> {
        match self {
            Self::Single(client) => Ok(client.clone()),
            Self::Sentinel(ways) => {
                let mut outcome = Err(no_server());
                for way in ways.lock().await.iter_mut() {
                    outcome = way.async_get_client().await;
                    if outcome.is_ok() {
                        break;
                    }
                }
                outcome
            }
            Self::Cluster(..) | Self::Dialed(_) => Err(no_server()),
        }
    }
}

impl ClusterNodes {
    fn new(clients: Vec<Client>) -> Self {
        Self {
            clients,
            next: AtomicUsize::new(0),
        }
    }

    /// Subscribes at the first node that answers in time. The nodes forward messages to each other.
    async fn subscribe(&self, channel: &str) -> RedisResult<PubSub> {
        let mut outcome = Err(no_server());
        for _ in &self.clients {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len();
            let subscribing = async {
                let mut subscription = self.clients[number].get_async_pubsub().await?;
                subscription.subscribe(channel).await?;
                Ok(subscription)
            };
            outcome = match timeout(NODE_SUBSCRIBE_TIMEOUT, subscribing).await {
                Ok(outcome) => outcome,
                Err(_) => Err(RedisError::from((ErrorKind::Io, "a node did not answer"))),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

fn no_server() -> RedisError {
    RedisError::from((ErrorKind::Client, "no server is known"))
}

fn parse_urls(urls: &[String]) -> Result<Vec<ConnectionInfo>, RedisStartError> {
    let parse = |(at, url): (usize, &String)| {
        let bad = |reason: &str| RedisStartError::BadUrl {
            number: at + 1,
            reason: reason.to_owned(),
        };
        let parsed = url
            .as_str()
            .into_connection_info()
            .map_err(|error| bad(&error.to_string()))?;
        match parsed.addr() {
            ConnectionAddr::Tcp(..)
            | ConnectionAddr::TcpTls {
                insecure: false, ..
            } => Ok(prepare_connections(parsed)),
            ConnectionAddr::TcpTls { .. } => Err(bad("`#insecure` is not supported")),
            ConnectionAddr::Unix(_) | _ => Err(bad("it is neither `redis://` nor `rediss://`")),
        }
    };
    urls.iter().enumerate().map(parse).collect()
}

/// Connections send small commands at once, and do not name their library: a user with few rights may
/// not, and each refusal would be in the server's log of refusals. Connections that the clients of
/// sentinels and clusters make by themselves name it all the same.
fn prepare_connections(server: ConnectionInfo) -> ConnectionInfo {
    let settings = server.redis_settings().clone().set_skip_set_lib_name();
    server
        .set_redis_settings(settings)
        .set_tcp_settings(tcp_settings())
}

/// Small commands are sent at once: a delayed one could miss `store.timeout`.
fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn is_tls(server: &ConnectionInfo) -> bool {
    matches!(server.addr(), ConnectionAddr::TcpTls { .. })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the adapter of map_err gives the error away"
)]
fn bad_settings(error: RedisError) -> RedisStartError {
    RedisStartError::BadSettings(error.to_string())
}

fn open_client(
    server: ConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> Result<Client, RedisStartError> {
    match certificates {
        Some(certificates) if is_tls(&server) => {
            Client::build_with_tls(server, certificates.clone())
        }
        _ => Client::open(server),
    }
    .map_err(bad_settings)
}

fn sentinel_client(
    servers: &[ConnectionInfo],
    primary: &str,
    certificates: Option<&TlsCertificates>,
    authenticates_to_sentinels: bool,
) -> Result<SentinelClient, RedisStartError> {
    let addresses: Vec<_> = servers.iter().map(|one| one.addr().clone()).collect();
    let mut builder = SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)
        .map_err(bad_settings)?
        .set_client_to_redis_tcp_settings(tcp_settings())
        .set_client_to_sentinel_tcp_settings(tcp_settings());
    if let Some(first) = servers.first() {
        let credentials = first.redis_settings();
        builder = builder.set_client_to_redis_db(credentials.db());
        if is_tls(first) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(user) = credentials.username() {
            builder = builder.set_client_to_redis_username(user);
            if authenticates_to_sentinels {
                builder = builder.set_client_to_sentinel_username(user);
            }
        }
        if let Some(password) = credentials.password() {
            builder = builder.set_client_to_redis_password(password);
            if authenticates_to_sentinels {
                builder = builder.set_client_to_sentinel_password(password);
            }
        }
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates.clone());
    }
    builder.build().map_err(bad_settings)
}

fn cluster_client(
    servers: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
) -> Result<RedisClient, RedisStartError> {
    let clients = servers
        .iter()
        .map(|node| open_client(node.clone(), certificates.as_ref()))
        .collect::<Result<_, _>>()?;
    let mut builder = ClusterClientBuilder::new(servers)
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(NODE_TIMEOUT)
        .tcp_settings(tcp_settings())
        .retries(CLUSTER_RETRIES);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    let cluster = builder.build().map_err(bad_settings)?;
    Ok(RedisClient::Cluster(
        Box::new(cluster),
        ClusterNodes::new(clients),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, topology: RedisTopology) -> RedisSettings {
        RedisSettings {
            urls: vec![url.to_owned()],
            topology,
            authorities: None,
            namespace: "weir".to_owned(),
            command_timeout: Duration::from_millis(250),
        }
    }

    #[test]
    fn bad_settings_are_errors_without_the_password() {
        let urls = [
            "http://user:CANARY-1@host",
            "rediss://user:CANARY-1@host/#insecure",
            "redis://user:CANARY-1@host:99999",
            "redis+unix:///tmp/socket?pass=CANARY-1",
        ];
        for url in urls {
            let outcome = RedisClient::new(&settings(url, RedisTopology::Single));
            let error = outcome.err().map(|error| error.to_string());
            assert!(
                error
                    .as_deref()
                    .is_some_and(|error| !error.contains("CANARY")),
                "{url}: {error:?}"
            );
        }
        let mut none = settings("", RedisTopology::Single);
        none.urls.clear();
        assert!(matches!(
            RedisClient::new(&none),
            Err(RedisStartError::NoUrl)
        ));
    }

    #[test]
    fn every_kind_of_servers_is_accepted() {
        let primary = "main".to_owned();
        let topologies = [
            RedisTopology::Single,
            RedisTopology::Sentinel { primary },
            RedisTopology::Cluster,
        ];
        for topology in topologies {
            for url in ["redis://user:secret@host:1/", "rediss://:secret@host"] {
                let outcome = RedisClient::new(&settings(url, topology.clone()));
                assert!(outcome.is_ok(), "{topology:?} {url}");
            }
        }
    }
}
