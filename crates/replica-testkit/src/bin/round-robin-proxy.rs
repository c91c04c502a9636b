//! `round-robin-proxy ADDRESS...`: a load balancer of HTTP/1.1 requests in front of these backends,
//! for programs that are no tests. It prints `listening URL` and runs until it is killed.

use std::io::Write as _;
use std::net::SocketAddr;

use weir_replica_testkit::RoundRobinProxy;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = std::env::args().skip(1);
    let backends: Vec<SocketAddr> = arguments
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let proxy = RoundRobinProxy::start(backends).await;
    writeln!(std::io::stdout(), "listening {}", proxy.url(""))?;
    std::future::pending().await
}
