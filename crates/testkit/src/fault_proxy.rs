//! A TCP proxy that breaks connections in named ways, each direction on its own. Its behaviour
//! depends only on its toxics, on the bytes that pass and on a seed.

mod proxy_state;
mod pump;
mod toxic;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::accept::{accept, listen_on_loopback};
use crate::owned_task::OwnedTask;
use proxy_state::ProxyState;
use pump::{DirectionEnd, pump};
pub use toxic::{ProxyDirection, Toxic};

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    _server: OwnedTask,
}

impl FaultProxy {
    /// Starts a proxy in front of `target` that passes all bytes.
    ///
    /// # Panics
    /// No loopback port is free.
    pub async fn start(target: SocketAddr) -> Self {
        Self::start_seeded(target, 1).await
    }

    /// Starts a proxy with another seed for jitter.
    pub async fn start_seeded(target: SocketAddr, seed: u64) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let shared = Arc::new(ProxyState {
            target: Mutex::new(target),
            toxics: watch::Sender::default(),
            resets: watch::Sender::default(),
            accept_delay: watch::Sender::default(),
            refusing: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            seed,
        });
        Self {
            address,
            shared: Arc::clone(&shared),
            _server: OwnedTask::spawn(serve(listener, shared)),
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path behind the proxy.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Spoils a direction, of open connections too. Several toxics work together.
    pub fn add_toxic(&self, direction: ProxyDirection, toxic: Toxic) {
        self.shared
            .toxics
            .send_modify(|toxics| toxics.push((direction, toxic)));
    }

    /// Removes all toxics. Connections that were closed stay closed.
    pub fn clear_toxics(&self) {
        self.shared.toxics.send_modify(Vec::clear);
    }

    /// Resets every open connection.
    pub fn reset_all(&self) {
        self.shared.resets.send_modify(|resets| *resets += 1);
    }

    /// Resets new connections as soon as they are made, or serves them again. A client sees the end
    /// of the connection before any byte; to have connecting itself refused, stop the server
    /// instead.
    pub fn set_refusing(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::Relaxed);
    }

    /// Lets new connections wait this long before a byte passes.
    pub fn set_accept_delay(&self, delay: Duration) {
        self.shared.accept_delay.send_replace(delay);
    }

    /// Sends new connections to another address.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Connections ever accepted.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Bytes that passed in a direction.
    pub fn passed(&self, direction: ProxyDirection) -> u64 {
        self.shared.passed(direction).load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, shared: Arc<ProxyState>) {
    accept(listener, |client| {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        // An error of a connection shows at its peers.
        async move { drop(connection(client, number, &shared).await) }
    })
    .await;
}

async fn connection(client: TcpStream, number: u64, shared: &ProxyState) -> io::Result<()> {
    let mut resets = shared.resets.subscribe();
    if shared.refusing.load(Ordering::Relaxed) {
        return client.set_zero_linger();
    }
    let delay = *shared.accept_delay.borrow();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let target = *shared.target.lock();
    let server = match TcpStream::connect(target).await {
        Ok(server) => server,
        Err(_) => return client.set_zero_linger(),
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut client, mut server) = (client, server);
    let verdict = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let up = pump(
            client_read,
            server_write,
            ProxyDirection::Up,
            number,
            shared,
        );
        let down = pump(
            server_read,
            client_write,
            ProxyDirection::Down,
            number,
            shared,
        );
        tokio::select! {
            verdict = both(up, down) => verdict,
            _ = resets.changed() => DirectionEnd::Reset,
        }
    };
    if verdict == DirectionEnd::Reset {
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    Ok(())
}

/// Runs both directions until both are done, or one of them ends the connection.
async fn both(
    up: impl Future<Output = DirectionEnd>,
    down: impl Future<Output = DirectionEnd>,
) -> DirectionEnd {
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        verdict = &mut up => if verdict == DirectionEnd::Done { down.await } else { verdict },
        verdict = &mut down => if verdict == DirectionEnd::Done { up.await } else { verdict },
    }
}
