//! The upstream of a run: many lean MCP servers in one process, both eras, one path each.
//!
//! `/modern/u/N` and `/legacy/u/N` are servers of one era, `/both/u/N` of both; `/control/...`
//! makes them change, hang and come back. It checks only the parts that a load run needs: it is a
//! load target, no reference server.

pub(crate) mod answers;
mod streams;
pub(crate) mod upstream_shape;

pub(crate) use self::upstream_shape::UpstreamShape;

use self::streams::{UpstreamBody, UpstreamState, status};
use crate::machine::unix_micros;
use crate::process::parent_gone;
use crate::protocol::{BOTH_ERAS_SEGMENT, Era, VERSION};
use anyhow::Result;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Serves on a free loopback port, which it prints, until standard input ends.
///
/// # Errors
/// No port to listen on.
pub(crate) async fn serve(shape: UpstreamShape) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let state = Arc::new(UpstreamState::new(shape));
    tokio::select! {
        () = parent_gone() => Ok(()),
        never = accept(listener, state) => never,
    }
}

async fn accept(listener: TcpListener, state: Arc<UpstreamState>) -> Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&state)));
            }
            // Out of file descriptors: let the streams that end make room.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

async fn connection(stream: TcpStream, state: Arc<UpstreamState>) {
    // Only a latency setting; a peer that is gone already shows at the first read.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, &state).await) }
    });
    // An error of a connection shows at the client, and the client counts it.
    let _ = http1::Builder::new()
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The target of a request's path.
enum RequestTarget {
    /// A server; one without an era speaks that of the request.
    Server(Option<Era>, usize),
    Control(String),
    Nowhere,
}

async fn answer(request: Request<Incoming>, state: &UpstreamState) -> Response<UpstreamBody> {
    match place(request.uri().path(), state) {
        RequestTarget::Server(era, index) => {
            state.until_not_hanging(index).await;
            let era = era.unwrap_or_else(|| asked_in(request.headers()));
            serve_server(request, state, era, index).await
        }
        RequestTarget::Control(command) => control(&command, state),
        RequestTarget::Nowhere => status(StatusCode::NOT_FOUND),
    }
}

fn place(path: &str, state: &UpstreamState) -> RequestTarget {
    if let Some(command) = path.strip_prefix("/control/") {
        return RequestTarget::Control(command.to_owned());
    }
    let server = path
        .strip_prefix('/')
        .and_then(|path| path.split_once("/u/"));
    let server = server.and_then(|(word, index)| {
        let era = if word == BOTH_ERAS_SEGMENT {
            None
        } else {
            Some(Era::from_word(word)?)
        };
        Some((era, index.parse().ok()?))
    });
    match server {
        Some((era, index)) if index < state.servers() => RequestTarget::Server(era, index),
        _ => RequestTarget::Nowhere,
    }
}

/// Returns the era of a request. A modern request has its revision in a header; a legacy one has
/// another or none.
fn asked_in(headers: &HeaderMap) -> Era {
    let modern = headers
        .get(VERSION)
        .is_some_and(|version| version == Era::Modern.version());
    if modern { Era::Modern } else { Era::Legacy }
}

async fn serve_server(
    request: Request<Incoming>,
    state: &UpstreamState,
    era: Era,
    index: usize,
) -> Response<UpstreamBody> {
    match *request.method() {
        Method::POST => {
            let Ok(body) = request.into_body().collect().await else {
                return status(StatusCode::BAD_REQUEST);
            };
            answers::post(state, era, index, &body.to_bytes())
        }
        Method::GET if era == Era::Legacy => streams::legacy(state, index),
        Method::DELETE if era == Era::Legacy => status(StatusCode::OK),
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Handles a control command. `change/N` adds a tool to server N and notifies its listeners;
/// `hang/N` and `wake/N` stop and resume it. Answers with the microsecond of the change.
fn control(command: &str, state: &UpstreamState) -> Response<UpstreamBody> {
    let (verb, index) = command.split_once('/').unwrap_or((command, ""));
    let Some(index) = index.parse().ok().filter(|index| *index < state.servers()) else {
        return status(StatusCode::NOT_FOUND);
    };
    let at = unix_micros();
    match verb {
        "change" => state.change(index),
        "hang" => state.hang(index, true),
        "wake" => state.hang(index, false),
        _ => return status(StatusCode::NOT_FOUND),
    }
    streams::text(at.to_string())
}
