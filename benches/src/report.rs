//! The result of a run: tables for people, one JSON file for machines.

use crate::machine::MachineFacts;
use crate::settings::RunSettings;
use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A run: machine, settings and results.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) machine: MachineFacts,
    pub(crate) settings: RunSettings,
    pub(crate) tables: Vec<ReportTable>,
    /// Errors of all rows, and parts that could not run.
    pub(crate) errors: u64,
}

/// One part's rows.
#[derive(Debug, Serialize)]
pub(crate) struct ReportTable {
    name: &'static str,
    title: String,
    #[serde(skip)]
    columns: &'static [(&'static str, &'static str)],
    rows: Vec<Map<String, Value>>,
    /// Notes for the reader: scaled down, skipped, aims.
    notes: Vec<String>,
}

impl BenchReport {
    /// A run that has not begun.
    pub(crate) fn new(settings: RunSettings) -> Self {
        Self {
            machine: MachineFacts::read(settings.commit.clone()),
            settings,
            tables: Vec::new(),
            errors: 0,
        }
    }

    /// Prints a table and keeps it.
    pub(crate) fn add(&mut self, table: ReportTable) {
        print!("{}", table.text());
        self.errors += table.errors();
        self.tables.push(table);
    }

    /// Writes the JSON file, and creates its folder if it is missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl ReportTable {
    /// A table without rows; `columns` are (key of a row, heading) in order. Keys that are not
    /// listed go to the file only.
    pub(crate) const fn new(
        name: &'static str,
        title: String,
        columns: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            name,
            title,
            columns,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a row: any value that serialises as an object, with `errors` and `error` if it can
    /// fail.
    ///
    /// # Errors
    /// It is not an object.
    pub(crate) fn row(&mut self, row: &impl Serialize) -> Result<()> {
        let Value::Object(row) = serde_json::to_value(row)? else {
            anyhow::bail!("a row that is no object");
        };
        self.rows.push(row);
        Ok(())
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn errors(&self) -> u64 {
        self.rows
            .iter()
            .filter_map(|row| row.get("errors")?.as_u64())
            .sum()
    }

    fn text(&self) -> String {
        let headings = self
            .columns
            .iter()
            .map(|(_, heading)| (*heading).to_owned())
            .collect();
        let cells = |row: &Map<String, Value>| {
            self.columns
                .iter()
                .map(|(key, _)| cell(row.get(*key)))
                .collect()
        };
        let lines: Vec<Vec<String>> = std::iter::once(headings)
            .chain(self.rows.iter().map(cells))
            .collect();
        let width = |column: usize| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("\n{}\n", self.title);
        for line in &lines {
            for (cell, width) in line.iter().zip(&widths) {
                // Writing into a String cannot fail.
                let _ = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
        let wrong = self
            .rows
            .iter()
            .filter_map(|row| row.get("error")?.as_str())
            .map(|error| format!("error: {error}"));
        for line in wrong.chain(self.notes.iter().cloned()) {
            let _ = writeln!(text, "  {line}");
        }
        text
    }
}

/// Renders a cell with three significant digits, which are enough for a measurement.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(float)) if float.abs() < 10.0 => format!("{float:.2}"),
            (None, Some(float)) if float.abs() < 1000.0 => format!("{float:.1}"),
            (None, float) => format!("{:.0}", float.unwrap_or(f64::NAN)),
        },
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use serde_json::json;

    fn table() -> ReportTable {
        let mut table = ReportTable::new(
            "calls",
            "tools/call".to_owned(),
            &[("target", "target"), ("rate", "calls/s")],
        );
        table
            .row(&json!({"target": "pipe", "rate": 12345.6, "errors": 0}))
            .unwrap();
        table
            .row(&json!({"target": "weir", "errors": 2, "error": "HTTP 500"}))
            .unwrap();
        table.note("scaled down");
        table
    }

    #[test]
    fn table_is_aligned_and_lists_errors() {
        assert_eq!(
            table().text(),
            "\ntools/call\n  target  calls/s\n    pipe    12346\n    weir        -\n  error: HTTP 500\n  scaled down\n"
        );
    }

    #[test]
    fn errors_are_summed_over_rows() {
        assert_eq!(table().errors(), 2);
    }
}
