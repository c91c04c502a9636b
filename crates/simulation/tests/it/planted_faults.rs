//! Proofs that the simulation finds faults: each is planted, and one of the first seeds finds it.

use weir_simulation::PlantedFault;

use crate::seed_process::SeedRun;

/// The seeds that are tried.
const SEEDS: u64 = 60;

/// The first violation of any seed with this fault.
fn find(planted: PlantedFault) -> String {
    let runs = (1..=SEEDS).map(|seed| SeedRun::of(seed, Some(planted)));
    let mut violations = runs.filter_map(|run| {
        run.violations
            .first()
            .map(|violation| format!("seed {}: {violation}", run.seed))
    });
    let found = violations.next();
    found.unwrap_or_else(|| panic!("{SEEDS} seeds do not find {planted:?}"))
}

#[test]
fn sessions_that_are_not_ended_in_the_store_are_found() {
    let found = find(PlantedFault::NoTombstones);
    assert!(found.contains("served after its end"), "{found}");
}

#[test]
#[ignore = "takes minutes"]
fn lease_without_a_fence_is_found() {
    let found = find(PlantedFault::NoFence);
    assert!(found.contains("writes to child"), "{found}");
}

#[test]
#[ignore = "takes minutes"]
fn request_that_is_sent_again_after_a_loss_is_found() {
    let found = find(PlantedFault::RepeatedForward);
    assert!(found.contains("ran 2 times"), "{found}");
}
