//! Runs of many seeds.

use weir_simulation::{SimulationOptions, simulate};

#[test]
fn one_seed() {
    let seed = std::env::var("WEIR_SIMULATION_SEED").ok().and_then(|seed| seed.parse().ok());
    let begun = std::time::Instant::now();
    let outcome = simulate(SimulationOptions { traces_streams: std::env::var_os("WEIR_SIMULATION_STREAMS").is_some(), ..SimulationOptions::of_seed(seed.unwrap_or(1)) });
    eprintln!("{}", outcome.trace.join("\n"));
    eprintln!("executed {} in {:?}", outcome.executed, begun.elapsed());
    assert_eq!(outcome.violations, Vec::<String>::new());
}
