//! A herd: thousands of listening clients of a killed replica come back to the others, which must
//! accept and authenticate them, and serve their own clients meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use weir_replica_testkit::TlsFiles;
use weir_testkit::{HttpExchange, IdentityProvider, MockServer, RawClient};

use super::COUNT;
use super::timed_calls::{TimedCaller, percentile};
use crate::harness::{Replicas, wait_until_async};

/// The most clients. Each takes one descriptor of the test, and one of its replica.
const MAX_CLIENTS: usize = 19_000;
/// Connections that a replica takes, above the default, and the memory that it may use for them.
const CONNECTIONS: usize = 19_500;
const MEMORY: &str = "4GiB";
/// Descriptors that the test and the first replica need for other purposes: weir keeps more than a
/// thousand for servers and files.
const OTHER_DESCRIPTORS: usize = 1_500;
/// Clients that connect at the same time before the replica is killed.
const OPENING: usize = 64;
/// The audience of all tokens: every replica has another URL.
const AUDIENCE: &str = "herd";
/// The pause of a client that was refused without a delay.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two calls of the bystander.
const CALL_PAUSE: Duration = Duration::from_millis(5);
/// The time of its calls before the replica is killed.
const CALM: Duration = Duration::from_secs(3);

/// The use that clients make of the delay that their stream stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReconnectPolicy {
    /// They keep it, as the standard of event streams asks.
    Keeps,
    /// They connect again at once: the worst that can happen.
    Ignores,
}

/// The transport between clients and replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTransport {
    Plain,
    Tls,
}

/// The counts of all clients.
#[derive(Default)]
struct Herd {
    /// Clients with a stream at their first replica.
    opened: AtomicUsize,
    /// The times at which clients had a stream at another replica.
    returned: parking_lot::Mutex<Vec<Instant>>,
    refusals: AtomicUsize,
}

impl Herd {
    fn returned(&self) -> usize {
        self.returned.lock().len()
    }
}

/// One client: it listens at its first replica, and after that at another one.
struct ListeningClient {
    client: RawClient,
    other_url: String,
    policy: ReconnectPolicy,
    herd: Arc<Herd>,
}

impl ListeningClient {
    async fn run(self, opening: Arc<Semaphore>) {
        let permit = opening.acquire().await.unwrap();
        let (stream, delay) = self.open(&self.client).await;
        drop(permit);
        self.herd.opened.fetch_add(1, Ordering::Relaxed);
        read_to_end(stream).await;
        if self.policy == ReconnectPolicy::Keeps {
            sleep(delay).await;
        }
        let other = self.client.clone().with_url(&self.other_url);
        let (stream, _) = self.open(&other).await;
        self.herd.returned.lock().push(Instant::now());
        read_to_end(stream).await;
    }

    /// Opens a stream, again and again until a replica takes it. Returns the delay that it states.
    async fn open(&self, client: &RawClient) -> (HttpExchange, Duration) {
        loop {
            let filter = json!({ "toolsListChanged": true });
            if let Ok(mut stream) = client.listen(filter).await
                && stream.status == 200
                && let Ok(Some(first)) = stream.next_event().await
            {
                let delay = first.retry.expect("a listening stream states a delay");
                return (stream, Duration::from_millis(delay));
            }
            self.herd.refusals.fetch_add(1, Ordering::Relaxed);
            sleep(REFUSED_PAUSE).await;
        }
    }
}

async fn read_to_end(mut stream: HttpExchange) {
    while let Ok(Some(_)) = stream.next_event().await {}
}

/// Stops a client of another replica, none of whose calls may have failed. Describes their times.
fn stop_bystander(bystander: TimedCaller) -> String {
    let (_, calls) = bystander.stop();
    let failed = calls.iter().find(|call| !call.is_admitted);
    assert!(failed.is_none(), "{failed:?}");
    let [middle, slow, longest] = [50, 99, 100].map(|share| percentile(&calls, share));
    format!(
        "{} calls: p50 {middle:?}, p99 {slow:?}, longest {longest:?}",
        calls.len()
    )
}

/// Waits for a count, a thousand after the other: an unoptimized build takes more than the limit of one
/// wait for all.
async fn wait_for_count(what: &str, count: usize, current: impl Fn() -> usize) {
    for least in (0..count).step_by(1_000).chain([count]) {
        let reached = async || (current() >= least).then_some(());
        wait_until_async(&format!("{least} {what}"), reached).await;
    }
}

/// The number of clients that the descriptors of this process permit.
fn client_count() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    let descriptors: usize = soft
        .and_then(|soft| soft.parse().ok())
        .unwrap_or(MAX_CLIENTS);
    descriptors
        .saturating_sub(OTHER_DESCRIPTORS)
        .min(MAX_CLIENTS)
}

fn config(upstream: &MockServer, idp: &IdentityProvider) -> Value {
    let mut config = super::config(upstream);
    let issuer = json!({ "issuer": idp.issuer(), "audience": [AUDIENCE] });
    config["auth"] = json!({ "mode": "oauth", "issuers": [issuer] });
    config["limits"]["connections"] = json!(CONNECTIONS);
    config["limits"]["streams"] = json!(CONNECTIONS);
    config["limits"]["memory"] = json!(MEMORY);
    config
}

/// Returns the TLS config of a client that trusts the authority of the files.
fn trusting(files: &TlsFiles) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(files.authority_file()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

async fn measure_herd(policy: ReconnectPolicy, transport: ClientTransport) {
    let upstream = MockServer::modern().tools(1).start().await;
    let idp = IdentityProvider::start().await;
    let files = TlsFiles::new();
    let mut config = config(&upstream, &idp);
    if transport == ClientTransport::Tls {
        config["tls"] = json!({ "cert": files.certificate_file(), "key": files.key_file() });
    }
    let tls = (transport == ClientTransport::Tls).then(|| trusting(&files));
    let mut replicas = Replicas::start(COUNT, config).await;
    let client_of = |name: &str, number: usize| {
        let client = RawClient::new(&replicas.replica(number).url("/mcp"));
        let token = format!("Bearer {}", idp.token(name, AUDIENCE));
        let client = client.with_header("authorization", &token).modern();
        match &tls {
            Some(tls) => client.with_tls(tls.clone()),
            None => client,
        }
    };
    let bystander = || {
        let client = client_of("bystander", 1);
        // A client with TLS has a handshake before each call.
        let client = match transport {
            ClientTransport::Plain => client.keeping_connections(),
            ClientTransport::Tls => client,
        };
        TimedCaller::start("bystander", client, "tool_0000", CALL_PAUSE)
    };
    let (count, herd) = (client_count(), Arc::<Herd>::default());
    let opening = Arc::new(Semaphore::new(OPENING));
    // Apart from the server: it answers the bystander meanwhile.
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let threads = threads.worker_threads(2).enable_all().build().unwrap();
    for number in 0..count {
        let client = ListeningClient {
            client: client_of(&format!("client-{number}"), 0),
            other_url: replicas.replica(1 + number % (COUNT - 1)).url("/mcp"),
            policy,
            herd: herd.clone(),
        };
        threads.spawn(client.run(opening.clone()));
    }
    wait_for_count("listeners", count, || herd.opened.load(Ordering::Relaxed)).await;
    let calm = bystander();
    sleep(CALM).await;
    let calm = stop_bystander(calm);
    let disturbed = bystander();
    let begun = Instant::now();
    replicas.kill(0).await;
    wait_for_count("listeners that are back", count, || herd.returned()).await;
    let disturbed = stop_bystander(disturbed);
    let mut returned = herd.returned.lock().clone();
    returned.sort_unstable();
    let after = |share: usize| returned[(count - 1) * share / 100] - begun;
    println!(
        "{count} listeners of a killed replica, {transport:?}, policy {policy:?}: half are back after {:?}, all after {:?}, {} refusals",
        after(50),
        after(100),
        herd.refusals.load(Ordering::Relaxed),
    );
    println!("a client of another replica before: {calm}");
    println!("and meanwhile: {disturbed}");
    assert_eq!(herd.returned(), count, "all came back");
    let begun = Instant::now();
    replicas.start_another();
    println!(
        "a replica in its place is ready after {:?}",
        begun.elapsed()
    );
    threads.shutdown_background();
}

// Proves D21, T7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn listeners_of_a_killed_replica_come_back_over_a_range_of_time() {
    measure_herd(ReconnectPolicy::Keeps, ClientTransport::Plain).await;
}

// Proves D21, T7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn listeners_of_a_killed_replica_come_back_with_a_handshake_each() {
    measure_herd(ReconnectPolicy::Keeps, ClientTransport::Tls).await;
}

// Proves D21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn listeners_that_come_back_at_once_leave_others_served() {
    measure_herd(ReconnectPolicy::Ignores, ClientTransport::Plain).await;
}
