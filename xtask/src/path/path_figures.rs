//! The figures of one call, made of the counts of many.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::allocation_sources::{allocation_sources, as_float};
use super::callgrind_profile::{CallgrindProfile, FunctionCosts};
use super::symbol;

/// The functions of Rust that allocate. They are inlined in an optimized build.
const RUST_ALLOCATIONS: [&str; 2] = ["__rustc::__rust_alloc", "__rustc::__rust_alloc_zeroed"];
/// The function of Rust that makes an allocation larger or smaller.
const RUST_REALLOCATION: &str = "__rustc::__rust_realloc";
/// The functions of the allocator that Rust's call.
const ALLOCATIONS: [&str; 4] = [
    "mi_malloc",
    "mi_malloc_aligned",
    "mi_zalloc",
    "mi_zalloc_aligned",
];
const REALLOCATIONS: [&str; 2] = ["mi_realloc", "mi_realloc_aligned"];
/// The end of a future behind a pointer to a trait object, boxed for its call.
const BOXED_FUTURE_END: &str =
    "core::ptr::drop_in_place<alloc::boxed::Box<dyn core::future::future::Future";

/// The figures of one call.
#[derive(Debug, Serialize)]
pub(crate) struct PathFigures {
    pub(crate) instructions: f64,
    /// Instructions by crate, those of drop glue, libc and the allocator under names of their own.
    pub(crate) instructions_by_crate: BTreeMap<String, f64>,
    /// Functions of weir's own that at least every second call passes through.
    pub(crate) functions: usize,
    /// Source files of these functions, zero if the program has no line numbers.
    pub(crate) files: usize,
    /// These functions by crate.
    pub(crate) functions_by_crate: BTreeMap<String, usize>,
    /// Calls of functions of weir's own, closures and polls included.
    pub(crate) own_calls: f64,
    pub(crate) allocations: f64,
    pub(crate) reallocations: f64,
    /// Boxed futures that end, which is as many as are made.
    pub(crate) boxed_futures: f64,
    /// Allocations by the function that they are for, partly estimated.
    pub(crate) allocation_sources: BTreeMap<String, f64>,
    /// Functions of weir's own on the path, in order of their instructions.
    pub(crate) path: Vec<PathFunction>,
}

/// A function of weir's own on the path of a call.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PathFunction {
    pub(crate) name: String,
    pub(crate) file: Option<String>,
    pub(crate) calls: f64,
    /// Calls of closures and polls of async blocks in it.
    pub(crate) closure_calls: f64,
    /// Its own instructions, closures included.
    pub(crate) instructions: f64,
}

/// A function in the source, with all closures and instances of it.
#[derive(Default)]
struct SourceFunction<'a> {
    owner: &'a str,
    files: BTreeSet<&'a str>,
    calls: u64,
    closure_calls: u64,
    /// The most calls of one of its closures.
    most_closure_calls: u64,
    instructions: u64,
}

impl PathFigures {
    /// Makes the figures of one call of the counts of `calls` calls.
    pub(crate) fn new(profile: &CallgrindProfile, calls: u64) -> Self {
        let per_call = |count: u64| as_float(count) / as_float(calls.max(1));
        let mut by_crate: BTreeMap<&str, u64> = BTreeMap::new();
        let mut functions: BTreeMap<&str, SourceFunction<'_>> = BTreeMap::new();
        for (name, costs) in &profile.functions {
            let owner = symbol::owner(name, &costs.object);
            *by_crate.entry(owner).or_default() += costs.instructions;
            if symbol::is_own(owner) {
                let function = functions.entry(symbol::source_function(name)).or_default();
                function.owner = owner;
                function.add(name, costs);
            }
        }
        let own_calls = functions
            .values()
            .map(|function| function.calls + function.closure_calls)
            .sum();
        functions
            .retain(|name, function| function.is_on_path(calls) && !symbol::is_constructor(name));
        let files: BTreeSet<&str> = functions
            .values()
            .filter_map(|function| function.files.first().copied())
            .collect();
        let mut functions_by_crate = BTreeMap::new();
        for function in functions.values() {
            *functions_by_crate
                .entry(function.owner.to_owned())
                .or_default() += 1;
        }
        let mut path: Vec<PathFunction> = functions
            .iter()
            .map(|(name, function)| PathFunction {
                name: (*name).to_owned(),
                file: function.files.first().map(|file| (*file).to_owned()),
                calls: per_call(function.calls),
                closure_calls: per_call(function.closure_calls),
                instructions: per_call(function.instructions),
            })
            .collect();
        path.sort_by(|one, other| other.instructions.total_cmp(&one.instructions));
        let (allocations, reallocations) = allocations(profile);
        let allocating = if calls_of(profile, |name| RUST_ALLOCATIONS.contains(&name)) > 0 {
            &RUST_ALLOCATIONS[..]
        } else {
            &ALLOCATIONS[..]
        };
        let mut sources = allocation_sources(profile, allocating);
        for count in sources.values_mut() {
            *count /= as_float(calls.max(1));
        }
        Self {
            instructions: per_call(by_crate.values().sum()),
            instructions_by_crate: by_crate
                .into_iter()
                .map(|(owner, instructions)| (owner.to_owned(), per_call(instructions)))
                .collect(),
            functions: functions.len(),
            files: files.len(),
            functions_by_crate,
            own_calls: per_call(own_calls),
            allocations: per_call(allocations),
            reallocations: per_call(reallocations),
            boxed_futures: per_call(calls_of(profile, |name| name.starts_with(BOXED_FUTURE_END))),
            allocation_sources: sources,
            path,
        }
    }
}

impl<'a> SourceFunction<'a> {
    /// Reports if at least every second of so many calls passes through it. A task that began
    /// earlier has only the polls of its async block; the closures of a function that a timer calls
    /// do not count.
    fn is_on_path(&self, calls: u64) -> bool {
        let passes = if self.calls > 0 {
            self.calls
        } else {
            self.most_closure_calls
        };
        passes >= calls.div_ceil(2)
    }

    fn add(&mut self, name: &str, costs: &'a FunctionCosts) {
        let calls = costs.calls();
        if symbol::is_closure(name) {
            self.closure_calls += calls;
            self.most_closure_calls = self.most_closure_calls.max(calls);
        } else {
            self.calls += calls;
        }
        self.instructions += costs.instructions;
        self.files
            .extend(costs.files.iter().filter_map(|file| file_of_tree(file)));
    }
}

/// Returns the path of a source file inside the work tree; none for a file of a dependency.
fn file_of_tree(file: &str) -> Option<&str> {
    if file.contains("/registry/") {
        return None;
    }
    file.find("crates/").map(|at| &file[at..])
}

/// Counts allocations and changes of their size: those of Rust, or of the allocator itself where the
/// former are inlined. The allocator's calls of itself do not count.
fn allocations(profile: &CallgrindProfile) -> (u64, u64) {
    let of_rust = calls_of(profile, |name| RUST_ALLOCATIONS.contains(&name));
    if of_rust > 0 {
        let again = calls_of(profile, |name| name == RUST_REALLOCATION);
        return (of_rust, again);
    }
    let called_from_outside = |names: &[&str]| {
        names
            .iter()
            .filter_map(|name| profile.functions.get(*name))
            .flat_map(|costs| &costs.callers)
            .filter(|(caller, _)| !symbol::is_allocator(caller))
            .map(|(_, count)| count)
            .sum()
    };
    (
        called_from_outside(&ALLOCATIONS),
        called_from_outside(&REALLOCATIONS),
    )
}

fn calls_of(profile: &CallgrindProfile, is_counted: impl Fn(&str) -> bool) -> u64 {
    profile
        .functions
        .iter()
        .filter(|(name, _)| is_counted(symbol::without_recursion(name)))
        .map(|(_, costs)| costs.calls())
        .sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::path::callgrind_profile::parse;

    /// Ten calls: each passes through `serve` and its async block, and boxes a future; one in ten
    /// calls `rare`, which has a loop. The task began earlier.
    const SAMPLE: &str = "\
events: Ir
ob=(1) /bin/weir
fl=(1) crates/front/src/serve.rs
fn=(1) weir_front::serve
1 100
cfn=(2) weir_front::serve::{{closure}}
calls=20 1
1 0
fn=(2)
2 200
cfn=(3) alloc::boxed::Box<T>::pin
calls=10 1
2 0
cfn=(4) core::ptr::drop_in_place<alloc::boxed::Box<dyn core::future::future::Future+Output = ()>>
calls=10 1
2 0
cfn=(5) __rustc::__rust_alloc
calls=30 1
2 0
cfn=(6) weir_front::rare
calls=1 1
2 0
cfn=(8) weir_front::task::{{closure}}
calls=10 1
2 0
fn=(6)
9 7
cfn=(9) weir_front::rare::{{closure}}
calls=40 1
2 0
fl=(2) /rust/library/alloc/src/boxed.rs
fn=(3)
1 50
fn=(4)
1 60
fn=(7) hyper::poll
1 3
cfn=(1)
calls=10 1
2 0
";

    #[test]
    fn counts_are_those_of_one_call() {
        let figures = PathFigures::new(&parse(SAMPLE).unwrap(), 10);
        let is = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
        };
        is(figures.instructions, 42.0);
        is(figures.instructions_by_crate["weir_front"], 30.7);
        is(figures.instructions_by_crate[symbol::STD], 5.0);
        is(figures.instructions_by_crate[symbol::DROP_GLUE], 6.0);
        is(figures.allocations, 3.0);
        is(figures.boxed_futures, 1.0);
        is(figures.own_calls, 8.1);
        is(figures.allocation_sources["weir_front::serve"], 3.0);
    }

    #[test]
    fn rare_functions_are_not_on_the_path() {
        let figures = PathFigures::new(&parse(SAMPLE).unwrap(), 10);
        assert_eq!((figures.functions, figures.files), (2, 1));
        assert_eq!(figures.functions_by_crate["weir_front"], 2);
        let [serve, task] = figures.path.as_slice() else {
            panic!("{:?}", figures.path)
        };
        assert_eq!(serve.name, "weir_front::serve");
        assert_eq!(task.name, "weir_front::task");
        assert_eq!(serve.file.as_deref(), Some("crates/front/src/serve.rs"));
        assert!((serve.calls - 1.0).abs() < 1e-9 && (serve.closure_calls - 2.0).abs() < 1e-9);
        assert!((serve.instructions - 30.0).abs() < 1e-9);
    }

    #[test]
    fn the_allocators_own_functions_count_where_rusts_are_inlined() {
        let text = "events: Ir\nfn=(1) weir_a::f\n1 1\ncfn=(2) mi_malloc\ncalls=4 1\n1 0\n\
                    fn=(3) mi_zalloc\n1 1\ncfn=(2)\ncalls=9 1\n1 0\n";
        let figures = PathFigures::new(&parse(text).unwrap(), 2);
        assert!((figures.allocations - 2.0).abs() < 1e-9);
    }

    #[test]
    fn only_files_of_the_work_tree_count() {
        assert_eq!(
            file_of_tree("/home/me/weir/crates/front/src/a.rs"),
            Some("crates/front/src/a.rs")
        );
        assert_eq!(
            file_of_tree("crates/front/src/a.rs"),
            Some("crates/front/src/a.rs")
        );
        assert_eq!(
            file_of_tree("/cargo/registry/src/x/crates/y/src/a.rs"),
            None
        );
        assert_eq!(file_of_tree("/rust/library/core/src/option.rs"), None);
    }
}
