//! The invariants over many seeds.

use std::env;

use crate::seed_process::SeedRun;

/// The seeds of the ordinary tests, and of the proofs.
const FEW: u64 = 4;
const MANY: u64 = 1000;

fn check_seeds(usual: u64) {
    let count = env::var("WEIR_SIMULATION_SEEDS")
        .ok()
        .map(|count| count.parse().unwrap());
    let runs = SeedRun::of_all(1..=count.unwrap_or(usual));
    let bad: Vec<_> = runs
        .iter()
        .filter(|run| !run.violations.is_empty())
        .collect();
    for run in &bad {
        eprintln!("seed {}: {:#?}", run.seed, run.violations);
    }
    println!("{} seeds, {} with violations", runs.len(), bad.len());
    if let Some(first) = bad.first() {
        first.check();
    }
}

#[test]
fn first_seeds_keep_all_invariants() {
    check_seeds(FEW);
}

#[test]
#[ignore = "takes minutes"]
fn thousand_seeds_keep_all_invariants() {
    check_seeds(MANY);
}

#[test]
fn same_seed_gives_the_same_trace() {
    let (first, second) = (SeedRun::of(5, None), SeedRun::of(5, None));
    assert!(first.trace.len() > 100, "{}", first.trace.len());
    assert_eq!(first, second);
    assert_ne!(first.trace, SeedRun::of(6, None).trace);
}
