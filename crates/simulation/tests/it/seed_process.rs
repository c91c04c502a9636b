//! A seed in a process of its own.

use std::env;
use std::process::Command;
use std::thread;

use parking_lot::Mutex;
use weir_simulation::{FaultScenario, PlantedFault, SimulationOptions, simulate};

const SEED: &str = "WEIR_SIMULATION_SEED";
const STREAMS: &str = "WEIR_SIMULATION_STREAMS";
const PLANTED: &str = "WEIR_SIMULATION_PLANTED";
const MOVES: &str = "WEIR_SIMULATION_MOVES";
/// The beginning of the lines with the outcome.
const EVENT: &str = "event: ";
const VIOLATION: &str = "violation: ";
const TAKEN_BACK: &str = "taken back: ";

/// The outcome of a seed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeedRun {
    pub(crate) seed: u64,
    pub(crate) trace: Vec<String>,
    pub(crate) violations: Vec<String>,
    /// The times that a session came back to a replica.
    pub(crate) taken_back: usize,
}

/// Runs the seed of the environment, or the first one.
#[test]
fn seed_of_the_environment_keeps_all_invariants() {
    let seed = env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    let planted = env::var(PLANTED).ok().map(|name| match &*name {
        "NoFence" => PlantedFault::NoFence,
        "RepeatedForward" => PlantedFault::RepeatedForward,
        "NoTombstones" => PlantedFault::NoTombstones,
        other => panic!("no fault: {other}"),
    });
    let outcome = simulate(SimulationOptions {
        seed: seed.unwrap_or(1),
        planted,
        scenario: if env::var_os(MOVES).is_some() {
            FaultScenario::MovingSessions
        } else {
            FaultScenario::All
        },
        traces_streams: env::var_os(STREAMS).is_some(),
    });
    for event in &outcome.trace {
        eprintln!("{EVENT}{event}");
    }
    for violation in &outcome.violations {
        eprintln!("{VIOLATION}{violation}");
    }
    eprintln!("{TAKEN_BACK}{}", outcome.taken_back);
    assert!(outcome.executed > 50, "{} calls ran", outcome.executed);
    assert_eq!(outcome.violations, Vec::<String>::new());
}

impl SeedRun {
    /// Runs a seed in a process of its own.
    pub(crate) fn of(seed: u64, planted: Option<PlantedFault>) -> Self {
        Self::run(seed, planted, FaultScenario::All)
    }

    /// Runs a seed whose faults have sessions move away and back.
    pub(crate) fn of_moves(seed: u64) -> Self {
        Self::run(seed, None, FaultScenario::MovingSessions)
    }

    fn run(seed: u64, planted: Option<PlantedFault>, scenario: FaultScenario) -> Self {
        let test = "seed_process::seed_of_the_environment_keeps_all_invariants";
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(SEED, seed.to_string());
        command.env_remove(PLANTED).env_remove(MOVES);
        if scenario == FaultScenario::MovingSessions {
            command.env(MOVES, "1");
        }
        if let Some(planted) = planted {
            command.env(PLANTED, format!("{planted:?}"));
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines = |start: &str| -> Vec<String> {
            text.lines()
                .filter_map(|line| line.strip_prefix(start))
                .map(str::to_owned)
                .collect()
        };
        let run = Self {
            seed,
            trace: lines(EVENT),
            violations: lines(VIOLATION),
            taken_back: lines(TAKEN_BACK)
                .iter()
                .map(|count| count.parse::<usize>().unwrap())
                .sum(),
        };
        let has_failed = !output.status.success() && run.violations.is_empty();
        assert!(!has_failed, "seed {seed} failed: {text}");
        run
    }

    /// Runs many seeds, as many at once as there are processors.
    pub(crate) fn of_all(seeds: impl Iterator<Item = u64> + Send) -> Vec<Self> {
        let (seeds, runs) = (Mutex::new(seeds), Mutex::new(Vec::new()));
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let next = seeds.lock().next();
                        let Some(seed) = next else { return };
                        let run = Self::of(seed, None);
                        runs.lock().push(run);
                    }
                });
            }
        });
        runs.into_inner()
    }

    /// Fails with the trace if an invariant was violated.
    pub(crate) fn check(&self) {
        assert!(
            self.violations.is_empty(),
            "seed {}: {:#?}\n{}\nrepeat it with {SEED}={}",
            self.seed,
            self.violations,
            self.trace.join("\n"),
            self.seed
        );
    }
}
