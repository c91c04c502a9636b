//! The settings of a run: the defaults of a full run and of a smoke run, and the flags that
//! override either.

use crate::protocol::Era;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A target of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TargetKind {
    /// weir, in front of the upstream.
    Weir,
    /// The raw pipe in front of the upstream.
    Pipe,
    /// nginx in front of the upstream, if it is installed.
    Nginx,
    /// The upstream itself.
    Direct,
    /// Another build of weir, in front of the upstream: weir before a change.
    Before,
}

/// One part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunPart {
    /// Throughput and latency of tools/call.
    Calls,
    /// tools/list over many upstreams.
    Lists,
    /// From a change to the last listening client; memory of an open stream.
    Fanout,
    /// Memory of an idle legacy session.
    Sessions,
    /// tools/call in thousands of legacy sessions, on a server that speaks both eras.
    Dual,
    /// tools/call with tokens, rules, limits, schema checks and audit, against a weir without them.
    Gates,
    /// tools/call with metrics, traces and OTLP, against a weir without them.
    Telemetry,
    /// tools/call with state in Redis, against a weir with state in memory.
    Store,
    /// tools/call over HTTP/1.1, HTTP/2, TLS and standard streams to the upstream.
    Transports,
    /// Calls to healthy upstreams while another hangs.
    Hang,
    /// Peak memory against the size of a request.
    Body,
    /// Goodput when the offered load is twice weir's peak.
    Overload,
}

/// The endpoint of weir that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BenchEndpoint {
    /// /mcp over all upstreams, with prefixed names.
    Aggregate,
    /// /mcp/ID of one upstream.
    Transparent,
}

/// Flags of `run` and `smoke`; a missing flag has the default of that command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunFlags {
    /// The weir binary [default: beside this one]
    #[arg(long)]
    weir: Option<PathBuf>,
    /// Another weir binary, which `calls` measures as the target `before` in the same rounds
    #[arg(long)]
    before: Option<PathBuf>,
    /// End weir by a signal and wait for it, so that it writes what it writes at its end
    #[arg(long)]
    graceful: bool,
    /// Targets to measure [default: weir,pipe,nginx,direct, and before if its binary is named]
    #[arg(long, value_delimiter = ',')]
    target: Vec<TargetKind>,
    /// Parts to run [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<RunPart>,
    /// Result file [default: bench-results/SECONDS.json]
    #[arg(long)]
    out: Option<PathBuf>,
    /// YAML appended to weir's config, for limits that the run needs raised
    #[arg(long)]
    weir_config_extra: Option<PathBuf>,
    /// Endpoint of weir that is called [default: aggregate]
    #[arg(long)]
    endpoint: Option<BenchEndpoint>,
    /// Commit to name in the result [default: the one git reports]
    #[arg(long)]
    commit: Option<String>,
    /// Rounds of each measurement; the result is their median
    #[arg(long)]
    rounds: Option<usize>,
    /// Milliseconds of one round
    #[arg(long)]
    round_ms: Option<u64>,
    /// Calls in flight at a time
    #[arg(long, value_delimiter = ',')]
    concurrency: Vec<usize>,
    /// Client era and upstream era, as in mm, ll, lm, ml
    #[arg(long, value_delimiter = ',')]
    pairs: Vec<String>,
    /// Bytes of the message that is echoed
    #[arg(long)]
    payload: Option<usize>,
    /// Upstreams of the list part
    #[arg(long, value_delimiter = ',')]
    upstreams: Vec<usize>,
    /// Walks over the whole list
    #[arg(long)]
    walks: Option<usize>,
    /// Listening clients of the fan-out part
    #[arg(long, value_delimiter = ',')]
    listeners: Vec<usize>,
    /// Changes that are timed
    #[arg(long)]
    changes: Option<usize>,
    /// Milliseconds between changes, more than weir's coalescing window
    #[arg(long)]
    change_gap_ms: Option<u64>,
    /// Idle legacy sessions
    #[arg(long)]
    sessions: Option<usize>,
    /// Legacy sessions on a server that speaks both eras
    #[arg(long)]
    dual_sessions: Option<usize>,
    /// Upstreams of the hang part, one of which hangs
    #[arg(long)]
    hang_upstreams: Option<usize>,
    /// Sizes of request bodies in bytes
    #[arg(long, value_delimiter = ',')]
    bodies: Vec<usize>,
}

/// The settings of a run. They are part of the result file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunSettings {
    pub(crate) smoke: bool,
    pub(crate) weir: PathBuf,
    pub(crate) before: Option<PathBuf>,
    /// True if weir is ended by a signal and waited for.
    #[serde(skip)]
    pub(crate) graceful: bool,
    /// The processor that weir is pinned to; absent to leave it free.
    #[serde(skip)]
    pub(crate) weir_core: Option<usize>,
    pub(crate) targets: Vec<TargetKind>,
    pub(crate) parts: Vec<RunPart>,
    #[serde(skip)]
    pub(crate) out: PathBuf,
    pub(crate) weir_config_extra: String,
    pub(crate) endpoint: BenchEndpoint,
    #[serde(skip)]
    pub(crate) commit: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) round_ms: u64,
    pub(crate) concurrency: Vec<usize>,
    /// Client era, upstream era.
    pub(crate) pairs: Vec<(Era, Era)>,
    pub(crate) payload: usize,
    pub(crate) upstreams: Vec<usize>,
    pub(crate) walks: usize,
    pub(crate) listeners: Vec<usize>,
    pub(crate) changes: usize,
    pub(crate) change_gap_ms: u64,
    pub(crate) sessions: usize,
    pub(crate) dual_sessions: usize,
    /// The time for memory to settle before it is read, in milliseconds.
    pub(crate) settle_ms: u64,
    pub(crate) hang_upstreams: usize,
    pub(crate) bodies: Vec<usize>,
}

impl RunSettings {
    /// Settles `flags` over the defaults of a full or a smoke run.
    ///
    /// # Errors
    /// An invalid flag, or weir's binary or the extra config missing.
    pub(crate) fn settle(flags: RunFlags, smoke: bool) -> Result<Self> {
        // (full, smoke): a full run takes minutes and its medians are worth quoting, a smoke run
        // shows that all works.
        let pick = |full: usize, small: usize| if smoke { small } else { full };
        let list =
            |given: Vec<usize>, full: &[usize], small: &[usize]| match (given.is_empty(), smoke) {
                (false, _) => given,
                (true, true) => small.to_vec(),
                (true, false) => full.to_vec(),
            };
        let usual = [
            TargetKind::Weir,
            TargetKind::Before,
            TargetKind::Pipe,
            TargetKind::Nginx,
            TargetKind::Direct,
        ];
        let usual: Vec<_> = usual
            .into_iter()
            .filter(|kind| *kind != TargetKind::Before || flags.before.is_some())
            .collect();
        let settings = Self {
            smoke,
            weir: flags.weir.map_or_else(beside_this, Ok)?,
            before: flags.before,
            graceful: flags.graceful,
            weir_core: None,
            targets: or(flags.target, &usual),
            parts: or(flags.only, RunPart::value_variants()),
            out: flags.out.unwrap_or_else(default_out),
            weir_config_extra: flags
                .weir_config_extra
                .as_deref()
                .map_or_else(|| Ok(String::new()), read)?,
            endpoint: flags.endpoint.unwrap_or(BenchEndpoint::Aggregate),
            commit: flags.commit,
            rounds: flags.rounds.unwrap_or_else(|| pick(7, 1)).max(1),
            round_ms: flags.round_ms.unwrap_or(if smoke { 60 } else { 1_000 }),
            concurrency: list(flags.concurrency, &[1, 32, 256], &[1, 8]),
            pairs: pairs(&flags.pairs)?,
            payload: flags.payload.unwrap_or(200),
            upstreams: list(flags.upstreams, &[1, 20, 200], &[1, 3]),
            walks: flags.walks.unwrap_or_else(|| pick(200, 3)).max(1),
            listeners: list(flags.listeners, &[1_000, 19_000], &[20]),
            changes: flags.changes.unwrap_or_else(|| pick(5, 1)).max(1),
            change_gap_ms: flags
                .change_gap_ms
                .unwrap_or(if smoke { 200 } else { 3_000 }),
            sessions: flags.sessions.unwrap_or_else(|| pick(20_000, 50)).max(1),
            dual_sessions: flags
                .dual_sessions
                .unwrap_or_else(|| pick(5_000, 16))
                .max(1),
            settle_ms: if smoke { 50 } else { 500 },
            hang_upstreams: flags.hang_upstreams.unwrap_or_else(|| pick(50, 4)),
            bodies: list(flags.bodies, &[1 << 20, 4 << 20], &[64 << 10]),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Reports if this target is measured.
    pub(crate) fn has(&self, kind: TargetKind) -> bool {
        self.targets.contains(&kind)
    }

    fn check(&self) -> Result<()> {
        let weir = self.weir.display();
        ensure!(
            !self.has(TargetKind::Weir) || self.weir.is_file(),
            "no weir at {weir}: build it, name it with --weir, or measure only --target pipe,direct"
        );
        let before = self.before.as_deref();
        ensure!(
            !self.has(TargetKind::Before) || before.is_some(),
            "--target before: name its binary with --before"
        );
        if let Some(before) = before {
            ensure!(
                before.is_file(),
                "--before: no weir at {}",
                before.display()
            );
        }
        ensure!(
            self.hang_upstreams >= 2,
            "--hang-upstreams: one hangs, so at least one more must answer"
        );
        ensure!(!self.concurrency.contains(&0), "--concurrency: at least 1");
        ensure!(!self.upstreams.contains(&0), "--upstreams: at least 1");
        ensure!(
            self.bodies.iter().all(|size| *size >= 1 << 10),
            "--bodies: at least 1024 bytes"
        );
        Ok(())
    }
}

fn or<T: Clone>(given: Vec<T>, default: &[T]) -> Vec<T> {
    if given.is_empty() {
        default.to_vec()
    } else {
        given
    }
}

fn pairs(words: &[String]) -> Result<Vec<(Era, Era)>> {
    let era = |letter| match letter {
        Some('m') => Ok(Era::Modern),
        Some('l') => Ok(Era::Legacy),
        _ => bail!("--pairs: two letters each, m or l, as in mm,ll,lm,ml"),
    };
    let all = ["mm", "ll", "lm", "ml"].map(str::to_owned);
    let words = if words.is_empty() { &all[..] } else { words };
    let pair = |word: &String| {
        let mut letters = word.chars();
        let pair = (era(letters.next())?, era(letters.next())?);
        ensure!(
            letters.next().is_none(),
            "--pairs: two letters each, as in mm,ll,lm,ml"
        );
        Ok(pair)
    };
    words.iter().map(pair).collect()
}

fn beside_this() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("weir"))
}

fn default_out() -> PathBuf {
    PathBuf::from(format!(
        "bench-results/{}.json",
        crate::machine::unix_micros() / 1_000_000
    ))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn without_weir() -> RunFlags {
        RunFlags {
            target: vec![TargetKind::Pipe, TargetKind::Direct],
            ..RunFlags::default()
        }
    }

    #[test]
    fn a_flag_overrides_the_default_of_either_run() {
        let full = RunSettings::settle(without_weir(), false).unwrap();
        assert_eq!(full.concurrency, [1, 32, 256]);
        assert_eq!(full.listeners, [1_000, 19_000]);
        assert_eq!(full.pairs.len(), 4);
        let flags = RunFlags {
            concurrency: vec![4],
            pairs: vec!["lm".to_owned()],
            ..without_weir()
        };
        let smoke = RunSettings::settle(flags, true).unwrap();
        assert_eq!(smoke.concurrency, [4]);
        assert_eq!(smoke.pairs, [(Era::Legacy, Era::Modern)]);
        assert!(smoke.sessions < full.sessions);
    }

    #[test]
    fn invalid_flags_are_refused_before_start() {
        for pairs in ["m", "xy", "mml"] {
            assert!(
                RunSettings::settle(
                    RunFlags {
                        pairs: vec![pairs.to_owned()],
                        ..without_weir()
                    },
                    true
                )
                .is_err()
            );
        }
        assert!(
            RunSettings::settle(
                RunFlags {
                    concurrency: vec![0],
                    ..without_weir()
                },
                true
            )
            .is_err()
        );
        let missing = RunFlags {
            weir: Some("/nonexistent/weir".into()),
            ..RunFlags::default()
        };
        assert!(
            RunSettings::settle(missing, true)
                .unwrap_err()
                .to_string()
                .contains("--weir")
        );
        let missing = RunFlags {
            before: Some("/nonexistent/weir".into()),
            ..without_weir()
        };
        assert!(
            RunSettings::settle(missing, true)
                .unwrap_err()
                .to_string()
                .contains("--before")
        );
        let unnamed = RunFlags {
            target: vec![TargetKind::Before],
            ..RunFlags::default()
        };
        assert!(
            RunSettings::settle(unnamed, true)
                .unwrap_err()
                .to_string()
                .contains("--before")
        );
    }
}
