//! Malformed inputs over the socket (T9): messages of every revision, their headers, their framing
//! and their frames, each spoilt in some way. weir answers every complete request, with a refusal
//! or a JSON-RPC error and never with a 5xx. It stays alive, and a good client beside the inputs is
//! not affected.
//!
//! Every input is made of its number and the seed alone, except for the ids of live sessions. A
//! failure prints all three: seed, number and bytes. `WEIR_SEED=n` takes another seed and
//! `WEIR_INPUT=n` sends that input alone.

mod http1_replies;
mod malformed_inputs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_testkit::h2_client::{DATA, END_HEADERS, END_STREAM, HEADERS, frame};
use weir_testkit::scripted_server::{modern_answer, text_answer};
use weir_testkit::{H2Client, RawClient, ScriptedServer};
use weir_wire::Revision;

use crate::harness::{Bystander, SplitMixRandom, TEST_TIMEOUT, Weir, wait_until};

use http1_replies::{Http1ReplyReader, judge};
use malformed_inputs::{Http2Input, InputMaker, MalformedInput, SendMode};

const SEED: u64 = 20_260_728;
/// Connections with malformed inputs at the same time. They are many, because the test reads for
/// [`READ_TIME`] after some inputs.
const CONNECTIONS: usize = 48;
/// Requests that are written before their answers are read.
const PIPELINED: usize = 8;
/// The time to read after an input whose framing is spoilt: it may have no answer, or one without
/// end.
const READ_TIME: Duration = Duration::from_secs(2);
/// Sessions of each legacy revision that inputs belong to.
const SESSIONS: usize = 4;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The state of one connection's sender.
struct InputSender {
    address: String,
    maker: InputMaker,
    seed: u64,
    next: Arc<AtomicU64>,
    end: u64,
    tally: Arc<AnswerTally>,
}

#[derive(Default)]
struct AnswerTally {
    answered: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

impl AnswerTally {
    fn count(&self, status: u16) {
        let of = if status < 300 {
            &self.answered
        } else {
            &self.refused
        };
        of.fetch_add(1, Ordering::Relaxed);
    }
}

impl InputSender {
    /// Sends all remaining inputs.
    async fn run(self) {
        let mut kept: Option<InputConnection> = None;
        let mut framed: Option<H2Client> = None;
        loop {
            let first = self.next.fetch_add(PIPELINED as u64, Ordering::Relaxed);
            if first >= self.end {
                return;
            }
            let inputs = (first..self.end.min(first + PIPELINED as u64))
                .map(|number| self.maker.input(self.seed, number));
            let (mut together, mut frames) = (Vec::new(), Vec::new());
            for input in inputs {
                match &input.way {
                    SendMode::Kept => together.push(input),
                    SendMode::Alone => self.alone(&input).await,
                    SendMode::Frames(_) => frames.push(input),
                }
            }
            kept = self.pipelined(kept, &together).await;
            for input in &frames {
                framed = self.framed(framed, input).await;
            }
        }
    }

    /// Writes requests one behind the other and reads an answer to each. If weir closes the
    /// connection behind an answer, the rest goes on another.
    async fn pipelined(
        &self,
        mut kept: Option<InputConnection>,
        mut inputs: &[MalformedInput],
    ) -> Option<InputConnection> {
        while let Some(first) = inputs.first() {
            let is_fresh = kept.is_none();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => InputConnection::open(&self.address).await,
            };
            let all = inputs
                .iter()
                .map(|input| input.bytes.as_slice())
                .collect::<Vec<_>>()
                .concat();
            // If weir refuses it in the middle, it need not read the rest.
            let written = connection.stream.write_all(&all).await;
            let mut answered = 0;
            for input in inputs {
                let reply = self
                    .soon(input, connection.replies.next(&mut connection.stream))
                    .await;
                let Some(reply) =
                    reply.unwrap_or_else(|error| panic!("{error}; {}", self.about(input)))
                else {
                    break;
                };
                judge(&reply)
                    .unwrap_or_else(|why| panic!("{why}: {reply:?}; {}", self.about(input)));
                self.tally.count(reply.status);
                answered += 1;
                if reply.closes {
                    break;
                }
            }
            // weir may close an idle connection just when it is used.
            assert!(
                answered > 0 || !is_fresh,
                "no answer ({written:?}) to {}",
                self.about(first)
            );
            let is_whole = answered == inputs.len() && !connection.replies.closed;
            inputs = &inputs[answered..];
            kept = is_whole.then_some(connection);
        }
        kept
    }

    /// Writes an input whose own framing is spoilt, and reads all answers to the end.
    async fn alone(&self, input: &MalformedInput) {
        let mut connection = InputConnection::open(&self.address).await;
        // A refusal may come, and the connection end, before all bytes are written.
        let _written = connection.stream.write_all(&input.bytes).await;
        let _closed = connection.stream.shutdown().await;
        let mut answers = 0;
        loop {
            // A stream of changes may have begun, without an end.
            let Ok(reply) =
                tokio::time::timeout(READ_TIME, connection.replies.next(&mut connection.stream))
                    .await
            else {
                break;
            };
            let reply = match reply {
                Ok(Some(reply)) => reply,
                Ok(None) => break,
                Err(error) => panic!("{error}; {}", self.about(input)),
            };
            judge(&reply).unwrap_or_else(|why| panic!("{why}: {reply:?}; {}", self.about(input)));
            self.tally.count(reply.status);
            answers += 1;
        }
        self.tally
            .unanswered
            .fetch_add(u64::from(answers == 0), Ordering::Relaxed);
    }

    /// Sends an input over HTTP/2, and a good request behind it; returns the connection if it is
    /// still open.
    async fn framed(&self, kept: Option<H2Client>, input: &MalformedInput) -> Option<H2Client> {
        let SendMode::Frames(framed) = &input.way else {
            return kept;
        };
        let url = format!("http://{}/mcp", self.address);
        let mut client = match kept {
            Some(client) => client,
            None => H2Client::connect(&url, &[]).await.unwrap(),
        };
        let outcome = self.soon(input, self.exchanged(&mut client, framed)).await;
        match outcome {
            Ok(statuses) => {
                for status in statuses {
                    assert!(
                        (100..500).contains(&status),
                        "{status} to {}",
                        self.about(input)
                    );
                    self.tally.count(status);
                }
                Some(client)
            }
            // weir closed the connection because of the input.
            Err(_) => {
                self.tally.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    async fn exchanged(
        &self,
        client: &mut H2Client,
        framed: &Http2Input,
    ) -> std::io::Result<Vec<u16>> {
        let stream = client.next_stream();
        client.send_raw(&framed.bytes(stream)).await?;
        let fence = client.next_stream();
        let block = client.block("GET", "/fence", &[]);
        client
            .send_raw(&frame(HEADERS, END_HEADERS | END_STREAM, fence, &block))
            .await?;
        let (mut statuses, mut open) = (Vec::new(), vec![fence]);
        if framed.is_whole {
            open.push(stream);
        }
        let mut body = Vec::new();
        while !open.is_empty() {
            let came = client
                .until(|frame| frame.stream == stream || frame.stream == fence)
                .await?;
            statuses.extend(came.status().filter(|_| came.kind == HEADERS));
            if came.kind == DATA && came.stream == stream {
                body.extend_from_slice(&came.payload);
            }
            if came.ends_stream() {
                open.retain(|stream| *stream != came.stream);
            }
        }
        if let Ok(message) = serde_json::from_slice(&body) {
            assert!(http1_replies::is_message(&message), "{message}");
        }
        Ok(statuses)
    }

    async fn soon<T>(&self, input: &MalformedInput, wait: impl Future<Output = T>) -> T {
        // The description is made only for a failure: it costs more than the input.
        tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .unwrap_or_else(|_| panic!("no answer in time to {}", self.about(input)))
    }

    fn about(&self, input: &MalformedInput) -> String {
        let MalformedInput { number, bytes, .. } = input;
        format!(
            "WEIR_SEED={} WEIR_INPUT={number}: {}",
            self.seed,
            bytes[..bytes.len().min(6000)].escape_ascii()
        )
    }
}

struct InputConnection {
    stream: TcpStream,
    replies: Http1ReplyReader,
}

impl InputConnection {
    async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            replies: Http1ReplyReader::default(),
        }
    }
}

/// Sends this many inputs.
async fn send(count: u64, name: &str) {
    let upstream = ScriptedServer::start(|request| {
        modern_answer(request, &["echo"]).unwrap_or_else(|| {
            vec![text_answer(
                request,
                &request.body["params"]["arguments"].to_string(),
            )]
        })
    })
    .await;
    let weir = tokio::task::block_in_place(|| {
        let config = json!({
            "upstreams": { "up": { "url": upstream.url(), "protocol": "modern" } },
            "endpoints": { "/mcp": { "upstream": "up" } },
        });
        // A log line for each request would be most of the cost.
        Weir::with_log_filter(config, "warn")
    });
    let (id, url) = (weir.process.id(), weir.url("/mcp"));
    let address = weir.url("").trim_start_matches("http://").to_owned();
    let mut clients = vec![RawClient::new(&url), RawClient::new(&url).modern()];
    for revision in [
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
    ] {
        for _ in 0..SESSIONS {
            clients.push(
                RawClient::new(&url)
                    .legacy(revision)
                    .initialize()
                    .await
                    .unwrap(),
            );
        }
    }
    let good = RawClient::new(&url).modern();
    tokio::task::block_in_place(|| weir.wait_until_listed("/mcp", &["echo"]));
    let seed = from_environment("WEIR_SEED").unwrap_or(SEED);
    let (begin, end) =
        from_environment("WEIR_INPUT").map_or((0, count), |number| (number, number + 1));
    // The baseline includes the needs of a connection of each kind.
    let (next, tally) = (
        Arc::new(AtomicU64::new(begin)),
        Arc::<AnswerTally>::default(),
    );
    let (memory, descriptors) = (weir.memory(), descriptors(&weir));
    let bystander = Bystander::start_beside(&weir, good.clone());
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let maker = InputMaker::new(&clients, &address);
        let (address, next, tally) = (address.clone(), next.clone(), tally.clone());
        senders.spawn(
            InputSender {
                address,
                maker,
                seed,
                next,
                end,
                tally,
            }
            .run(),
        );
    }
    // The upstream's records are not needed.
    let forgetting = async {
        loop {
            upstream.clear_requests();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = async { while let Some(ended) = senders.join_next().await { ended.unwrap() } } => {}
        () = forgetting => {}
    }
    let figures = bystander.finish(name).await;
    let [answered, refused, unanswered] = [&tally.answered, &tally.refused, &tally.unanswered]
        .map(|count| count.load(Ordering::Relaxed));
    println!(
        "{name}: seed {seed}, {answered} answers, {refused} refusals, {unanswered} inputs without an answer"
    );
    figures.assert_none_refused();
    assert_eq!(weir.process.id(), id);
    assert!(!weir.process.output().contains("panicked"));
    assert!(answered + refused > 0);
    // Sessions were opened, and answers are kept for clients that lost theirs: some memory stays,
    // and it is bounded.
    let most = memory + memory / 5 + (32 << 20);
    tokio::task::block_in_place(|| {
        wait_until("descriptors to be given back", || {
            (self::descriptors(&weir) <= descriptors + 8).then_some(())
        });
        wait_until("memory to be given back", || {
            (weir.memory() <= most).then_some(())
        });
    });
    assert_eq!(
        good.call("echo", json!({ "n": 1 })).await.unwrap().text(),
        r#"{"n":1}"#
    );
}

fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.process.id()))
        .unwrap()
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_five_thousand_malformed_inputs_are_refused_one_by_one() {
    send(5_000, "5,000 malformed inputs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask hostile runs it"]
async fn t9_a_million_malformed_inputs_are_refused_one_by_one() {
    send(1_000_000, "1,000,000 malformed inputs").await;
}

#[test]
fn malformed_input_depends_only_on_seed_and_number() {
    let client = || [RawClient::new("http://127.0.0.1:1/mcp").modern()];
    let [one, other] = [(); 2].map(|()| InputMaker::new(&client(), "127.0.0.1:1"));
    for number in 0..500 {
        assert_eq!(
            one.input(7, number).bytes,
            other.input(7, number).bytes,
            "{number}"
        );
    }
    assert_ne!(one.input(7, 1).bytes, one.input(8, 1).bytes);
    assert_ne!(SplitMixRandom::new(1).next(), SplitMixRandom::new(2).next());
}
