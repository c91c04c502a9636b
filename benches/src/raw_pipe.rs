//! The raw pipe: the thinnest reverse proxy of weir's own HTTP stack, the baseline that weir is
//! measured against.
//!
//! hyper's HTTP/1.1 server in front, hyper-util's pooled client behind, bodies streamed both ways.
//! It knows no MCP, has no limits and must not be used for any other purpose.

use crate::process::parent_gone;
use anyhow::Result;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderName, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Headers that belong to one hop. `Transfer-Encoding` and `Content-Length` follow from the body.
const HOP: [HeaderName; 3] = [
    CONNECTION,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

#[derive(Clone)]
struct RawPipe {
    client: Client<HttpConnector, Incoming>,
    to: Authority,
}

/// Forwards all requests to `to` from a free loopback port, which it prints, until standard input
/// ends.
///
/// # Errors
/// No port to listen on.
pub(crate) async fn serve(to: Authority) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(connector);
    tokio::select! {
        () = parent_gone() => Ok(()),
        never = accept(listener, RawPipe { client, to }) => never,
    }
}

async fn accept(listener: TcpListener, pipe: RawPipe) -> Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, pipe.clone()));
            }
            // Out of file descriptors: let the connections that end make room.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(stream: TcpStream, pipe: RawPipe) {
    // Only a latency setting; a peer that is gone already shows at the first read.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let pipe = pipe.clone();
        async move { Ok::<_, Infallible>(pipe.forward(request).await) }
    });
    // An error of a connection shows at the client, and the client counts it.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl RawPipe {
    async fn forward(
        &self,
        mut request: Request<Incoming>,
    ) -> Response<Either<Incoming, Empty<Bytes>>> {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.to.clone());
        let Ok(uri) = Uri::from_parts(parts) else {
            return bad_gateway();
        };
        *request.uri_mut() = uri;
        request.headers_mut().remove(HOST);
        for name in &HOP {
            request.headers_mut().remove(name);
        }
        match self.client.request(request).await {
            Ok(mut response) => {
                for name in &HOP {
                    response.headers_mut().remove(name);
                }
                response.map(Either::Left)
            }
            Err(_) => bad_gateway(),
        }
    }
}

fn bad_gateway() -> Response<Either<Incoming, Empty<Bytes>>> {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
