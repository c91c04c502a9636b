//! Accepting the connections of test servers, with one task for each.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Listens on a free port of loopback. Returns its address, too.
///
/// # Panics
/// The system has no free port.
pub async fn listen_on_loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap_or_else(|error| panic!("no port: {error}"));
    let address = listener
        .local_addr()
        .unwrap_or_else(|error| panic!("no address: {error}"));
    (listener, address)
}

/// Accepts for ever and serves each connection in a task of its own. Dropping the future closes
/// every connection.
pub async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream));
                }
            }
        }
    }
}

/// Accepts HTTP/1.1 connections and answers each request by `answer`, for servers without state of
/// a connection.
pub(crate) async fn answer_all<A, F>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    accept(listener, |stream| {
        let answer = answer.clone();
        async move {
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            // An error of a connection shows at the client.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        }
    })
    .await;
}
