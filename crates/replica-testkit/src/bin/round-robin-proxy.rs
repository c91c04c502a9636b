//! `round-robin-proxy ADDRESS BACKEND...`: a load balancer of HTTP/1.1 requests at an address, in front
//! of these backends, for programs that are no tests. It prints `listening URL` and runs until it is killed.

use std::io::Write as _;
use std::net::SocketAddr;

use weir_replica_testkit::RoundRobinProxy;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = std::env::args().skip(1);
    let mut addresses: Vec<SocketAddr> = arguments
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err("usage: round-robin-proxy ADDRESS BACKEND...".into());
    }
    let own = addresses.remove(0);
    let proxy = RoundRobinProxy::start_at(own, addresses).await;
    writeln!(std::io::stdout(), "listening {}", proxy.url(""))?;
    std::future::pending().await
}
