//! Every instrument weir records, in one table. Crates record through the `opentelemetry` API; the gateway installs
//! the SDK and the exporter before the first record.
//!
//! Attribute values come from fixed sets or from the config, so the number of series is bounded by the config.

use std::sync::LazyLock;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

macro_rules! instruments {
    ($($name:ident: $kind:ident<$unit_type:ty> = $make:ident($wire:literal, $unit:literal, $about:literal)),* $(,)?) => {
        /// The table. Names follow the OpenTelemetry semantic conventions where they have one.
        #[derive(Debug)]
        pub struct Instruments {
            $(#[doc = $about] pub $name: $kind<$unit_type>,)*
        }

        impl Instruments {
            fn new(meter: &Meter) -> Self {
                Self { $($name: meter.$make($wire).with_unit($unit).with_description($about).build(),)* }
            }
        }

        /// Names and descriptions of all instruments, for the docs and for the test that compares them with a scrape.
        pub const TABLE: &[(&str, &str, &str)] = &[$(($wire, $unit, $about)),*];
    };
}

instruments! {
    requests: Counter<u64> = u64_counter("weir.requests", "{request}", "Client requests by method, client era and outcome: ok, tool_error, protocol_error, refused, failed or cancelled"),
    request_duration: Histogram<f64> = f64_histogram("weir.request.duration", "s", "Time from a client's request to the end of its answer, by method and era"),
    call_duration: Histogram<f64> = f64_histogram("weir.tool_call.duration", "s", "Time of a tool call at an upstream, by upstream, tool and outcome"),
    upstream_up: Gauge<u64> = u64_gauge("weir.upstream.up", "{upstream}", "1 while an upstream answers, 0 while it does not, by upstream"),
    upstream_retries: Counter<u64> = u64_counter("weir.upstream.retries", "{retry}", "Requests sent again, by upstream and proof of non-execution"),
    upstream_protocol_errors: Counter<u64> = u64_counter("weir.upstream.protocol_errors", "{message}", "Messages of an upstream that were dropped as invalid, by upstream and reason"),
    upstream_sessions: UpDownCounter<i64> = i64_up_down_counter("weir.upstream.sessions", "{session}", "Sessions and child processes held open, by upstream"),
    catalog_items: Gauge<u64> = u64_gauge("weir.catalog.items", "{item}", "Items in the catalog, by upstream and kind"),
    catalog_complete: Gauge<u64> = u64_gauge("weir.catalog.complete", "{upstream}", "1 if an upstream's last walk was whole and is fresh, by upstream"),
    catalog_truncated: Counter<u64> = u64_counter("weir.catalog.truncated", "{walk}", "Walks cut short by a guard, by upstream and guard"),
    tool_definition_changed: Counter<u64> = u64_counter("weir.catalog.tool_definition_changed", "{tool}", "Tools whose definition changed, by upstream"),
    list_changed_in: Counter<u64> = u64_counter("weir.list_changed.in", "{notification}", "Change notifications from upstreams, by upstream"),
    list_changed_out: Counter<u64> = u64_counter("weir.list_changed.out", "{notification}", "Change notifications to clients, by client era"),
    subscriptions: UpDownCounter<i64> = i64_up_down_counter("weir.subscriptions", "{subscription}", "Resources of which clients are told, each client counted, by upstream"),
    updates_in: Counter<u64> = u64_counter("weir.resource_updates.in", "{notification}", "Updates of single resources told by upstreams, by upstream"),
    updates_out: Counter<u64> = u64_counter("weir.resource_updates.out", "{notification}", "Updates of single resources told to clients, by client era"),
    cursors_abandoned: Counter<u64> = u64_counter("weir.list.cursors_abandoned", "{list}", "Lists whose client got a nextCursor and never came back, by endpoint"),
    sessions: UpDownCounter<i64> = i64_up_down_counter("weir.sessions", "{session}", "Legacy client sessions alive"),
    streams: UpDownCounter<i64> = i64_up_down_counter("weir.streams", "{stream}", "Open client streams, by kind"),
    replay_bytes: UpDownCounter<i64> = i64_up_down_counter("weir.replay.bytes", "By", "Events kept for clients that lost their connection"),
    resumes: Counter<u64> = u64_counter("weir.resumes", "{stream}", "Streams that clients took up again, by result: replayed or unknown"),
    parked: UpDownCounter<i64> = i64_up_down_counter("weir.parked", "{call}", "Calls that wait at their upstream for input of a client that was told so"),
    connections: UpDownCounter<i64> = i64_up_down_counter("weir.connections", "{connection}", "Open client connections"),
    connections_closed: Counter<u64> = u64_counter("weir.connections.closed", "{connection}", "Client connections that weir closed or refused, by reason"),
    refusals: Counter<u64> = u64_counter("weir.refusals", "{request}", "Requests refused before they were decoded, by reason"),
    limit_decisions: Counter<u64> = u64_counter("weir.limit.decisions", "{decision}", "Refusals by a limit of requests, calls or places, by limit and outcome"),
    limit_queue: UpDownCounter<i64> = i64_up_down_counter("weir.limit.queue", "{call}", "Calls that wait for a place, by limit and upstream"),
    limit_wait: Histogram<f64> = f64_histogram("weir.limit.wait", "s", "Time that calls waited for a place, by limit and upstream"),
    auth_rejections: Counter<u64> = u64_counter("weir.auth.rejections", "{request}", "Requests whose sender is not known, by reason"),
    jwks_fetches: Counter<u64> = u64_counter("weir.jwks.fetches", "{fetch}", "Fetches of an issuer's keys, by issuer and result"),
    jwks_age: Gauge<u64> = u64_gauge("weir.jwks.age", "s", "Age of an issuer's keys at the last attempt to fetch them, by issuer"),
    validation_failures: Counter<u64> = u64_counter("weir.validation.failures", "{value}", "Values that did not match a tool's schema, by upstream, side and action"),
    schemas_unchecked: Counter<u64> = u64_counter("weir.validation.unchecked", "{schema}", "Tool schemas that are invalid or too costly to check, by upstream"),
    config_reloads: Counter<u64> = u64_counter("weir.config.reloads", "{reload}", "Config reloads, by result"),
    audit_records: Counter<u64> = u64_counter("weir.audit.records", "{record}", "Audit records kept, by kind"),
    audit_dropped: Counter<u64> = u64_counter("weir.audit.dropped", "{record}", "Audit records that a sink did not get, by sink"),
    audit_refused: Counter<u64> = u64_counter("weir.audit.refused", "{call}", "Calls refused because no audit record of them could be kept"),
    audit_queue: Gauge<u64> = u64_gauge("weir.audit.queue", "{record}", "Audit records waiting to be written"),
    audit_failing: Gauge<u64> = u64_gauge("weir.audit.failing", "{sink}", "1 while audit records cannot be written, 0 while they can"),
    audit_sync: Histogram<f64> = f64_histogram("weir.audit.sync", "s", "Time until the disk has audit records for good"),
    unexpected_responses: Counter<u64> = u64_counter("weir.unexpected_responses", "{message}", "Responses from clients to nothing weir asked"),
    memory_used: Gauge<u64> = u64_gauge("weir.memory.used", "By", "Memory that the process has"),
    memory_shortage: Gauge<u64> = u64_gauge("weir.memory.shortage", "{stage}", "How short memory is: 0 enough, 1 connections are not kept, 2 what is new gets 503"),
    panics: Counter<u64> = u64_counter("weir.panics", "{panic}", "Requests that ended by a bug"),
}

static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(|| Instruments::new(&opentelemetry::global::meter("weir")));

/// The instruments. Before the gateway has installed a meter provider they record nothing.
pub fn instruments() -> &'static Instruments {
    &INSTRUMENTS
}
