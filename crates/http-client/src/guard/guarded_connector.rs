//! The connector for URLs of outsiders. It resolves a name, checks every address, and dials only
//! checked addresses.
//!
//! A forward proxy resolves names itself. In front of one, the name is resolved here too, and
//! refused for one private address; if this machine cannot resolve it, the proxy decides.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use http::Uri;
use tower::{Service, ServiceExt as _};
use weir_core::port::BoxFuture;

use crate::connector::ConnectError;
use crate::dns::{AddressLookup, DnsResolver};
use crate::forward_proxy::{ProxiedConnector, literal_address};
use crate::guard::UrlRefusal;
use crate::guard::public_address::is_public;

/// The time for the look-up of a name in front of a forward proxy. Behind such a proxy the machine's
/// resolver may know no outer name, and wait in vain for an answer. It comes before the time for the
/// connection: see [`connection_time`].
const LOOKUP_BEFORE_PROXY: Duration = Duration::from_secs(2);

/// A resolver for the connector below that gives only permitted addresses. The connector uses no
/// other resolver.
#[derive(Clone)]
pub(crate) struct CheckedLookup {
    names: Arc<dyn AddressLookup>,
    permits: fn(IpAddr) -> bool,
}

impl CheckedLookup {
    /// Permits the public addresses that `names` finds.
    pub(crate) fn public(names: Arc<dyn AddressLookup>) -> Self {
        Self {
            names,
            permits: is_public,
        }
    }
}

impl AddressLookup for CheckedLookup {
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (looked_up, permits) = (self.names.addresses(name), self.permits);
        Box::pin(async move {
            let found = looked_up.await?;
            // One private address among others is taken for an attack, not an accident.
            if found.iter().all(|address| permits(*address)) {
                Ok(found)
            } else {
                Err(io::Error::other(UrlRefusal::Address))
            }
        })
    }
}

/// Connects to URLs of outsiders. A host that is an address is checked here, a name by
/// [`CheckedLookup`].
#[derive(Clone)]
pub(crate) struct GuardedConnector {
    inner: ProxiedConnector,
    checked: CheckedLookup,
}

impl GuardedConnector {
    /// Guards a connector that resolves names by `checked`.
    pub(crate) fn new(
        checked: CheckedLookup,
        connector: impl FnOnce(DnsResolver) -> ProxiedConnector,
    ) -> Self {
        Self {
            inner: connector(DnsResolver::new(Arc::new(checked.clone()))),
            checked,
        }
    }
}

/// Returns the time for a whole connection to an outsider: in front of a proxy the look-up of the
/// name, whose end leaves the time `connect` for the tunnel and TLS.
pub(crate) fn connection_time(connect: Duration, is_proxied: bool) -> Duration {
    if is_proxied {
        LOOKUP_BEFORE_PROXY + connect
    } else {
        connect
    }
}

/// Refuses a name that this machine resolves to a private address.
async fn check_before_proxy(checked: CheckedLookup, name: String) -> Result<(), ConnectError> {
    let looked_up = tokio::time::timeout(LOOKUP_BEFORE_PROXY, checked.addresses(name)).await;
    let refusal = looked_up.ok().and_then(Result::err).filter(|error| {
        let cause = error.get_ref();
        cause.is_some_and(|cause| cause.is::<UrlRefusal>())
    });
    refusal.map_or(Ok(()), |error| Err(error.into()))
}

impl Service<Uri> for GuardedConnector {
    type Response = <ProxiedConnector as Service<Uri>>::Response;
    type Error = ConnectError;
    type Future = Either<
        Ready<Result<Self::Response, ConnectError>>,
        <ProxiedConnector as Service<Uri>>::Future,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let literal = literal_address(host);
        if literal.is_some_and(|address| !(self.checked.permits)(address)) {
            return Either::Left(ready(Err(UrlRefusal::Address.into())));
        }
        if literal.is_some() || !self.inner.is_proxied(&uri) {
            return Either::Right(self.inner.call(uri));
        }
        let (checked, name) = (self.checked.clone(), host.to_owned());
        let inner = self.inner.clone();
        Either::Right(Box::pin(async move {
            check_before_proxy(checked, name).await?;
            inner.oneshot(uri).await
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;
    use crate::connector::tcp_connector;
    use crate::dns::SystemLookup;
    use crate::forward_proxy::{ForwardProxy, ProxyBypass};

    /// Gives one answer after another.
    struct ScriptedAddresses {
        answers: Mutex<Vec<Vec<IpAddr>>>,
        asked: AtomicUsize,
    }

    impl AddressLookup for ScriptedAddresses {
        fn addresses(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = self.answers.lock().remove(0);
            Box::pin(async move { Ok(answer) })
        }
    }

    const OUTSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
    const INSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn direct(names: DnsResolver) -> ProxiedConnector {
        through(None)(names)
    }

    fn through(proxy: Option<Arc<ForwardProxy>>) -> impl FnOnce(DnsResolver) -> ProxiedConnector {
        let within = Duration::from_secs(10);
        move |names| ProxiedConnector::around(tcp_connector(names, within), proxy, within)
    }

    /// A guard for which 127.0.0.2 is the public Internet.
    fn guard(answers: &[&[IpAddr]]) -> (GuardedConnector, Arc<ScriptedAddresses>) {
        let answers = Mutex::new(answers.iter().map(|answer| answer.to_vec()).collect());
        let script = Arc::new(ScriptedAddresses {
            answers,
            asked: AtomicUsize::new(0),
        });
        let checked = CheckedLookup {
            names: script.clone(),
            permits: |address| address == OUTSIDE,
        };
        (GuardedConnector::new(checked, direct), script)
    }

    async fn dial(guard: &mut GuardedConnector, uri: &str) -> Result<SocketAddr, String> {
        std::future::poll_fn(|cx| guard.poll_ready(cx))
            .await
            .unwrap();
        let connected = guard.call(uri.parse().unwrap()).await;
        let connected = connected.map_err(|error| {
            let innermost = weir_core::causes(&*error).last();
            innermost.map(ToString::to_string).unwrap_or_default()
        })?;
        Ok(connected.into_inner().peer_addr().unwrap())
    }

    // Proves C18, R271.
    #[tokio::test]
    async fn rebinding_name_is_looked_up_once_and_dialled_at_the_checked_address() {
        let canary = TcpListener::bind((INSIDE, 0)).await.unwrap();
        let port = canary.local_addr().unwrap().port();
        let outside = TcpListener::bind((OUTSIDE, port)).await.unwrap();
        let uri = format!("http://rebinding.example:{port}/");

        let (mut trap, script) = guard(&[&[OUTSIDE], &[INSIDE], &[OUTSIDE, INSIDE], &[]]);
        assert_eq!(dial(&mut trap, &uri).await, Ok((OUTSIDE, port).into()));
        assert_eq!(
            script.asked.load(Ordering::Relaxed),
            1,
            "a second look-up could give another answer"
        );
        let refused = Err(UrlRefusal::Address.to_string());
        assert_eq!(
            dial(&mut trap, &uri).await,
            refused,
            "the second answer is inside"
        );
        assert_eq!(
            dial(&mut trap, &uri).await,
            refused,
            "one address inside is enough"
        );
        assert!(dial(&mut trap, &uri).await.is_err(), "no address at all");
        for literal in [
            format!("http://127.0.0.1:{port}/"),
            format!("http://[::ffff:127.0.0.1]:{port}/"),
        ] {
            assert_eq!(dial(&mut trap, &literal).await, refused, "{literal}");
        }
        assert_eq!(
            dial(&mut trap, &format!("http://127.0.0.2:{port}/")).await,
            Ok((OUTSIDE, port).into())
        );
        assert_eq!(
            script.asked.load(Ordering::Relaxed),
            4,
            "an address is not looked up"
        );
        drop(outside);
        let hit = futures_util::FutureExt::now_or_never(canary.accept());
        assert!(hit.is_none(), "the canary was reached");
    }

    /// Gives the answer of a name, or none.
    struct NamedAddresses;

    impl AddressLookup for NamedAddresses {
        fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(async move {
                match &name[..] {
                    "outside.example" => Ok(vec![OUTSIDE]),
                    "inside.example" => Ok(vec![INSIDE]),
                    "both.example" => Ok(vec![OUTSIDE, INSIDE]),
                    "silent.example" => std::future::pending().await,
                    _ => Err(io::ErrorKind::NotFound.into()),
                }
            })
        }
    }

    // Proves C18, R271.
    #[tokio::test]
    async fn proxy_gets_no_name_that_resolves_to_a_private_address() {
        let (address, mut targets) = tunnels_of_a_proxy().await;
        let mut bypass = ProxyBypass::default();
        bypass.add("direct.example").unwrap();
        let proxy = ForwardProxy::new(&format!("http://{address}"), bypass).unwrap();
        let checked = CheckedLookup {
            names: Arc::new(NamedAddresses),
            permits: |address| address == OUTSIDE,
        };
        let mut guard = GuardedConnector::new(checked, through(Some(Arc::new(proxy))));
        let refused = Err(UrlRefusal::Address.to_string());
        for host in [
            "inside.example",
            "both.example",
            "127.0.0.1",
            "192.168.1.1",
            "[::1]",
        ] {
            let uri = format!("https://{host}/");
            assert_eq!(dial(&mut guard, &uri).await, refused, "{host}");
        }
        for host in ["outside.example", "unknown.example", "silent.example"] {
            let uri = format!("https://{host}/");
            assert_eq!(dial(&mut guard, &uri).await, Ok(address), "{host}");
            assert_eq!(targets.recv().await.unwrap(), format!("{host}:443"));
        }
        let direct = dial(&mut guard, "https://direct.example/").await;
        assert!(direct.is_err(), "the name has no address here: {direct:?}");
        assert!(targets.try_recv().is_err(), "the proxy got another target");
    }

    /// Starts a proxy that opens every tunnel, to nowhere; returns its address and the targets.
    async fn tunnels_of_a_proxy() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
        use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
        let listener = TcpListener::bind((INSIDE, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, targets) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufStream::new(stream);
                let mut first = String::new();
                stream.read_line(&mut first).await.unwrap();
                let target = first.split(' ').nth(1).unwrap();
                sender.send(target.to_owned()).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        (address, targets)
    }

    #[tokio::test]
    async fn localhost_resolves_and_is_refused() {
        assert!(
            SystemLookup
                .addresses("localhost".to_owned())
                .await
                .unwrap()
                .iter()
                .any(IpAddr::is_loopback)
        );
        let mut guarded =
            GuardedConnector::new(CheckedLookup::public(Arc::new(SystemLookup)), direct);
        assert_eq!(
            dial(&mut guarded, "http://localhost:1/").await,
            Err(UrlRefusal::Address.to_string())
        );
    }
}
