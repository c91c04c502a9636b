//! Every instrument that weir records, in one table. Crates record through the `opentelemetry` API;
//! the gateway installs the SDK and the exporters before the first record.
//!
//! Names and attributes follow the OpenTelemetry semantic conventions for MCP and HTTP; names
//! without a convention begin with `weir.`. Attribute values come from fixed sets or from the
//! config, so that the number of series is bounded by the config. The names of tools are chosen by
//! upstreams, and bounded in [`ItemMeter`]. The durations of requests and of calls are
//! [`DurationHistogram`]s of weir's own.

pub(crate) mod client_meter;
mod duration_histogram;
mod instrument_row;
mod lease_meter;
mod log_line_rate;
pub mod meters;
mod process_resource;
pub mod zeroed_counters;

pub use client_meter::ClientMeter;
pub use duration_histogram::{
    BOUNDS, CLIENT_DURATION, DurationHistogram, DurationSeries, Exemplar, HISTOGRAMS, MetricLabel,
    SERVER_DURATION, SeriesCounts, disable_histograms,
};
pub use instrument_row::{InstrumentKind, InstrumentRow};
pub use lease_meter::{LeaseMeter, record_leases};
pub use log_line_rate::LogLineRate;
pub use meters::{
    DEFAULT_MAX_NAMES, ItemMeter, OTHER_NAME, UpstreamMeter, present_meters, set_max_names,
    upstreams,
};
pub use process_resource::{process_resource, set_process_resource};
pub use zeroed_counters::start_at_zero;

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

macro_rules! instruments {
    ($($name:ident: $kind:ident<$unit_type:ty> = $make:ident($wire:literal, $unit:literal, [$($attribute:literal),*], $about:literal)),* $(,)?) => {
        /// The table.
        #[derive(Debug)]
        pub struct Instruments {
            $(#[doc = $about] pub $name: $kind<$unit_type>,)*
        }

        impl Instruments {
            fn new(meter: &Meter) -> Self {
                Self { $($name: meter.$make($wire).with_unit($unit).with_description($about).build(),)* }
            }
        }

        /// The instruments of the table.
        const TABLE: &[InstrumentRow] = &[$(InstrumentRow {
            name: $wire,
            kind: InstrumentKind::$kind,
            unit: $unit,
            attributes: &[$($attribute),*],
            about: $about,
        }),*];
    };
}

instruments! {
    session_duration: Histogram<f64> = f64_histogram("mcp.server.session.duration", "s", ["mcp.protocol.version"], "Duration of sessions that a client, an operator or the age limit ended; sessions that expired idle are not included"),
    http_duration: Histogram<f64> = f64_histogram("http.server.request.duration", "s", ["http.request.method", "http.route", "http.response.status_code", "url.scheme", "network.protocol.version"], "Time from a request's head to the end of its response body; a stream counts until it closes. Without `http.response.status_code`, the client disconnected before the response began"),
    http_active: UpDownCounter<i64> = i64_up_down_counter("http.server.active_requests", "{request}", ["http.request.method", "url.scheme"], "Requests in progress, including open streams"),
    http_request_size: Histogram<u64> = u64_histogram("http.server.request.body.size", "By", ["http.request.method", "http.route"], "Size of request bodies"),
    http_response_size: Histogram<u64> = u64_histogram("http.server.response.body.size", "By", ["http.request.method", "http.route"], "Size of response bodies"),
    start_time: Gauge<f64> = f64_gauge("process.start_time", "s", [], "Start time of the process, as Unix time"),
    upstream_up: Gauge<u64> = u64_gauge("weir.upstream.up", "{upstream}", ["upstream"], "1 while an upstream is up, 0 while it is down: not reached, silent while five calls in a row passed their deadlines, or with lists that cannot be read"),
    upstream_state: Gauge<u64> = u64_gauge("weir.upstream.state", "{upstream}", ["upstream", "state"], "1 for the current state of an upstream, 0 for the others: `unknown` (not contacted yet), `up` or `down`"),
    upstream_disabled: Gauge<u64> = u64_gauge("weir.upstream.disabled", "{upstream}", ["upstream"], "1 while an operator's action takes an upstream out of service, disabled or draining, 0 otherwise"),
    upstream_urls: Gauge<u64> = u64_gauge("weir.upstream.urls", "{url}", ["upstream", "state"], "URLs of an upstream that has several, by the state of their circuit breakers: `closed`, `half_open` (answers again, and gets a few calls) or `open` (gets no calls while another URL does)"),
    upstream_in_flight: Gauge<u64> = u64_gauge("weir.upstream.in_flight", "{call}", ["upstream"], "Calls in flight at an upstream"),
    upstream_io: Counter<u64> = u64_counter("weir.upstream.io", "By", ["upstream", "network.io.direction"], "Bytes of messages sent to an upstream (`transmit`) and of its responses (`receive`)"),
    upstream_retries: Counter<u64> = u64_counter("weir.upstream.retries", "{retry}", ["upstream", "reason"], "Requests sent again, by reason: a proof that the first attempt did not run, `other_url` if another URL of the upstream got the call after such an attempt, or `connection_lost` for requests that are safe to repeat"),
    upstream_calls: Counter<u64> = u64_counter("weir.upstream.calls", "{call}", ["upstream", "mcp.protocol.version"], "Calls that ended, by the protocol revision that was used; an upstream of both eras has two series"),
    upstream_bridged: Counter<u64> = u64_counter("weir.upstream.bridged", "{call}", ["upstream"], "Calls of clients with sessions that were sent to an upstream of both eras without a session, because its limit of sessions or processes was reached"),
    outputs_cleaned: Counter<u64> = u64_counter("weir.outputs.cleaned", "{character}", ["upstream", "kind"], "Hidden characters removed from texts of an upstream, by kind (docs/outputs.md); an escape sequence counts once"),
    secrets_found: Counter<u64> = u64_counter("weir.secrets.found", "{secret}", ["upstream", "side", "action"], "Secrets found by patterns: each one `masked` in an answer, or one for each call with `refused` arguments or a `refused` answer"),
    results_oversized: Counter<u64> = u64_counter("weir.results.oversized", "{result}", ["upstream", "action"], "Results larger than `upstreams.NAME.results.max`: `cut` or `refused`"),
    upstream_lease_held: Gauge<u64> = u64_gauge("weir.upstream.lease.held", "{lease}", ["upstream"], "1 while this replica runs the child processes of an upstream with `instances: one`, 0 while another one does or none may"),
    upstream_lease_changes: Counter<u64> = u64_counter("weir.upstream.lease.changes", "{change}", ["upstream"], "New epochs of the lease of an upstream with `instances: one`, as this replica saw them: each is a new holder, or the same one after the shared store lost its data"),
    upstream_forwarded: Counter<u64> = u64_counter("weir.upstream.forwarded", "{call}", ["upstream", "result"], "Calls to an upstream with `instances: one` that were sent to the replica that runs it: `answered`, `refused` (not run: it does not hold the lease any more, or drains), `unreachable` (not run) or `lost` (may have run)"),
    upstream_processes_refused: Counter<u64> = u64_counter("weir.upstream.processes.refused", "{call}", ["upstream"], "Calls refused because their upstream runs `max_processes` child processes"),
    upstream_protocol_errors: Counter<u64> = u64_counter("weir.upstream.protocol_errors", "{message}", ["upstream", "reason"], "Invalid messages of an upstream that were dropped"),
    hold_bytes: UpDownCounter<i64> = i64_up_down_counter("weir.hold.bytes", "By", [], "Memory reserved for the held parts of large results, until their request id, type and structured content are known (`limits.hold`)"),
    upstream_sessions: UpDownCounter<i64> = i64_up_down_counter("weir.upstream.sessions", "{session}", ["upstream"], "Open sessions and child processes"),
    upstream_sessions_ended: Counter<u64> = u64_counter("weir.upstream.sessions_ended", "{session}", ["upstream", "reason"], "Sessions and child processes of upstreams that weir ended: `posts_waiting` (the upstream does not accept the messages sent to it)"),
    catalog_items: Gauge<u64> = u64_gauge("weir.catalog.items", "{item}", ["upstream", "kind"], "Items in the catalog"),
    catalog_complete: Gauge<u64> = u64_gauge("weir.catalog.complete", "{upstream}", ["upstream"], "1 if the last walk of an upstream succeeded and its list of tools was complete"),
    catalog_last_walk: Gauge<f64> = f64_gauge("weir.catalog.last_walk", "s", ["upstream"], "Time of the last complete walk of an upstream's lists, as Unix time; the time since then is their greatest possible age"),
    lists_behind: Gauge<u64> = u64_gauge("weir.list.behind", "{list}", [], "Upstreams and capability classes of which another replica announced other lists, and that are not walked since; 0 without a shared store"),
    list_waits: Counter<u64> = u64_counter("weir.list.waits", "{request}", ["outcome"], "Requests that waited for lists that another replica announced: `caught_up`, or `older_list` after 2 s"),
    catalog_truncated: Counter<u64> = u64_counter("weir.catalog.truncated", "{walk}", ["upstream", "guard"], "Walks truncated by a guard"),
    session_list_walks: Counter<u64> = u64_counter("weir.catalog.session_walks", "{walk}", ["upstream", "outcome"], "Walks of a list in a client's own session at an upstream, by outcome: `same` as the shared list, `differs`, `failed`, `limited` (not read, because of the limit of ten a second), or the bound that the difference exceeded: `items`, `bytes` or `memory` (the client gets the shared list)"),
    tool_definition_changed: Counter<u64> = u64_counter("weir.catalog.tool_definition_changed", "{tool}", ["upstream"], "Tools with a changed definition"),
    list_changed_in: Counter<u64> = u64_counter("weir.list_changed.in", "{notification}", ["upstream"], "Change notifications from upstreams"),
    list_changed_out: Counter<u64> = u64_counter("weir.list_changed.out", "{notification}", ["era", "kind"], "Change notifications to clients"),
    subscriptions: UpDownCounter<i64> = i64_up_down_counter("weir.subscriptions", "{subscription}", ["upstream"], "Subscriptions of clients to resources"),
    updates_in: Counter<u64> = u64_counter("weir.resource_updates.in", "{notification}", ["upstream"], "Update notifications of single resources from upstreams"),
    updates_out: Counter<u64> = u64_counter("weir.resource_updates.out", "{notification}", ["era"], "Update notifications of single resources to clients"),
    cursors_abandoned: Counter<u64> = u64_counter("weir.list.cursors_abandoned", "{list}", ["endpoint"], "Lists that a client did not read on: it got a nextCursor and never used it"),
    client_requests: Counter<u64> = u64_counter("weir.client.requests", "{request}", ["client"], "Authenticated requests, by OAuth client, or else by subject (of an API key, its subject in the config); `anonymous` if no credentials are required. Names beyond `telemetry.metrics.max_names` are `other`"),
    client_limited: Counter<u64> = u64_counter("weir.client.limited", "{refusal}", ["client"], "Requests and calls refused by a limit, by client as in `weir.client.requests`"),
    sessions: UpDownCounter<i64> = i64_up_down_counter("weir.sessions", "{session}", [], "Open sessions of legacy clients"),
    streams: UpDownCounter<i64> = i64_up_down_counter("weir.streams", "{stream}", ["kind"], "Open streams that clients listen on, by `kind`: `modern` (`subscriptions/listen`) or `legacy` (GET streams, resumed streams and HTTP+SSE connections, each of them once)"),
    replay_bytes: UpDownCounter<i64> = i64_up_down_counter("weir.replay.bytes", "By", [], "Size of the events that are kept for the resumption of streams"),
    resumes: Counter<u64> = u64_counter("weir.resumes", "{stream}", ["result"], "Requests of clients to resume a stream: `replayed`, `recovered` (its events were fetched from the shared store, after the end of their replica, or came from the previous process meanwhile), `ended` (it has no further events), or `unknown` (its events are not kept)"),
    parked: UpDownCounter<i64> = i64_up_down_counter("weir.parked", "{call}", [], "Parked calls: they wait at their upstream for the client's answers to questions"),
    connections: UpDownCounter<i64> = i64_up_down_counter("weir.connections", "{connection}", [], "Open client connections"),
    connections_closed: Counter<u64> = u64_counter("weir.connections.closed", "{connection}", ["reason"], "Client connections that weir closed or refused"),
    streams_reset: Counter<u64> = u64_counter("weir.streams.reset", "{stream}", ["reason"], "HTTP/2 streams that weir reset: `window` (the client granted no window for 30 s), `deadline` (the client read past the time limit of its call) or `waiting` (too much data waited for the client of the connection)"),
    refusals: Counter<u64> = u64_counter("weir.refusals", "{request}", ["reason"], "Requests refused before they were decoded"),
    forwarded: Counter<u64> = u64_counter("weir.forwarded", "{attempt}", ["result"], "Requests sent to the replica that owns their session or call, or to another process of a graceful restart: `answered`, `not_owner` (another one owns it), `unreachable` (the request did not run), or `lost` (the replica or process ended before its answer, or did not answer in time)"),
    unexpected_responses: Counter<u64> = u64_counter("weir.unexpected_responses", "{message}", [], "Responses of clients that match no open request of weir"),
    deprecated: Counter<u64> = u64_counter("weir.deprecated.uses", "{use}", ["feature"], "Uses of features that the specification has deprecated: `http_sse` (a stream opened), `logging` (a log level requested), `roots`, `sampling` (a question forwarded), `include_context`"),
    limit_decisions: Counter<u64> = u64_counter("weir.limit.decisions", "{decision}", ["limit", "outcome"], "Decisions of rate limits, quotas and concurrency limits. Admitted: `allowed`, or `uncounted` by a daily quota that could not be counted. Refused: `refused` by the rate, `quota` by the daily quota, `uncountable` by one that could not be counted, `full` by a full queue, or `waited` after the whole wait for a slot"),
    limit_queue: UpDownCounter<i64> = i64_up_down_counter("weir.limit.queue", "{call}", ["limit", "upstream"], "Calls that wait for a slot"),
    limit_wait: Histogram<f64> = f64_histogram("weir.limit.wait", "s", ["limit", "upstream"], "Time that calls waited for a slot"),
    auth_rejections: Counter<u64> = u64_counter("weir.auth.rejections", "{request}", ["reason"], "Requests rejected by authentication"),
    jwks_fetches: Counter<u64> = u64_counter("weir.jwks.fetches", "{fetch}", ["issuer", "result"], "Fetches of an issuer's keys"),
    jwks_age: Gauge<u64> = u64_gauge("weir.jwks.age", "s", ["issuer"], "Age of an issuer's keys at the last attempt to fetch them"),
    validation_failures: Counter<u64> = u64_counter("weir.validation.failures", "{value}", ["upstream", "side", "action"], "Values that did not match a tool's schema"),
    schemas_unchecked: Counter<u64> = u64_counter("weir.validation.unchecked", "{schema}", ["upstream", "side", "reason"], "Tool schemas that are invalid or too costly to check"),
    ready: Gauge<u64> = u64_gauge("weir.ready", "{process}", [], "1 while weir is ready for traffic: its config is applied, it can authenticate clients, and it does not drain"),
    build_info: Gauge<u64> = u64_gauge("weir.build.info", "{build}", ["version"], "Always 1, with weir's version"),
    config_reloads: Counter<u64> = u64_counter("weir.config.reloads", "{reload}", ["result"], "Config reloads: `ok`, `error`, or `weaker` (refused because it removes a protection without a waiver)"),
    config_last_reload: Gauge<f64> = f64_gauge("weir.config.last_reload", "s", ["result"], "Time of the last load of the config with this result, as Unix time; the start counts as a load"),
    config_refused: Gauge<u64> = u64_gauge("weir.config.refused", "{config}", ["reason"], "1 while the config in the files is refused and the previous one is in force: `invalid` (it has errors), `unusable` (a file, certificate or address in it cannot be used), `exposed` (a listener is bound to an address where the config may not be served), `internal` (weir failed on it by a fault of its own: the log has `internal error: panic`), or the protection that it removes without a waiver: `auth`, `admin`, `tls`, `endpoints`, `tools`, `policy`, `scopes`, `rates`, `validation`, `asks`, `secrets` or `audit`. A restart would accept a config that is refused as `exposed` or for a protection"),
    config_team_files: Gauge<u64> = u64_gauge("weir.config.team_files", "{file}", ["file", "serves"], "1 while a file of `include` has errors, by the version that is served: `last_good` (its last version without errors, which is lost at a restart) or `nothing` (its paths answer 503)"),
    store_duration: Histogram<f64> = f64_histogram("weir.store.duration", "s", ["store", "operation"], "Duration of store operations on `records` (sessions), `replays`, `parking`, `counters` or `tasks`, and of answered commands to the `shared` store"),
    store_up: Gauge<u64> = u64_gauge("weir.store.up", "{store}", [], "1 while the shared store answers and accepts writes, else 0"),
    store_risks: Gauge<u64> = u64_gauge("weir.store.risks", "{setting}", ["setting"], "1 while the server of the shared store has a setting that may lose sessions: `maxmemory-policy` (it evicts keys), `appendonly` (it writes nothing to disk) or `min-replicas-to-write` (it answers writes that none of its replicas has)"),
    store_commands: Counter<u64> = u64_counter("weir.store.commands", "{command}", ["operation", "result"], "Commands to the shared store, by result: `ok`, `error` (it answered with an error, or the connection was lost), `timeout`, or `refused` (not sent, because the store did not answer a moment ago)"),
    store_fallbacks: Counter<u64> = u64_counter("weir.store.fallbacks", "{use}", ["operation"], "Operations that used the state of this replica alone, because the shared store did not answer: `count` (a quota), `locate` (the owner of a session) or `take_tokens` (a rate)"),
    store_pending: Gauge<u64> = u64_gauge("weir.store.pending", "{write}", [], "Writes that wait for the shared store"),
    store_dropped: Counter<u64> = u64_counter("weir.store.dropped", "{item}", ["kind"], "Items that did not reach the shared store: `write` (too many writes waited), `event` (too many events of resumable streams waited), `task` (too many tasks waited) or `message` (a message to the other replicas)"),
    store_missed: Counter<u64> = u64_counter("weir.store.missed", "{frame}", [], "Frames of messages of other replicas that did not arrive. The replica then looks at its sessions and at the lists"),
    store_lost: Counter<u64> = u64_counter("weir.store.lost", "{record}", [], "Sessions that another replica took over while this one still had them"),
    replicas: Gauge<u64> = u64_gauge("weir.replicas", "{replica}", [], "Replicas that answer requests, as this one sees them, this one included"),
    config_drift: Gauge<u64> = u64_gauge("weir.replicas.config_drift", "{drift}", [], "1 while replicas that answer requests announce different digests of their configs"),
    sealing_key: Gauge<u64> = u64_gauge("weir.sealing.key", "{id}", [], "The id of the key that this replica seals with, if it shares a store"),
    sealing_waiting: Gauge<u64> = u64_gauge("weir.sealing.waiting", "{replica}", [], "Replicas without the first of the keys of this one, which seals once all have it"),
    sealing_missing: Gauge<u64> = u64_gauge("weir.sealing.missing", "{key}", [], "1 while another replica seals with a key that this one lacks: it is not ready"),
    audit_records: Counter<u64> = u64_counter("weir.audit.records", "{record}", ["kind"], "Audit records kept"),
    audit_dropped: Counter<u64> = u64_counter("weir.audit.dropped", "{record}", ["sink"], "Audit records that did not reach a sink"),
    audit_refused: Counter<u64> = u64_counter("weir.audit.refused", "{call}", [], "Calls refused because their audit record could not be kept"),
    audit_queue: Gauge<u64> = u64_gauge("weir.audit.queue", "{record}", [], "Audit records that wait to be written"),
    audit_failing: Gauge<u64> = u64_gauge("weir.audit.failing", "{sink}", [], "1 while audit records cannot be written, 0 while they can"),
    audit_sync: Histogram<f64> = f64_histogram("weir.audit.sync", "s", [], "Duration of syncs of the audit file to disk"),
    telemetry_queue: Gauge<u64> = u64_gauge("weir.telemetry.queue", "{item}", ["signal"], "Finished spans that wait for export"),
    telemetry_exports: Counter<u64> = u64_counter("weir.telemetry.exports", "{request}", ["signal", "result"], "Requests to the collector, by result: `ok`, `refused`, `failed` or `late`"),
    telemetry_dropped: Counter<u64> = u64_counter("weir.telemetry.dropped", "{item}", ["signal", "reason"], "Spans (`traces`) and data points (`metrics`) that did not reach the collector: `queue` (the queue was full), `refused` or `lost`"),
    log_dropped: Counter<u64> = u64_counter("weir.log.dropped", "{line}", ["reason"], "Log lines that were dropped: `rate` (more than 100 a second of one kind), `queue` (writes to standard error are too slow) or `failed` (writes to standard error fail)"),
    memory_used: Gauge<u64> = u64_gauge("weir.memory.used", "By", [], "Memory used by the process"),
    memory_shortage: Gauge<u64> = u64_gauge("weir.memory.shortage", "{stage}", [], "Stage of memory pressure: 0 (none), 1 (connections close after their request) or 2 (new requests get 503)"),
    memory_reserved: Gauge<u64> = u64_gauge("weir.memory.reserved", "By", ["budget"], "Memory reserved from a budget of the process: `bodies` (request bodies), `results` (results of upstreams that arrive as one message, whole answers until clients have read them, and cached pages of lists), `messages` (messages of upstreams and clients that wait for delivery), `subscriptions` (names of resources that clients subscribe to), `connections` (client connections and the request heads read on them) or `windows` (receive windows of HTTP/2)"),
    memory_refused: Counter<u64> = u64_counter("weir.memory.refused", "{refusal}", ["budget"], "Requests, results, messages and connections refused because a memory budget was exhausted"),
    descriptors_open: Gauge<u64> = u64_gauge("weir.descriptors.open", "{descriptor}", [], "Open file descriptors of the process"),
    descriptors_refused: Counter<u64> = u64_counter("weir.descriptors.refused", "{connection}", ["side"], "Connections of clients (`front`) and to upstreams (`upstream`) refused to keep file descriptors free for operators and reloads"),
    panics: Counter<u64> = u64_counter("weir.panics", "{panic}", [], "Requests that ended with a panic"),
}

static INSTRUMENTS: LazyLock<Instruments> =
    LazyLock::new(|| Instruments::new(&opentelemetry::global::meter("weir")));

/// All metrics, for the docs and for the tests that compare them with a scrape.
pub fn rows() -> impl Iterator<Item = &'static InstrumentRow> {
    HISTOGRAMS.iter().map(|timing| &timing.row).chain(TABLE)
}

/// The instruments. Before the gateway has installed a meter provider, their records are dropped.
pub fn instruments() -> &'static Instruments {
    &INSTRUMENTS
}

/// A time as gauges have it: seconds since 1970.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
