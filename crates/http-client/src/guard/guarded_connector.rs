//! The connector for URLs of outsiders. It resolves a name, checks every address, and dials only
//! checked addresses.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower::Service;
use weir_core::port::Fut;

use super::UrlRefusal;
use super::public_address::is_public;
use crate::dns::{AddressLookup, DnsResolver};

type GuardError = Box<dyn std::error::Error + Send + Sync>;

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
    fn addresses(&self, name: String) -> Fut<'static, io::Result<Vec<IpAddr>>> {
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
    inner: HttpConnector<DnsResolver>,
    permits: fn(IpAddr) -> bool,
}

impl GuardedConnector {
    /// Guards a connector that resolves names by `checked`.
    pub(crate) fn new(
        checked: CheckedLookup,
        tcp: impl FnOnce(DnsResolver) -> HttpConnector<DnsResolver>,
    ) -> Self {
        Self {
            permits: checked.permits,
            inner: tcp(DnsResolver::new(Arc::new(checked))),
        }
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = <HttpConnector<DnsResolver> as Service<Uri>>::Response;
    type Error = GuardError;
    type Future = Either<
        Ready<Result<Self::Response, GuardError>>,
        futures_util::future::ErrInto<
            <HttpConnector<DnsResolver> as Service<Uri>>::Future,
            GuardError,
        >,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GuardError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        match literal.parse::<IpAddr>() {
            Ok(address) if !(self.permits)(address) => {
                Either::Left(ready(Err(UrlRefusal::Address.into())))
            }
            _ => Either::Right(futures_util::TryFutureExt::err_into(self.inner.call(uri))),
        }
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
    use crate::dns::SystemLookup;

    /// Gives one answer after another.
    struct ScriptedAddresses {
        answers: Mutex<Vec<Vec<IpAddr>>>,
        asked: AtomicUsize,
    }

    impl AddressLookup for ScriptedAddresses {
        fn addresses(&self, _: String) -> Fut<'static, io::Result<Vec<IpAddr>>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = self.answers.lock().remove(0);
            Box::pin(async move { Ok(answer) })
        }
    }

    const OUTSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
    const INSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

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
        (
            GuardedConnector::new(checked, HttpConnector::new_with_resolver),
            script,
        )
    }

    async fn dial(guard: &mut GuardedConnector, uri: &str) -> Result<SocketAddr, String> {
        std::future::poll_fn(|cx| guard.poll_ready(cx))
            .await
            .unwrap();
        let connected = guard.call(uri.parse().unwrap()).await;
        let connected = connected.map_err(|error| {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(inner) = cause {
                text = inner.to_string();
                cause = inner.source();
            }
            text
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
        let mut guarded = GuardedConnector::new(
            CheckedLookup::public(Arc::new(SystemLookup)),
            HttpConnector::new_with_resolver,
        );
        assert_eq!(
            dial(&mut guarded, "http://localhost:1/").await,
            Err(UrlRefusal::Address.to_string())
        );
    }
}
