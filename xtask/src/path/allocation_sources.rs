//! The functions that allocate, found through the libraries that allocate for them.
//!
//! The profile has calls between functions, and no stacks. Where several functions call the same
//! library function, its allocations are divided by their counts of calls: exact for functions that
//! allocate once in each call, an estimate for others.

use std::collections::BTreeMap;

use super::callgrind_profile::CallgrindProfile;
use super::symbol;

/// The libraries whose allocations are those of their callers.
const PASSED_THROUGH: [&str; 6] = [
    symbol::STD,
    symbol::DROP_GLUE,
    "bytes",
    "hashbrown",
    "http",
    "indexmap",
];
/// The longest way from an allocation to the function that it is for.
const MAX_STEPS: usize = 64;

/// Divides the calls of `allocating` among the functions in the source that they are for.
pub(crate) fn allocation_sources(
    profile: &CallgrindProfile,
    allocating: &[&str],
) -> BTreeMap<String, f64> {
    let mut sources = BTreeMap::new();
    let mut pending = BTreeMap::new();
    for name in allocating {
        if let Some(costs) = profile
            .functions
            .get(*name)
            .filter(|costs| costs.calls() > 0)
        {
            pending.insert(*name, as_float(costs.calls()));
        }
    }
    for _ in 0..MAX_STEPS {
        let mut next = BTreeMap::new();
        for (name, count) in std::mem::take(&mut pending) {
            // A call that was running when the counts began is in the file, with a count of zero.
            let costs = profile.functions.get(name);
            let Some(costs) = costs.filter(|costs| costs.calls() > 0) else {
                continue;
            };
            let calls = as_float(costs.calls());
            for (caller, calls_of_caller) in &costs.callers {
                let share = count * as_float(*calls_of_caller) / calls;
                if passes_through(profile, caller) {
                    *next.entry(caller.as_str()).or_default() += share;
                } else {
                    let source = symbol::source_function(caller).to_owned();
                    *sources.entry(source).or_default() += share;
                }
            }
        }
        pending = next;
    }
    sources
}

fn passes_through(profile: &CallgrindProfile, name: &str) -> bool {
    let object = profile
        .functions
        .get(name)
        .map_or("", |costs| &costs.object);
    PASSED_THROUGH.contains(&symbol::owner(name, object))
}

/// A count as a number to divide by. Exact up to 2^53, far above any count here.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of some hundred calls stay below 2^53"
)]
pub(crate) const fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::path::callgrind_profile::parse;

    #[test]
    fn allocations_of_a_library_are_those_of_its_callers() {
        let text = "\
events: Ir
fn=(1) weir_a::f::{{closure}}
1 1
cfn=(2) bytes::bytes_mut::BytesMut::with_capacity
calls=3 1
1 0
fn=(3) hyper::g
1 1
cfn=(2)
calls=1 1
1 0
cfn=(4) __rustc::__rust_alloc
calls=5 1
1 0
fn=(2)
1 1
cfn=(4)
calls=8 1
1 0
";
        let sources = allocation_sources(&parse(text).unwrap(), &["__rustc::__rust_alloc"]);
        assert_eq!(sources.len(), 2, "{sources:?}");
        assert!((sources["weir_a::f"] - 6.0).abs() < 1e-9);
        assert!((sources["hyper::g"] - 7.0).abs() < 1e-9);
    }

    #[test]
    fn libraries_that_call_each_other_come_to_an_end() {
        let text = "events: Ir\nfn=(1) core::a\n1 1\ncfn=(2) core::b\ncalls=1 1\n1 0\n\
                    fn=(2)\n1 1\ncfn=(1)\ncalls=1 1\n1 0\n";
        assert!(allocation_sources(&parse(text).unwrap(), &["core::a"]).is_empty());
    }
}
