//! `limits`: checks the range of each key, and converts it to the settings it belongs to.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::RawLimits;
use weir_core::hold::HoldLimits;
use weir_front::settings::{FrontLimits, H2Limits, ListenerLimits, SessionLimits};
use weir_store::{ParkingCaps, RecordCaps, ReplayCaps};

use crate::check::count_check::check_count;

/// The largest body that the config can allow: memory of a request is a small multiple of its body.
const MAX_BODY_BYTES: usize = 4 << 20;
/// The memory that an idle weir needs.
const MIN_PROCESS_BYTES: usize = 16 << 20;
/// The size of a result up to which every message is held.
const MIN_HOLD_BYTES: usize = 64 << 10;
/// The range of a window in HTTP/2 (RFC 9113 section 6.9.1).
const H2_WINDOW: std::ops::RangeInclusive<usize> = 1024..=(1 << 31) - 1;

/// The largest buffer of an HTTP/2 stream; the library panics above 4 GiB.
const MAX_SEND_BUFFER: usize = 1 << 30;
/// The most header lines. A map of headers holds 24,576 of them, and HTTP/1.1 has memory for all of
/// them in each request.
const MAX_HEADERS: usize = 10_000;

/// The value of a key that counts something, or its default.
macro_rules! count {
    ($checker:expr, $raw:expr, $default:expr, $name:ident) => {
        $checker
            .count(stringify!($name), $raw.$name)
            .unwrap_or($default.$name)
    };
}

/// The value of a key that is a time, or its default.
macro_rules! time {
    ($checker:expr, $raw:expr, $default:expr, $name:ident) => {
        $checker
            .time(stringify!($name), $raw.$name.map(|time| time.0))
            .unwrap_or($default.$name)
    };
}

/// The value of a key that is a size, or its default.
macro_rules! size {
    ($checker:expr, $raw:expr, $default:expr, $name:ident) => {
        $checker
            .at_least(stringify!($name), $raw.$name.map(|size| size.0), 1)
            .unwrap_or($default.$name)
    };
}

pub(super) fn check(raw: Option<&RawLimits>, report: &mut ConfigReport) -> FrontLimits {
    let d = FrontLimits::default();
    let Some(raw) = raw else { return d };
    let mut checker = LimitsChecker { report };
    FrontLimits {
        listener: listener(raw, &mut checker),
        session: session(raw, &mut checker),
        body_time: time!(checker, raw, d, body_time),
        body_rate: raw.body_rate.map_or(d.body_rate, |size| size.0 as u64),
        body_rate_grace: time!(checker, raw, d, body_rate_grace),
        in_flight: count!(checker, raw, d, in_flight),
        in_flight_wait: raw.in_flight_wait.map_or(d.in_flight_wait, |time| time.0),
        streams: count!(checker, raw, d, streams),
        streams_per_principal: count!(checker, raw, d, streams_per_principal),
        subscriptions: count!(checker, raw, d, subscriptions),
        subscriptions_per_principal: count!(checker, raw, d, subscriptions_per_principal),
        subscriptions_per_client: count!(checker, raw, d, subscriptions_per_client),
        batch_items: count!(checker, raw, d, batch_items),
        batch_bytes: size!(checker, raw, d, batch_bytes),
        stream_after: time!(checker, raw, d, stream_after),
        keep_alive: time!(checker, raw, d, keep_alive),
        progress_interval: raw
            .progress_interval
            .map_or(d.progress_interval, |time| time.0),
        retry: time!(checker, raw, d, retry),
        page_cache_bytes: raw
            .page_cache_bytes
            .map_or(d.page_cache_bytes, |size| size.0),
        state_time: time!(checker, raw, d, state_time),
    }
}

fn listener(raw: &RawLimits, checker: &mut LimitsChecker<'_>) -> ListenerLimits {
    let d = ListenerLimits::default();
    if raw.body_bytes.is_some_and(|size| size.0 > MAX_BODY_BYTES) {
        checker.add_error("body_bytes", "is more than the maximum of 4MiB");
    }
    if raw.headers.is_some_and(|count| count > MAX_HEADERS) {
        checker.add_error("headers", "is more than the maximum of 10000");
    }
    if raw.head_bytes.is_some_and(|size| size.0 < 8 << 10) {
        checker.add_error(
            "head_bytes",
            "is less than 8KiB: a bearer token alone may be that long",
        );
    }
    ListenerLimits {
        backlog: count!(checker, raw, d, backlog),
        connections: count!(checker, raw, d, connections),
        connections_per_address: count!(checker, raw, d, connections_per_address),
        handshakes: count!(checker, raw, d, handshakes),
        handshake_time: time!(checker, raw, d, handshake_time),
        head_time: time!(checker, raw, d, head_time),
        head_bytes: size!(checker, raw, d, head_bytes),
        headers: count!(checker, raw, d, headers),
        body_bytes: size!(checker, raw, d, body_bytes),
        idle_time: time!(checker, raw, d, idle_time),
        stall_time: d.stall_time,
        tcp_keepalive: time!(checker, raw, d, tcp_keepalive),
        tcp_user_timeout: time!(checker, raw, d, tcp_user_timeout),
        h2: h2(raw, checker),
        drain_idle: raw.drain_idle.map_or(d.drain_idle, |time| time.0),
    }
}

fn session(raw: &RawLimits, checker: &mut LimitsChecker<'_>) -> SessionLimits {
    let d = SessionLimits::default();
    SessionLimits {
        // Set from the result of `sessions`.
        sessions: d.sessions,
        sessions_per_principal: d.sessions_per_principal,
        session_idle: time!(checker, raw, d, session_idle),
        session_age: time!(checker, raw, d, session_age),
        detached_per_session: count!(checker, raw, d, detached_per_session),
        detached: count!(checker, raw, d, detached),
    }
}

fn h2(raw: &RawLimits, checker: &mut LimitsChecker<'_>) -> H2Limits {
    let d = H2Limits::default();
    let mut window = |name, size: Option<weir_config_file::raw::Size>, default: u32| {
        let Some(size) = size else { return default };
        if !H2_WINDOW.contains(&size.0) {
            checker.add_error(
                name,
                "is not an HTTP/2 window size: write 1KiB to just under 2GiB",
            );
        }
        u32::try_from(size.0).unwrap_or(default)
    };
    let stream_window = window("h2_stream_window", raw.h2_stream_window, d.stream_window);
    let connection_window = window(
        "h2_connection_window",
        raw.h2_connection_window,
        d.connection_window,
    );
    if raw
        .h2_send_buffer
        .is_some_and(|size| size.0 > MAX_SEND_BUFFER)
    {
        checker.add_error("h2_send_buffer", "is more than the maximum of 1GiB");
    }
    H2Limits {
        streams: checker
            .count("h2_streams", raw.h2_streams)
            .unwrap_or(d.streams),
        stream_window,
        connection_window,
        send_buffer: checker
            .at_least(
                "h2_send_buffer",
                raw.h2_send_buffer.map(|size| size.0),
                1024,
            )
            .unwrap_or(d.send_buffer),
        ping: checker
            .time("h2_ping", raw.h2_ping.map(|time| time.0))
            .unwrap_or(d.ping),
        ping_timeout: checker
            .time("h2_ping_timeout", raw.h2_ping_timeout.map(|time| time.0))
            .unwrap_or(d.ping_timeout),
        age: checker
            .time("h2_age", raw.h2_age.map(|time| time.0))
            .unwrap_or(d.age),
        last_streams: d.last_streams,
        waiting_bytes: d.waiting_bytes,
        pause_bytes: d.pause_bytes,
        is_flood_limited: d.is_flood_limited,
    }
}

/// Returns the caps of the session store.
pub(super) fn sessions(raw: Option<&RawLimits>, report: &mut ConfigReport) -> RecordCaps {
    let d = RecordCaps::default();
    let Some(raw) = raw else { return d };
    let mut checker = LimitsChecker { report };
    RecordCaps {
        total: checker.count("sessions", raw.sessions).unwrap_or(d.total),
        per_principal: checker
            .count("sessions_per_principal", raw.sessions_per_principal)
            .unwrap_or(d.per_principal),
    }
}

/// Returns the bound on the memory of the process.
pub(super) fn memory(raw: Option<&RawLimits>, report: &mut ConfigReport) -> Option<u64> {
    let size = raw?.memory?.0;
    if size < MIN_PROCESS_BYTES {
        LimitsChecker { report }
            .add_error("memory", "is less than 16MiB, the minimum for weir itself");
    }
    Some(size as u64)
}

/// Returns the caps of the replay logs.
pub(super) fn replays(raw: Option<&RawLimits>, report: &mut ConfigReport) -> ReplayCaps {
    let d = ReplayCaps::default();
    let Some(raw) = raw else { return d };
    let mut checker = LimitsChecker { report };
    ReplayCaps {
        total: raw.replay_bytes.map_or(d.total, |size| size.0),
        per_session: raw
            .replay_bytes_per_session
            .map_or(d.per_session, |size| size.0),
        age: checker
            .time("replay_age", raw.replay_age.map(|time| time.0))
            .unwrap_or(d.age),
    }
}

/// Returns the bounds on results that are held.
pub(super) fn hold(raw: Option<&RawLimits>, report: &mut ConfigReport) -> HoldLimits {
    let d = HoldLimits::default();
    let Some(raw) = raw else { return d };
    let mut checker = LimitsChecker { report };
    let per_call = raw.hold_per_call.map_or(d.per_call, |size| size.0);
    if per_call < MIN_HOLD_BYTES {
        checker.add_error(
            "hold_per_call",
            "is less than 64KiB: results up to that size are always held",
        );
    }
    let total = raw.hold.map_or(d.total.max(per_call), |size| size.0);
    if total < per_call {
        checker.add_error("hold", "is less than `hold_per_call`");
    }
    HoldLimits { per_call, total }
}

/// Returns the caps of parked calls.
pub(super) fn parked(raw: Option<&RawLimits>, report: &mut ConfigReport) -> ParkingCaps {
    let d = ParkingCaps::default();
    let Some(raw) = raw else { return d };
    let mut checker = LimitsChecker { report };
    ParkingCaps {
        total: checker.count("parked", raw.parked).unwrap_or(d.total),
        per_principal: checker
            .count("parked_per_principal", raw.parked_per_principal)
            .unwrap_or(d.per_principal),
        // Checked with the other limits.
        time: raw.state_time.map_or(d.time, |time| time.0),
    }
}

struct LimitsChecker<'a> {
    report: &'a mut ConfigReport,
}

impl LimitsChecker<'_> {
    fn add_error(&mut self, name: &str, message: &str) {
        self.report.add(ConfigProblem::error(
            ConfigPath::at("limits").key(name),
            message,
        ));
    }

    fn count<N: Copy + TryInto<u64>>(&mut self, name: &str, count: Option<N>) -> Option<N> {
        check_count(count, 1, &ConfigPath::at("limits").key(name), self.report)
    }

    fn at_least(&mut self, name: &str, value: Option<usize>, least: usize) -> Option<usize> {
        if value.is_some_and(|value| value < least) {
            self.add_error(name, &format!("must be at least {least}"));
        }
        value
    }

    fn time(
        &mut self,
        name: &str,
        value: Option<std::time::Duration>,
    ) -> Option<std::time::Duration> {
        if value.is_some_and(|value| value.is_zero()) {
            self.add_error(name, "must not be zero");
        }
        value
    }
}
