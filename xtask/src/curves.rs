//! `cargo xtask bench --pictures`: the curves in `docs/benchmarks`, from the result file of the
//! load generator. It draws only measured values: a part that is not in the file has no picture,
//! and a message reports it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::draw::axis::AxisScale;
use crate::draw::chart::{ChartLine, LineChart, LineStyle};
use crate::draw::svg::{PictureArea, SvgPicture};
use crate::draw::unit::ValueUnit;
use crate::run::root;

/// A curve: the rows of a part, the members on its axes, and the members that tell its lines apart.
struct BenchCurve {
    file: &'static str,
    title: &'static str,
    part: &'static str,
    across: &'static str,
    /// The unit of the numbers across.
    counted: &'static str,
    upward: &'static str,
    unit: ValueUnit,
    /// The factor from the number in the file to the unit.
    times: f64,
    /// The values that a row must have to be drawn.
    only: &'static [(&'static str, &'static str)],
    lines: &'static [&'static str],
}

const CURVES: [BenchCurve; 5] = [
    BenchCurve {
        file: "calls",
        title: "tools/call: calls a second, over calls in flight (modern client and upstream)",
        part: "calls",
        across: "concurrency",
        counted: "in flight",
        upward: "per_second",
        unit: ValueUnit::PerSecond("/s"),
        times: 1.0,
        only: &[("client", "modern"), ("upstream", "modern")],
        lines: &["target"],
    },
    BenchCurve {
        file: "cpu",
        title: "tools/call: CPU time of weir for one call, over calls in flight, by eras (client, upstream)",
        part: "calls",
        across: "concurrency",
        counted: "in flight",
        upward: "cpu_us",
        unit: ValueUnit::Seconds,
        times: 1e-6,
        only: &[("target", "weir")],
        lines: &["client", "upstream"],
    },
    BenchCurve {
        file: "lists",
        title: "tools/list: CPU time of weir for a page, over upstreams with 50 tools each",
        part: "lists",
        across: "upstreams",
        counted: "upstreams",
        upward: "cpu_us",
        unit: ValueUnit::Seconds,
        times: 1e-6,
        only: &[("target", "weir")],
        lines: &["client"],
    },
    BenchCurve {
        file: "fanout",
        title: "A change told to all listeners: p99, over listeners",
        part: "fanout",
        across: "listeners",
        counted: "listeners",
        upward: "p99_ms",
        unit: ValueUnit::Seconds,
        times: 1e-3,
        only: &[("target", "weir")],
        lines: &["client"],
    },
    BenchCurve {
        file: "gates",
        title: "tools/call without and with tokens, rules, limits, schema checks and audit: calls a second",
        part: "gates",
        across: "concurrency",
        counted: "in flight",
        upward: "per_second",
        unit: ValueUnit::PerSecond("/s"),
        times: 1.0,
        only: &[],
        lines: &["era", "gates"],
    },
];

/// Draws every curve that `file` has the numbers for; the newest result if no file is named.
pub(crate) fn draw(file: Option<&Path>) -> anyhow::Result<()> {
    let file = file.map_or_else(newest, |file| Ok(file.to_owned()))?;
    let result: Value = serde_json::from_str(
        &fs::read_to_string(&file).with_context(|| file.display().to_string())?,
    )?;
    let folder = root()?.join("docs/benchmarks");
    fs::create_dir_all(&folder)?;
    let mut drawn = 0;
    for curve in &CURVES {
        match curve.picture(&result) {
            Some(picture) => {
                fs::write(folder.join(format!("{}.svg", curve.file)), picture)?;
                drawn += 1;
            }
            None => eprintln!(
                "{} has no part `{}`: {}.svg stays as it is",
                file.display(),
                curve.part,
                curve.file
            ),
        }
    }
    if drawn == 0 {
        bail!("{} is no result of the load generator", file.display());
    }
    Ok(())
}

/// The last result in `bench-results`.
fn newest() -> anyhow::Result<PathBuf> {
    let folder = root()?.join("bench-results");
    let entries = fs::read_dir(&folder)
        .with_context(|| format!("{}: run `cargo xtask bench` first", folder.display()))?;
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    // The file names are the times at which the runs began.
    files
        .filter(|file| file.extension().is_some_and(|kind| kind == "json"))
        .max()
        .context("there is no result yet")
}

impl BenchCurve {
    fn picture(&self, result: &Value) -> Option<String> {
        let lines = self.lines(result);
        let across: Vec<f64> = lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|(x, _)| *x)
            .collect();
        if across.is_empty() {
            return None;
        }
        let mut ticks: Vec<f64> = across;
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let chart = LineChart {
            title: self.title,
            unit: self.unit,
            style: LineStyle::Lines,
            below: ticks
                .iter()
                .map(|at| (*at, format!("{at} {}", self.counted)))
                .collect(),
            scale: AxisScale::Doubling,
            most: None,
            mark: None,
            lines,
        };
        let (width, height) = (760.0, 420.0);
        let mut picture = SvgPicture::new(width, height, self.title);
        chart.draw(
            &mut picture,
            PictureArea {
                x: 1.0,
                y: 1.0,
                width: width - 2.0,
                height: height - 2.0,
            },
        );
        Some(picture.finish())
    }

    /// Groups the rows into lines.
    fn lines(&self, result: &Value) -> Vec<ChartLine> {
        let tables = result["tables"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let rows = tables
            .iter()
            .filter(|table| table["name"] == self.part)
            .filter_map(|table| table["rows"].as_array());
        let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows
            .flatten()
            .filter(|row| self.only.iter().all(|(key, value)| row[*key] == **value))
        {
            if let (Some(x), Some(y)) = (row[self.across].as_f64(), row[self.upward].as_f64()) {
                let name = self
                    .lines
                    .iter()
                    .filter_map(|key| row[*key].as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                lines.entry(name).or_default().push((x, y * self.times));
            }
        }
        let sorted = |mut points: Vec<(f64, f64)>| {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        };
        lines
            .into_iter()
            .map(|(name, points)| ChartLine {
                name,
                points: sorted(points),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn benchmark_rows_become_curves_and_missing_parts_no_picture() {
        let row = |target: &str, concurrency: u32, rate: f64| json!({ "target": target, "client": "modern", "upstream": "modern", "concurrency": concurrency, "per_second": rate });
        let mut other = row("weir", 1, 1.0);
        other["client"] = json!("legacy");
        let rows = [
            row("weir", 32, 9.0),
            row("weir", 1, 5.0),
            row("pipe", 1, 7.0),
            other,
        ];
        let result = json!({ "tables": [{ "name": "calls", "rows": rows }] });
        let lines = CURVES[0].lines(&result);
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line.name.as_str(), line.points.clone()))
            .collect();
        assert_eq!(
            found,
            [
                ("pipe", vec![(1.0, 7.0)]),
                ("weir", vec![(1.0, 5.0), (32.0, 9.0)])
            ]
        );
        assert!(
            CURVES[0]
                .picture(&result)
                .is_some_and(|picture| picture.contains("1 in flight"))
        );
        assert_eq!(CURVES[3].picture(&result), None);
    }
}
