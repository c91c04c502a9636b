//! `cargo xtask path`: the functions, instructions and allocations that one `tools/call` costs
//! inside weir.
//!
//! weir runs under callgrind, which counts instead of timing: the figures of two runs differ by
//! two in a hundred at most, on a busy machine too. The quietest of many short rounds counts, because
//! weir's timers are no part of a call. An unoptimized build has each function of weir's own
//! as a function of its own, so it tells how long the way of a call is. Its instructions are several
//! times those of a release; compare them with those of another unoptimized build alone.

mod allocation_sources;
mod callgrind_profile;
mod measured_weir;
mod path_figures;
mod symbol;

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use self::measured_weir::MeasuredWeir;
use self::path_figures::PathFigures;
use crate::{
    peers,
    run::{build_alone, build_weir, empty_folder, output_of, root},
};

/// The eras of the client and the server in each measurement.
const PAIRINGS: [(&str, &str); 4] = [
    ("legacy", "legacy"),
    ("modern", "modern"),
    ("legacy", "modern"),
    ("modern", "legacy"),
];

/// What the profile `dev` needs to be measured: line numbers, and no checks in weir's own code. The
/// dependencies stay as they are, so that they are not built anew.
const BUILD_FLAGS: [&str; 10] = [
    "--config",
    "profile.dev.debug=\"line-tables-only\"",
    "--config",
    "profile.dev.debug-assertions=false",
    "--config",
    "profile.dev.overflow-checks=false",
    "--config",
    "profile.dev.package.\"*\".debug-assertions=true",
    "--config",
    "profile.dev.package.\"*\".overflow-checks=true",
];

/// The least share of all instructions, in a thousand, for a row of its own.
const MIN_PER_MILLE: f64 = 10.0;

/// Options of the command.
#[derive(Args)]
pub(crate) struct PathOptions {
    /// Measure this binary, and build none; where functions are inlined, their counts are too low
    #[arg(long, value_name = "BINARY")]
    weir: Option<PathBuf>,
    /// Calls of a round; of twenty rounds the one with the fewest instructions counts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
    calls: u64,
    /// Write the figures and all functions to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the functions of each pairing in order of their instructions
    #[arg(long)]
    list: bool,
}

/// The result of a run, as it is written to a file.
#[derive(Serialize)]
struct PathReport {
    /// The measured binary.
    weir: PathBuf,
    /// The commit of the work tree, unless the binary is another one.
    commit: Option<String>,
    calls: u64,
    pairings: Vec<PairingFigures>,
}

#[derive(Serialize)]
struct PairingFigures {
    client: &'static str,
    server: &'static str,
    #[serde(flatten)]
    figures: PathFigures,
}

/// Measures all pairings and prints the table.
///
/// # Errors
/// valgrind is missing, a build fails, or a call is not answered as it must be.
pub(crate) fn run(options: &PathOptions) -> anyhow::Result<()> {
    peers::install_valgrind()?;
    let bench = build_alone("weir-benches", "weir-bench", &[])?;
    let (weir, commit) = match &options.weir {
        Some(weir) => (weir.clone(), None),
        None => (build_weir(&BUILD_FLAGS)?, commit()?),
    };
    let folder = empty_folder("path")?;
    let mut measured = MeasuredWeir::start(&weir, &bench, &folder)?;
    let mut pairings = Vec::new();
    for (client, server) in PAIRINGS {
        eprintln!("{client} client, {server} server");
        let profile = measured.count(client, server, options.calls)?;
        let profile = callgrind_profile::parse(&profile).context("callgrind's file")?;
        pairings.push(PairingFigures {
            client,
            server,
            figures: PathFigures::new(&profile, options.calls),
        });
    }
    let report = PathReport {
        weir,
        commit,
        calls: options.calls,
        pairings,
    };
    if options.list {
        for pairing in &report.pairings {
            println!("{}", listed(pairing));
        }
    }
    println!("{}", table(&report.pairings));
    println!("\nprofiles, for kcachegrind: {}", folder.display());
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn commit() -> anyhow::Result<Option<String>> {
    let mut describe = std::process::Command::new("git");
    describe.args(["describe", "--always", "--dirty"]);
    Ok(output_of(describe.current_dir(root()?)))
}

/// Renders the figures of all pairings as a table in Markdown.
fn table(pairings: &[PairingFigures]) -> String {
    let mut rows = vec![row("one `tools/call`", pairings, |pairing| {
        format!("{} -> {}", pairing.client, pairing.server)
    })];
    let number = |label: &str, figure: &dyn Fn(&PathFigures) -> f64| {
        row(label, pairings, |pairing| rounded(figure(&pairing.figures)))
    };
    rows.push(row("---", pairings, |_| "---:".to_owned()));
    rows.push(row("functions of weir", pairings, |pairing| {
        pairing.figures.functions.to_string()
    }));
    for owner in owners(pairings, |figures| figures.functions_by_crate.keys()) {
        rows.push(row(&format!("- `{owner}`"), pairings, |pairing| {
            let count = pairing.figures.functions_by_crate.get(owner);
            count.copied().unwrap_or(0).to_string()
        }));
    }
    rows.push(row("files of these", pairings, |pairing| {
        match pairing.figures.files {
            0 => "-".to_owned(),
            files => files.to_string(),
        }
    }));
    rows.push(number("calls of weir's functions", &|it| it.own_calls));
    rows.push(number("heap allocations", &|it| it.allocations));
    rows.push(number("reallocations", &|it| it.reallocations));
    rows.push(number("boxed futures", &|it| it.boxed_futures));
    rows.push(number("instructions", &|it| it.instructions));
    let owners = owners(pairings, |figures| figures.instructions_by_crate.keys());
    let (large, small): (Vec<&str>, Vec<&str>) = owners
        .into_iter()
        .partition(|owner| symbol::is_own(owner) || is_large(owner, pairings));
    let of = |figures: &PathFigures, owner: &str| {
        let instructions = figures.instructions_by_crate.get(owner);
        instructions.copied().unwrap_or(0.0)
    };
    for owner in large {
        rows.push(number(&format!("- {owner}"), &|it| of(it, owner)));
    }
    rows.push(number("- others", &|it| {
        small.iter().map(|owner| of(it, owner)).sum()
    }));
    rows.join("\n")
}

/// All keys of the pairings' figures, sorted, weir's crates first.
fn owners<'a, I: Iterator<Item = &'a String>>(
    pairings: &'a [PairingFigures],
    keys: impl Fn(&'a PathFigures) -> I,
) -> Vec<&'a str> {
    let all: BTreeSet<&str> = pairings
        .iter()
        .flat_map(|pairing| keys(&pairing.figures))
        .map(String::as_str)
        .collect();
    let mut all: Vec<&str> = all.into_iter().collect();
    all.sort_by_key(|owner| !symbol::is_own(owner));
    all
}

/// Reports if this crate has a notable share of the instructions of a pairing.
fn is_large(owner: &str, pairings: &[PairingFigures]) -> bool {
    pairings.iter().any(|PairingFigures { figures, .. }| {
        let instructions = figures.instructions_by_crate.get(owner);
        instructions.is_some_and(|found| found * 1000.0 >= figures.instructions * MIN_PER_MILLE)
    })
}

fn row(
    label: &str,
    pairings: &[PairingFigures],
    cell: impl Fn(&PairingFigures) -> String,
) -> String {
    let mut row = format!("| {label} |");
    for pairing in pairings {
        // Writing into a String cannot fail.
        let _ = write!(row, " {} |", cell(pairing));
    }
    row
}

/// Renders a count with as many digits as it is worth.
fn rounded(count: f64) -> String {
    if count < 100.0 {
        format!("{count:.1}")
    } else {
        format!("{count:.0}")
    }
}

/// Renders the functions of weir's own on the path of one pairing.
fn listed(pairing: &PairingFigures) -> String {
    let mut text = format!(
        "{} client, {} server\n{:>9} {:>7} {:>8}  function, file\n",
        pairing.client, pairing.server, "Ir", "calls", "closures"
    );
    for function in &pairing.figures.path {
        let file = function.file.as_deref().unwrap_or("-");
        let _ = writeln!(
            text,
            "{:>9.0} {:>7.1} {:>8.1}  {}  {file}",
            function.instructions, function.calls, function.closure_calls, function.name
        );
    }
    text.push_str("allocations, by the function that they are for (partly estimated)\n");
    let sources = &pairing.figures.allocation_sources;
    let mut sources: Vec<(&String, &f64)> = sources.iter().collect();
    sources.sort_by(|one, other| other.1.total_cmp(one.1));
    for (source, count) in sources {
        let _ = writeln!(text, "{count:>9.1}  {source}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn pairing() -> PairingFigures {
        let text = "events: Ir\nob=/bin/weir\nfl=crates/a/src/f.rs\nfn=weir_a::f\n1 400\n\
                    fn=hyper::g\n1 2000\nfn=tiny::h\n1 2\ncfn=weir_a::f\ncalls=2 1\n1 0\n";
        let profile = callgrind_profile::parse(text).unwrap();
        PairingFigures {
            client: "legacy",
            server: "modern",
            figures: PathFigures::new(&profile, 2),
        }
    }

    #[test]
    fn the_table_has_small_crates_together() {
        let table = table(&[pairing()]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| one `tools/call` | legacy -> modern |");
        for expected in [
            "| functions of weir | 1 |",
            "| - `weir_a` | 1 |",
            "| files of these | 1 |",
            "| instructions | 1201 |",
            "| - weir_a | 200 |",
            "| - hyper | 1000 |",
            "| - others | 1.0 |",
        ] {
            assert!(lines.contains(&expected), "{expected} in\n{table}");
        }
    }

    #[test]
    fn the_list_has_file_and_counts_of_each_function() {
        let list = listed(&pairing());
        assert!(
            list.contains("      200     1.0      0.0  weir_a::f  crates/a/src/f.rs"),
            "{list}"
        );
    }
}
