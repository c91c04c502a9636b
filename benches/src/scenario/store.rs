//! The cost of the shared store. One weir keeps its state in memory; the other shares it over a
//! Redis on loopback, as each of several replicas does. They are called in turns.

use super::weir_pair::{PairHalf, PairMeasurement, WeirPair};
use crate::machine::find_program;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use anyhow::Result;
use serde::Serialize;
use weir_replica_testkit::RedisServer;

const COLUMNS: &[(&str, &str)] = &[
    ("feature", "feature"),
    ("era", "client, upstream"),
    ("concurrency", "in flight"),
    ("store", "store"),
    ("per_second", "calls/s"),
    ("of_memory", "of memory"),
    ("p50_us", "p50 us"),
    ("added_p50_us", "added p50 us"),
    ("p99_us", "p99 us"),
    ("cpu_us", "cpu us"),
    ("commands_per_call", "commands a call"),
    ("calls", "calls"),
    ("errors", "errors"),
];

/// What both weirs do, and its config: the state of a rate and of a quota is shared. The limits are
/// so high that no call of a run reaches them.
const FEATURES: [(&str, &str); 3] = [
    ("calls alone", ""),
    (
        "rates",
        "rates: { principal: { rate: 1000000/s, burst: 1000000 } }\n",
    ),
    (
        "rates and a daily quota",
        "rates: { principal: { rate: 1000000/s, burst: 1000000, daily: 1000000000 } }\n",
    ),
];

#[derive(Serialize)]
struct StoreRow {
    feature: &'static str,
    store: &'static str,
    #[serde(flatten)]
    measured: PairMeasurement,
    /// Throughput over that of memory in the same round, the median of these.
    of_memory: Option<f64>,
    /// The median latency above that of memory.
    added_p50_us: Option<f64>,
    /// Commands of Redis over calls. Those of every interval are in it.
    commands_per_call: Option<f64>,
}

/// Measures each feature in both eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call with state in memory and in Redis, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("store", title, COLUMNS);
    if !settings.has(TargetKind::Weir) {
        table.note("weir is not measured");
        return Ok(table);
    }
    if find_program("redis-server", &[]).is_none() {
        table.note("redis-server is not installed");
        return Ok(table);
    }
    // The last feature has all others in it.
    let skipped = if settings.smoke {
        FEATURES.len() - 1
    } else {
        0
    };
    for (feature, config) in FEATURES.into_iter().skip(skipped) {
        Box::pin(measure(settings, feature, config, &mut table)).await?;
    }
    table
        .note("commands of every interval are counted, too; aim: 0.95 of the throughput of memory");
    Ok(table)
}

async fn measure(
    settings: &RunSettings,
    feature: &'static str,
    config: &str,
    table: &mut ReportTable,
) -> Result<()> {
    let redis = RedisServer::start();
    let shared = format!(
        "{config}store: \"{}\"\ncluster: {{ listen: \"127.0.0.1:0\" }}\n\
         keys: [{{ id: 1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8 }}]\n",
        redis.url()
    );
    let halves = [config, &shared].map(|config| PairHalf {
        credential: None,
        config,
    });
    let mut weirs = WeirPair::start(settings, halves).await?;
    redis.reset_command_counts();
    weirs
        .measure(settings, |[memory, shared], of_memory| {
            let commands = commands(&redis);
            redis.reset_command_counts();
            let added = shared.p50_us() - memory.p50_us();
            let calls = shared.all_calls().max(1);
            table.row(&StoreRow {
                feature,
                store: "memory",
                measured: memory,
                of_memory: None,
                added_p50_us: None,
                commands_per_call: None,
            })?;
            table.row(&StoreRow {
                feature,
                store: "Redis",
                measured: shared,
                of_memory,
                added_p50_us: Some(added),
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a run makes fewer calls than 2^52"
                )]
                commands_per_call: Some(commands as f64 / calls as f64),
            })
        })
        .await?;
    weirs.stop().await;
    Ok(())
}

/// The commands that weir sent. Those inside of scripts count as well.
fn commands(redis: &RedisServer) -> u64 {
    let counts = redis.command_counts();
    let own = ["info", "config|resetstat"];
    let sent = counts.iter().filter(|(name, _)| !own.contains(&&***name));
    sent.map(|(_, count)| count).sum()
}
