//! Every instrument that weir records, in one table. Crates record through the `opentelemetry` API;
//! the gateway installs the SDK and the exporters before the first record.
//!
//! Names and attributes follow the OpenTelemetry semantic conventions for MCP and HTTP; names
//! without a convention begin with `weir.`. Attribute values come from fixed sets or from the
//! config, so that the number of series is bounded by the config. The names of tools are chosen by
//! upstreams, and bounded in [`ItemMeter`]. The durations of requests and of calls are
//! [`DurationHistogram`]s of weir's own.

mod client_meter;
mod duration_histogram;
mod log_line_rate;
mod meters;
mod store_operation;
mod zeroed_counters;

pub use client_meter::ClientMeter;
pub use duration_histogram::{
    BOUNDS, CLIENT_DURATION, DurationHistogram, DurationSeries, Exemplar, HISTOGRAMS, MetricLabel,
    SERVER_DURATION, SeriesCounts, disable_histograms,
};
pub use log_line_rate::LogLineRate;
pub use meters::{
    DEFAULT_MAX_NAMES, ItemMeter, OTHER_NAME, UpstreamMeter, is_failed, set_max_names, upstreams,
};
pub use store_operation::StoreOperation;
pub use zeroed_counters::start_at_zero;
pub(crate) use zeroed_counters::start_endpoint_at_zero;

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

/// One instrument.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentRow {
    /// Its OpenTelemetry name.
    pub name: &'static str,
    /// The kind of instrument.
    pub kind: InstrumentKind,
    /// Its unit in UCUM, with the counted noun in braces.
    pub unit: &'static str,
    /// The attributes that its series can have.
    pub attributes: &'static [&'static str],
    /// Its description.
    pub about: &'static str,
}

/// The kinds of instruments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstrumentKind {
    /// Goes up.
    Counter,
    /// Goes up and down.
    UpDownCounter,
    /// The newest value.
    Gauge,
    /// The distribution of values.
    Histogram,
}

instruments! {
    session_duration: Histogram<f64> = f64_histogram("mcp.server.session.duration", "s", ["mcp.protocol.version"], "How long sessions lasted that their clients ended; not those that were left idle"),
    http_duration: Histogram<f64> = f64_histogram("http.server.request.duration", "s", ["http.request.method", "http.route", "http.response.status_code", "url.scheme", "network.protocol.version"], "Time from a request's head to the end of its answer's body; streams last as long as their clients stay"),
    http_active: UpDownCounter<i64> = i64_up_down_counter("http.server.active_requests", "{request}", ["http.request.method", "url.scheme"], "Requests being answered, open streams included"),
    http_request_size: Histogram<u64> = u64_histogram("http.server.request.body.size", "By", ["http.request.method", "http.route"], "Bytes of requests' bodies"),
    http_response_size: Histogram<u64> = u64_histogram("http.server.response.body.size", "By", ["http.request.method", "http.route"], "Bytes of answers' bodies"),
    start_time: Gauge<f64> = f64_gauge("process.start_time", "s", [], "When the process began, as Unix time"),
    upstream_up: Gauge<u64> = u64_gauge("weir.upstream.up", "{upstream}", ["upstream"], "1 while an upstream answers, 0 while it does not"),
    upstream_state: Gauge<u64> = u64_gauge("weir.upstream.state", "{upstream}", ["upstream", "state"], "1 for the state an upstream is in, 0 for the others: `unknown` (not asked yet), `up` or `down`"),
    upstream_in_flight: Gauge<u64> = u64_gauge("weir.upstream.in_flight", "{call}", ["upstream"], "Calls in flight at an upstream"),
    upstream_io: Counter<u64> = u64_counter("weir.upstream.io", "By", ["upstream", "network.io.direction"], "Bytes of messages sent to an upstream (`transmit`) and of its answers (`receive`)"),
    upstream_retries: Counter<u64> = u64_counter("weir.upstream.retries", "{retry}", ["upstream", "reason"], "Requests sent again, by reason: a proof that nothing ran, or `connection_lost` where sending again does no harm"),
    upstream_calls: Counter<u64> = u64_counter("weir.upstream.calls", "{call}", ["upstream", "mcp.protocol.version"], "Calls that ended, by the protocol revision they were carried in: a server of both eras has two"),
    upstream_bridged: Counter<u64> = u64_counter("weir.upstream.bridged", "{call}", ["upstream"], "Calls of clients with sessions that went to an upstream of both eras without one, since it holds as many sessions or processes as it may"),
    outputs_cleaned: Counter<u64> = u64_counter("weir.outputs.cleaned", "{character}", ["upstream", "kind"], "Hidden characters removed from what an upstream said, by kind (docs/outputs.md); an escape sequence counts once"),
    secrets_found: Counter<u64> = u64_counter("weir.secrets.found", "{secret}", ["upstream", "side", "action"], "Secrets found by patterns: `masked` in answers, or `refused` with the arguments or the answer (one for each)"),
    results_oversized: Counter<u64> = u64_counter("weir.results.oversized", "{result}", ["upstream", "action"], "Results larger than `upstreams.NAME.results.max`: `cut` or `refused`"),
    upstream_processes_refused: Counter<u64> = u64_counter("weir.upstream.processes.refused", "{call}", ["upstream"], "Calls refused since their upstream runs as many child processes as `max_processes` lets it"),
    upstream_protocol_errors: Counter<u64> = u64_counter("weir.upstream.protocol_errors", "{message}", ["upstream", "reason"], "Messages of an upstream that were dropped as invalid"),
    hold_bytes: UpDownCounter<i64> = i64_up_down_counter("weir.hold.bytes", "By", [], "Memory reserved for large results that are held until it is known whose answer they are and of which type, or what a client is told of their structured content (`limits.hold`)"),
    upstream_sessions: UpDownCounter<i64> = i64_up_down_counter("weir.upstream.sessions", "{session}", ["upstream"], "Sessions and child processes held open"),
    upstream_sessions_ended: Counter<u64> = u64_counter("weir.upstream.sessions_ended", "{session}", ["upstream", "reason"], "Sessions and processes of upstreams that weir ended: `posts_waiting` (the upstream does not take the messages it is sent)"),
    catalog_items: Gauge<u64> = u64_gauge("weir.catalog.items", "{item}", ["upstream", "kind"], "Items in the catalog"),
    catalog_complete: Gauge<u64> = u64_gauge("weir.catalog.complete", "{upstream}", ["upstream"], "1 if an upstream's last walk was whole and is fresh"),
    catalog_last_walk: Gauge<f64> = f64_gauge("weir.catalog.last_walk", "s", ["upstream"], "When an upstream's lists were last read to their end, as Unix time: the time since is how stale they can be"),
    catalog_truncated: Counter<u64> = u64_counter("weir.catalog.truncated", "{walk}", ["upstream", "guard"], "Walks cut short by a guard"),
    session_list_walks: Counter<u64> = u64_counter("weir.catalog.session_walks", "{walk}", ["upstream", "outcome"], "Reads of a list in a client's own session at an upstream, by what came of it: `same` as the shared list, `differs`, `failed`, `limited` (not read, since ten were in the last second), or the bound that the difference was beyond, so that the shared list is shown: `items`, `bytes` or `memory`"),
    tool_definition_changed: Counter<u64> = u64_counter("weir.catalog.tool_definition_changed", "{tool}", ["upstream"], "Tools whose definition changed"),
    list_changed_in: Counter<u64> = u64_counter("weir.list_changed.in", "{notification}", ["upstream"], "Change notifications from upstreams"),
    list_changed_out: Counter<u64> = u64_counter("weir.list_changed.out", "{notification}", ["era", "kind"], "Change notifications to clients"),
    subscriptions: UpDownCounter<i64> = i64_up_down_counter("weir.subscriptions", "{subscription}", ["upstream"], "Resources of which clients are told, each client counted"),
    updates_in: Counter<u64> = u64_counter("weir.resource_updates.in", "{notification}", ["upstream"], "Updates of single resources told by upstreams"),
    updates_out: Counter<u64> = u64_counter("weir.resource_updates.out", "{notification}", ["era"], "Updates of single resources told to clients"),
    cursors_abandoned: Counter<u64> = u64_counter("weir.list.cursors_abandoned", "{list}", ["endpoint"], "Lists whose client got a nextCursor and never came back"),
    client_requests: Counter<u64> = u64_counter("weir.client.requests", "{request}", ["client"], "Requests of senders that are known, by their OAuth client, or else by their subject; `anonymous` where nobody is asked for credentials. Names beyond `telemetry.metrics.max_names` are `other`"),
    client_limited: Counter<u64> = u64_counter("weir.client.limited", "{refusal}", ["client"], "Requests and calls that a limit refused, by client as above"),
    sessions: UpDownCounter<i64> = i64_up_down_counter("weir.sessions", "{session}", [], "Legacy client sessions alive"),
    streams: UpDownCounter<i64> = i64_up_down_counter("weir.streams", "{stream}", ["kind"], "Open client streams"),
    replay_bytes: UpDownCounter<i64> = i64_up_down_counter("weir.replay.bytes", "By", [], "Events kept for clients that lost their connection"),
    resumes: Counter<u64> = u64_counter("weir.resumes", "{stream}", ["result"], "Streams that clients took up again: `replayed` or `unknown`"),
    parked: UpDownCounter<i64> = i64_up_down_counter("weir.parked", "{call}", [], "Calls that wait at their upstream for input of a client that was told so"),
    connections: UpDownCounter<i64> = i64_up_down_counter("weir.connections", "{connection}", [], "Open client connections"),
    connections_closed: Counter<u64> = u64_counter("weir.connections.closed", "{connection}", ["reason"], "Client connections that weir closed or refused"),
    streams_reset: Counter<u64> = u64_counter("weir.streams.reset", "{stream}", ["reason"], "Streams of HTTP/2 that weir reset: `window`, the client granted none for 30 s; `deadline`, it read for longer than its call may last; `waiting`, too much waited for the client of the connection"),
    refusals: Counter<u64> = u64_counter("weir.refusals", "{request}", ["reason"], "Requests refused before they were decoded"),
    unexpected_responses: Counter<u64> = u64_counter("weir.unexpected_responses", "{message}", [], "Responses from clients to nothing weir asked"),
    deprecated: Counter<u64> = u64_counter("weir.deprecated.uses", "{use}", ["feature"], "Uses of what the specification has deprecated: `http_sse` (a stream opened), `logging` (a log level wanted), `roots`, `sampling` (a question passed on), `include_context`"),
    limit_decisions: Counter<u64> = u64_counter("weir.limit.decisions", "{decision}", ["limit", "outcome"], "Decisions of a limit of requests, calls or places: `allowed`, `refused`, `quota`, `full`, `waited` or `uncounted`"),
    limit_queue: UpDownCounter<i64> = i64_up_down_counter("weir.limit.queue", "{call}", ["limit", "upstream"], "Calls that wait for a place"),
    limit_wait: Histogram<f64> = f64_histogram("weir.limit.wait", "s", ["limit", "upstream"], "Time that calls waited for a place"),
    auth_rejections: Counter<u64> = u64_counter("weir.auth.rejections", "{request}", ["reason"], "Requests whose sender is not known"),
    jwks_fetches: Counter<u64> = u64_counter("weir.jwks.fetches", "{fetch}", ["issuer", "result"], "Fetches of an issuer's keys"),
    jwks_age: Gauge<u64> = u64_gauge("weir.jwks.age", "s", ["issuer"], "Age of an issuer's keys at the last attempt to fetch them"),
    validation_failures: Counter<u64> = u64_counter("weir.validation.failures", "{value}", ["upstream", "side", "action"], "Values that did not match a tool's schema"),
    schemas_unchecked: Counter<u64> = u64_counter("weir.validation.unchecked", "{schema}", ["upstream", "side", "reason"], "Tool schemas that are invalid or too costly to check"),
    ready: Gauge<u64> = u64_gauge("weir.ready", "{process}", [], "1 while weir wants traffic: its config is applied, clients can be known, and it does not drain"),
    build_info: Gauge<u64> = u64_gauge("weir.build.info", "{build}", ["version"], "1, with weir's version"),
    config_reloads: Counter<u64> = u64_counter("weir.config.reloads", "{reload}", ["result"], "Config reloads: `ok`, `error`, or `weaker` (refused because it gives up a protection without saying so)"),
    config_last_reload: Gauge<f64> = f64_gauge("weir.config.last_reload", "s", ["result"], "When the config was last loaded with this result, as Unix time; the start counts as one"),
    config_refused: Gauge<u64> = u64_gauge("weir.config.refused", "{config}", ["reason"], "1 while the config in the files is refused and the one before it is in force: `invalid` (it has errors), `unusable` (a file, certificate or address of it cannot be used), `exposed` (a listener is bound where it may not be served), or the protection that it gives up without saying so: `auth`, `admin`, `endpoints`, `policy`, `scopes`, `rates` or `audit`. A restart would take what is refused for one of the last eight"),
    config_team_files: Gauge<u64> = u64_gauge("weir.config.team_files", "{file}", ["file", "serves"], "1 while a file of `include` has errors, by what is served in its place: `last_good` (its last version without errors, which a restart would not have) or `nothing` (its paths answer 503)"),
    store_duration: Histogram<f64> = f64_histogram("weir.store.duration", "s", ["store", "operation"], "Time that the store took for an operation: of `records` (sessions), `replays`, `parking`, `counters` or `tasks`"),
    audit_records: Counter<u64> = u64_counter("weir.audit.records", "{record}", ["kind"], "Audit records kept"),
    audit_dropped: Counter<u64> = u64_counter("weir.audit.dropped", "{record}", ["sink"], "Audit records that a sink did not get"),
    audit_refused: Counter<u64> = u64_counter("weir.audit.refused", "{call}", [], "Calls refused because no audit record of them could be kept"),
    audit_queue: Gauge<u64> = u64_gauge("weir.audit.queue", "{record}", [], "Audit records waiting to be written"),
    audit_failing: Gauge<u64> = u64_gauge("weir.audit.failing", "{sink}", [], "1 while audit records cannot be written, 0 while they can"),
    audit_sync: Histogram<f64> = f64_histogram("weir.audit.sync", "s", [], "Time until the disk has audit records for good"),
    telemetry_queue: Gauge<u64> = u64_gauge("weir.telemetry.queue", "{item}", ["signal"], "Finished spans that wait to be sent"),
    telemetry_exports: Counter<u64> = u64_counter("weir.telemetry.exports", "{request}", ["signal", "result"], "Requests to the collector: `ok`, `refused`, `failed` or `late`"),
    telemetry_dropped: Counter<u64> = u64_counter("weir.telemetry.dropped", "{item}", ["signal", "reason"], "Spans (`traces`) and data points (`metrics`) that the collector did not get: `queue` (no room), `refused` or `lost`"),
    log_dropped: Counter<u64> = u64_counter("weir.log.dropped", "{line}", ["reason"], "Log lines that were not written: `rate` (more than 100 a second of one kind), `queue` (standard error takes them too slowly) or `failed` (it takes none)"),
    memory_used: Gauge<u64> = u64_gauge("weir.memory.used", "By", [], "Memory that the process has"),
    memory_shortage: Gauge<u64> = u64_gauge("weir.memory.shortage", "{stage}", [], "How short memory is: 0 enough, 1 connections are not kept, 2 what is new gets 503"),
    memory_reserved: Gauge<u64> = u64_gauge("weir.memory.reserved", "By", ["budget"], "Memory taken from a budget of the process: `bodies` (bodies of requests that are read or in use), `results` (results of upstreams that come as one message, and whole answers until clients have taken them), `messages` (what upstreams and clients say that waits to be taken), `subscriptions` (names of resources that clients subscribe to), `connections` (connections of clients, and heads that are read), `windows` (receive windows of HTTP/2)"),
    memory_refused: Counter<u64> = u64_counter("weir.memory.refused", "{refusal}", ["budget"], "Requests, results, messages and connections refused because a budget of memory was used up"),
    descriptors_open: Gauge<u64> = u64_gauge("weir.descriptors.open", "{descriptor}", [], "File descriptors that the process has open"),
    descriptors_refused: Counter<u64> = u64_counter("weir.descriptors.refused", "{connection}", ["side"], "Connections of clients (`front`) and to upstreams (`upstream`) refused to keep file descriptors for operators and reloads"),
    panics: Counter<u64> = u64_counter("weir.panics", "{panic}", [], "Requests that ended by a bug"),
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
