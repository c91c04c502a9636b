//! The TCP connector to servers: direct, or through the forward proxy.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use crate::connector::{ConnectError, tcp_connector};
use crate::dns::{DnsCache, DnsResolver, SystemLookup};
use crate::forward_proxy::proxy_settings::ForwardProxy;
use crate::forward_proxy::proxy_tunnel::ProxyTunnel;

/// Connects to servers, those that the proxy takes through the proxy.
#[derive(Clone)]
pub struct ProxiedConnector {
    direct: HttpConnector<DnsResolver>,
    tunnel: Option<ProxyTunnel>,
}

impl ProxiedConnector {
    /// Makes a connector with the timeout `connect`, which looks every server up by the machine's
    /// resolver.
    #[must_use]
    pub fn new(proxy: Option<Arc<ForwardProxy>>, connect: Duration) -> Self {
        let direct = tcp_connector(DnsResolver::new(Arc::new(SystemLookup)), connect);
        Self::around(direct, proxy, connect)
    }

    /// Makes a connector whose direct connections are those of `direct`. The proxy's own name has a
    /// resolver of its own: one for names of outsiders would refuse a proxy in a private network.
    pub(crate) fn around(
        direct: HttpConnector<DnsResolver>,
        proxy: Option<Arc<ForwardProxy>>,
        connect: Duration,
    ) -> Self {
        let tunnel = proxy.map(|proxy| {
            let names = DnsCache::new(Arc::new(SystemLookup));
            let tcp = tcp_connector(DnsResolver::new(Arc::new(names)), connect);
            ProxyTunnel::new(proxy, tcp, connect)
        });
        Self { direct, tunnel }
    }

    /// True if a connection to the server goes through the proxy.
    pub(crate) fn is_proxied(&self, server: &Uri) -> bool {
        self.tunnel
            .as_ref()
            .is_some_and(|tunnel| tunnel.takes(server))
    }
}

impl fmt::Debug for ProxiedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxiedConnector")
            .field("tunnel", &self.tunnel)
            .finish_non_exhaustive()
    }
}

impl Service<Uri> for ProxiedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.direct.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match &self.tunnel {
            Some(tunnel) if tunnel.takes(&server) => Box::pin(tunnel.clone().connect(&server)),
            _ => {
                let connected = self.direct.call(server);
                Box::pin(async move { Ok(connected.await?) })
            }
        }
    }
}
