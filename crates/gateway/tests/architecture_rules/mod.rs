//! The rules that the tests of the architecture compare the code with: tables of crates and files.

/// Each workspace crate, and the workspace crates that it may use.
pub(crate) const MAY_USE: &[(&str, &[&str])] = &[
    ("weir-wire", &[]),
    ("weir-clean", &["weir-wire"]),
    ("weir-schema", &["weir-wire"]),
    ("weir-core", &["weir-clean", "weir-schema", "weir-wire"]),
    ("weir-items", &["weir-core", "weir-schema", "weir-wire"]),
    (
        "weir-catalog",
        &[
            "weir-clean",
            "weir-core",
            "weir-items",
            "weir-schema",
            "weir-seal",
        ],
    ),
    (
        "weir-router",
        &[
            "weir-catalog",
            "weir-clean",
            "weir-core",
            "weir-schema",
            "weir-seal",
            "weir-wire",
        ],
    ),
    ("weir-seal", &["weir-core"]),
    ("weir-era", &["weir-core", "weir-seal", "weir-wire"]),
    ("weir-oauth", &[]),
    ("weir-policy", &["weir-core", "weir-oauth"]),
    ("weir-store", &["weir-core"]),
    (
        "weir-redis-store",
        &["weir-core", "weir-seal", "weir-store"],
    ),
    ("weir-listen", &["weir-core", "weir-system", "weir-wire"]),
    (
        "weir-cluster",
        &["weir-core", "weir-http2-client", "weir-listen"],
    ),
    (
        "weir-singleton",
        &[
            "weir-cluster",
            "weir-core",
            "weir-listen",
            "weir-upstream-core",
            "weir-wire",
        ],
    ),
    (
        "weir-session",
        &[
            "weir-catalog",
            "weir-core",
            "weir-era",
            "weir-router",
            "weir-seal",
            "weir-wire",
        ],
    ),
    (
        "weir-layers",
        &[
            "weir-catalog",
            "weir-core",
            "weir-era",
            "weir-listen",
            "weir-router",
            "weir-seal",
            "weir-session",
            "weir-wire",
        ],
    ),
    (
        "weir-front",
        &[
            "weir-catalog",
            "weir-core",
            "weir-era",
            "weir-layers",
            "weir-listen",
            "weir-router",
            "weir-seal",
            "weir-session",
            "weir-wire",
        ],
    ),
    ("weir-http1", &[]),
    ("weir-http2-client", &["weir-core", "weir-wire"]),
    (
        "weir-http-client",
        &[
            "weir-core",
            "weir-http1",
            "weir-http2-client",
            "weir-system",
        ],
    ),
    ("weir-process", &["weir-core"]),
    (
        "weir-upstream-core",
        &["weir-core", "weir-era", "weir-wire"],
    ),
    (
        "weir-oauth-client",
        &[
            "weir-core",
            "weir-era",
            "weir-http-client",
            "weir-oauth",
            "weir-upstream-core",
            "weir-wire",
        ],
    ),
    (
        "weir-upstream-stdio",
        &[
            "weir-core",
            "weir-era",
            "weir-process",
            "weir-upstream-core",
            "weir-wire",
        ],
    ),
    (
        "weir-upstream-http",
        &[
            "weir-core",
            "weir-era",
            "weir-http-client",
            "weir-oauth-client",
            "weir-upstream-core",
            "weir-upstream-stdio",
            "weir-wire",
        ],
    ),
    (
        "weir-upstream",
        &[
            "weir-core",
            "weir-era",
            "weir-http-client",
            "weir-oauth-client",
            "weir-process",
            "weir-upstream-core",
            "weir-upstream-http",
            "weir-upstream-stdio",
            "weir-wire",
        ],
    ),
    ("weir-demo", &["weir-wire"]),
    ("weir-text", &[]),
    ("weir-system", &["weir-core"]),
    (
        "weir-telemetry",
        &["weir-catalog", "weir-core", "weir-text", "weir-upstream"],
    ),
    ("weir-terminal", &["weir-telemetry", "weir-text"]),
    ("weir-audit", &["weir-core", "weir-upstream"]),
    ("weir-config-file", &["weir-system", "weir-text"]),
    (
        "weir-config",
        &[
            "weir-audit",
            "weir-catalog",
            "weir-cluster",
            "weir-config-file",
            "weir-core",
            "weir-front",
            "weir-policy",
            "weir-redis-store",
            "weir-schema",
            "weir-store",
            "weir-system",
            "weir-telemetry",
            "weir-upstream",
        ],
    ),
    ("weir-program", &["weir-process"]),
    ("weir-client-configs", &["weir-config-file"]),
    (
        "weir-mcp-client",
        &[
            "weir-core",
            "weir-era",
            "weir-http-client",
            "weir-oauth",
            "weir-system",
            "weir-text",
            "weir-wire",
        ],
    ),
    (
        "weir-explain",
        &[
            "weir-catalog",
            "weir-config",
            "weir-core",
            "weir-policy",
            "weir-store",
            "weir-text",
            "weir-upstream",
        ],
    ),
    (
        "weir-handover",
        &[
            "weir-audit",
            "weir-core",
            "weir-front",
            "weir-process",
            "weir-program",
            "weir-seal",
            "weir-store",
        ],
    ),
    (
        "weir-memory",
        &["weir-config", "weir-core", "weir-front", "weir-store"],
    ),
    (
        "weir-admin",
        &[
            "weir-catalog",
            "weir-client-configs",
            "weir-config",
            "weir-config-file",
            "weir-core",
            "weir-explain",
            "weir-front",
            "weir-handover",
            "weir-policy",
            "weir-router",
            "weir-schema",
            "weir-telemetry",
            "weir-text",
            "weir-upstream",
            "weir-wire",
        ],
    ),
    (
        "weir-stdio-server",
        &[
            "weir-catalog",
            "weir-config",
            "weir-core",
            "weir-front",
            "weir-mcp-client",
            "weir-text",
            "weir-upstream",
            "weir-wire",
        ],
    ),
    (
        "weir-commands",
        &[
            "weir-audit",
            "weir-catalog",
            "weir-client-configs",
            "weir-config",
            "weir-config-file",
            "weir-core",
            "weir-explain",
            "weir-front",
            "weir-mcp-client",
            "weir-policy",
            "weir-process",
            "weir-program",
            "weir-redis-store",
            "weir-system",
            "weir-telemetry",
            "weir-terminal",
            "weir-text",
            "weir-upstream",
            "weir-wire",
        ],
    ),
    (
        "weir-composition",
        &[
            "weir-admin",
            "weir-audit",
            "weir-catalog",
            "weir-client-configs",
            "weir-cluster",
            "weir-config",
            "weir-config-file",
            "weir-core",
            "weir-explain",
            "weir-front",
            "weir-handover",
            "weir-memory",
            "weir-policy",
            "weir-process",
            "weir-redis-store",
            "weir-router",
            "weir-seal",
            "weir-singleton",
            "weir-store",
            "weir-system",
            "weir-telemetry",
            "weir-text",
            "weir-upstream",
        ],
    ),
    (
        "weir-gateway",
        &[
            "weir-admin",
            "weir-audit",
            "weir-catalog",
            "weir-client-configs",
            "weir-commands",
            "weir-composition",
            "weir-config",
            "weir-config-file",
            "weir-core",
            "weir-demo",
            "weir-handover",
            "weir-mcp-client",
            "weir-process",
            "weir-program",
            "weir-stdio-server",
            "weir-system",
            "weir-telemetry",
            "weir-terminal",
            "weir-text",
        ],
    ),
    ("weir-testkit", &["weir-core", "weir-wire"]),
    ("weir-replica-testkit", &["weir-testkit", "weir-wire"]),
    ("weir-interleavings", &["weir-core"]),
    (
        "weir-simulation",
        &[
            "weir-catalog",
            "weir-cluster",
            "weir-core",
            "weir-front",
            "weir-policy",
            "weir-redis-store",
            "weir-router",
            "weir-seal",
            "weir-singleton",
            "weir-store",
            "weir-upstream-core",
        ],
    ),
];

/// The packages that a crate must never use.
pub(crate) const MUST_NOT_USE: &[(&str, &[&str])] = &[
    ("weir-http1", &["tokio", "hyper", "weir-core"]),
    (
        "weir-wire",
        &[
            "tokio",
            "tower",
            "hyper",
            "axum",
            "http",
            "getrandom",
            "rand",
            "serde-saphyr",
        ],
    ),
    (
        "weir-clean",
        &[
            "tokio",
            "hyper",
            "axum",
            "http",
            "getrandom",
            "rand",
            "serde",
            "serde_json",
        ],
    ),
    (
        "weir-core",
        &[
            "hyper",
            "axum",
            "http",
            "tower",
            "getrandom",
            "rand",
            "serde-saphyr",
            "clap",
            "opentelemetry_sdk",
        ],
    ),
    (
        "weir-catalog",
        &[
            "hyper",
            "axum",
            "http",
            "tower",
            "getrandom",
            "rand",
            "serde-saphyr",
            "clap",
            "opentelemetry_sdk",
        ],
    ),
    (
        "weir-router",
        &[
            "hyper",
            "axum",
            "http",
            "tower",
            "getrandom",
            "rand",
            "serde-saphyr",
            "clap",
            "opentelemetry_sdk",
        ],
    ),
    ("weir-era", &["tokio", "hyper", "axum", "getrandom", "rand"]),
    (
        "weir-oauth",
        &["tokio", "hyper", "axum", "http", "getrandom", "rand"],
    ),
    ("weir-policy", &["hyper", "axum", "http"]),
    ("weir-store", &["hyper", "axum", "http"]),
    (
        "weir-listen",
        &["axum", "tower", "serde_json", "hyper-rustls", "reqwest"],
    ),
    (
        "weir-front",
        &[
            "hyper",
            "h2",
            "hyper-rustls",
            "reqwest",
            "serde-saphyr",
            "clap",
            "notify",
        ],
    ),
    (
        "weir-layers",
        &["hyper", "h2", "hyper-rustls", "reqwest", "clap", "notify"],
    ),
    (
        "weir-session",
        &["axum", "tower", "hyper", "serde_json", "weir-listen"],
    ),
    ("weir-upstream", &["axum", "serde-saphyr", "clap", "notify"]),
    ("weir-demo", &["weir-core", "weir-front", "weir-upstream"]),
    ("weir-text", &["tokio", "hyper", "axum"]),
    (
        "weir-config",
        &["tokio", "hyper", "axum", "clap", "serde-saphyr", "serde"],
    ),
    (
        "weir-config-file",
        &["tokio", "hyper", "axum", "clap", "weir-core"],
    ),
    ("weir-audit", &["axum", "serde-saphyr", "clap", "notify"]),
    (
        "weir-telemetry",
        &["axum", "serde-saphyr", "clap", "notify"],
    ),
    (
        "weir-program",
        &["axum", "clap", "weir-config", "weir-front"],
    ),
    (
        "weir-client-configs",
        &["tokio", "hyper", "axum", "clap", "weir-config"],
    ),
    (
        "weir-mcp-client",
        &["axum", "clap", "weir-config", "weir-front", "weir-upstream"],
    ),
    ("weir-explain", &["hyper", "axum", "clap", "weir-front"]),
    (
        "weir-handover",
        &["axum", "clap", "weir-config", "weir-policy"],
    ),
    (
        "weir-admin",
        &["clap", "notify", "serde-saphyr", "weir-store"],
    ),
    (
        "weir-stdio-server",
        &["axum", "clap", "weir-policy", "weir-store"],
    ),
    ("weir-memory", &["hyper", "axum", "clap"]),
    (
        "weir-composition",
        &["axum", "clap", "notify", "weir-commands", "weir-mcp-client"],
    ),
    (
        "weir-commands",
        &[
            "axum",
            "notify",
            "weir-admin",
            "weir-composition",
            "weir-handover",
        ],
    ),
];

/// The files with a source of a reply's events: a transport, or a wrapper around another reply. Of
/// the wrappers at most four are around the running reply of a call.
pub(crate) const REPLY_SOURCES: &[(&str, &str)] = &[
    ("core/src/reply.rs", "the reply itself, and a stream"),
    ("upstream-http/src/http_call.rs", "a transport"),
    (
        "upstream-http/src/early_reply.rs",
        "wraps a transport's reply with events before the head of its response",
    ),
    ("upstream-stdio/src/stdio_call.rs", "a transport"),
    (
        "singleton/src/forwarded_reply.rs",
        "the transport of a call at another replica",
    ),
    (
        "upstream/src/instances/instance_reply.rs",
        "wraps the reply of one of several URLs, which counts the calls in flight there",
    ),
    (
        "upstream/src/repeat.rs",
        "wraps the reply of a call that may be repeated, until a part of its response is forwarded",
    ),
    (
        "router/src/parking.rs",
        "wraps the reply of a client that is asked by rounds",
    ),
    (
        "router/src/recorded_reply.rs",
        "wraps every reply that runs on: stop, changes of events, record",
    ),
    (
        "router/src/tasks/awaited_task.rs",
        "wraps the reply of a call that weir follows as a task for its client, until the task exists",
    ),
];

/// The files that may start a task, and the way each task ends.
pub(crate) const SPAWNS: &[(&str, &str)] = &[
    (
        "demo/src/host.rs",
        "`RunningServer` aborts it when it is dropped",
    ),
    (
        "layers/src/in_flight.rs",
        "gives permits in rounds, and ends with the queue of waiting requests",
    ),
    (
        "composition/src/weir/listeners.rs",
        "`OpenListeners` aborts them when it is dropped",
    ),
    (
        "redis-store/src/redis_store.rs",
        "`RedisStore` aborts it when it is dropped",
    ),
    (
        "audit/src/audit_service/audit_thread.rs",
        "`AuditService` tells it to stop and waits; one that hangs in the system goes with the process",
    ),
    (
        "commands/src/terminal_respondent/keyboard.rs",
        "waits for a line that a person types; a command that ends does not wait for it",
    ),
    (
        "handover/src/protocol.rs",
        "`DrainingPredecessor` waits for it; it ends with the predecessor",
    ),
    (
        "handover/src/link.rs",
        "sends until its link is dropped, or the other process is gone",
    ),
    (
        "handover/src/state_transfer.rs",
        "receives until the other process is gone, answers its requests, drives the stream to its parked calls, and sends tasks in moved sessions",
    ),
    (
        "handover/src/session_imports.rs",
        "imports tasks that began in moved sessions, and ends once the receiver has ended and all are imported",
    ),
    (
        "stdio-server/src/streams.rs",
        "reads standard input, which cannot be interrupted; writes standard output, for which the end waits at most 2 s",
    ),
    (
        "telemetry/src/logs.rs",
        "writes the log until its queue closes; an exit waits for it, at most a second",
    ),
    (
        "http-client/src/http2_connection.rs",
        "ends with the last share of its connection, or with the connection",
    ),
    (
        "http-client/src/shared_pool.rs",
        "closes unused connections for some seconds, and ends when the pool has none",
    ),
];

/// The crates of the model: they take all input and output, the time and randomness from ports.
pub(crate) const MODEL: [&str; 3] = ["core", "catalog", "router"];

/// The files of the model's crates that read the clocks of `std::time`, and the reasons. All other
/// files take the time from the port `Clock`, or from `tokio::time`, which tests can advance.
pub(crate) const STD_CLOCKS: [(&str, &str); 3] = [
    (
        "core/src/telemetry/duration_histogram.rs",
        "metrics have the wall time of a series and of an exemplar",
    ),
    (
        "core/src/trace/trace_context.rs",
        "spans have wall times, and no decision depends on them",
    ),
    (
        "core/src/trace/own_span.rs",
        "spans have wall times, and no decision depends on them",
    ),
];

/// The parts of tokio that the model's crates may use: those without input, output and runtime.
pub(crate) const MODEL_MAY_USE_OF_TOKIO: [&str; 5] = ["join!", "select!", "sync", "task", "time"];

/// The files outside of `wire` and `era` that ask whether a revision is modern, and the reasons.
/// All other code asks for a feature.
pub(crate) const ASKS_ERA: &[(&str, &str)] = &[
    ("demo/src/notes.rs", "is a server of both eras"),
    (
        "front/src/handler/mcp_service.rs",
        "decides the era of a request with a message",
    ),
    (
        "front/src/handler/modern.rs",
        "refuses an unknown revision of the era",
    ),
    (
        "layers/src/request/session_lookup.rs",
        "refuses a header of the other era on a session, of requests without a message too",
    ),
    (
        "layers/src/failure/response_table.rs",
        "has the failures of both eras in one table",
    ),
    (
        "mcp-client/src/client.rs",
        "refuses a revision that `initialize` cannot agree on",
    ),
    (
        "upstream-stdio/src/child_choice.rs",
        "decides the capabilities that are declared before the era is known",
    ),
    (
        "upstream-stdio/src/child_eras.rs",
        "decides the era of a child process",
    ),
    (
        "upstream-stdio/src/child_handover.rs",
        "describes a modern server again after a hand-over",
    ),
    (
        "upstream-stdio/src/running_child.rs",
        "decides the era of a child's calls",
    ),
];
