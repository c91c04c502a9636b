//! Pictures for the docs: charts, figures and tables as SVG, drawn from the numbers of a run. Not a
//! plotting library: it has the parts that the dashboards and the benchmarks need.

pub(crate) mod axis;
pub(crate) mod chart;
pub(crate) mod stat_panel;
pub(crate) mod svg;
pub(crate) mod unit;

/// Colours that are distinct on white, in the order of their use by lines.
pub(crate) const PALETTE: [&str; 10] = [
    "#3274d9", "#e0a30b", "#2c9c46", "#d44a3a", "#8f3bb8", "#0b9aa5", "#e26b0a", "#6b7380",
    "#b5485d", "#6f8f00",
];

/// The colour of the main text.
pub(crate) const INK: &str = "#1f2430";
/// The colour of secondary text.
pub(crate) const PALE: &str = "#68707c";
/// The colour of grids and borders.
pub(crate) const GRID: &str = "#e6e9ee";
