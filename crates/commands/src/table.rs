//! Formats columns as wide as their content, and together no wider than the terminal.

/// The smallest width that a column is cut to.
const MIN_WIDTH: usize = 8;
/// The number of spaces between two columns.
const GAP: usize = 2;

/// Formats rows under their heads. `width` is that of the terminal. Without a width, no cell is
/// cut.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heads).chain(rows).collect();
    lines(&all, width)
}

/// Formats rows without heads.
pub(super) fn columns(rows: &[Vec<String>], width: Option<usize>) -> String {
    lines(&rows.iter().collect::<Vec<_>>(), width)
}

fn lines(rows: &[&Vec<String>], width: Option<usize>) -> String {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let natural = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| length(cell))
            .max()
            .unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..columns).map(natural).collect();
    if let Some(width) = width {
        shrink_widths(&mut widths, width);
    }
    let line = |row: &&Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{:<width$}", truncate(cell, *width)));
        let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// Narrows the widest columns until all of them fit.
fn shrink_widths(widths: &mut [usize], width: usize) {
    let room = width.saturating_sub(GAP * widths.len().saturating_sub(1));
    loop {
        let all: usize = widths.iter().sum();
        let Some(widest) = widths
            .iter_mut()
            .max()
            .filter(|widest| all > room && **widest > MIN_WIDTH)
        else {
            return;
        };
        *widest -= 1;
    }
}

/// Cuts a text that is longer than this.
pub(super) fn truncate(text: &str, most: usize) -> String {
    if length(text) <= most {
        text.to_owned()
    } else {
        text.chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let rows = [row(&["x", "5"]), row(&["long name", "-"])];
        assert_eq!(
            table(&["A", "B"], &rows, None),
            "A          B\nx          5\nlong name  -\n"
        );
        assert_eq!(columns(&rows, Some(80)), "x          5\nlong name  -\n");
    }

    #[test]
    fn the_widest_column_gives_way_to_the_terminal() {
        let rows = [row(&["files__echo", &"y".repeat(100)])];
        assert!(
            columns(&rows, None).contains(&"y".repeat(100)),
            "no terminal, nothing cut"
        );
        let shown = columns(&rows, Some(40));
        assert_eq!(shown.trim_end().chars().count(), 40, "{shown}");
        assert!(
            shown.starts_with("files__echo  yyy") && shown.trim_end().ends_with('…'),
            "{shown}"
        );
        // Narrower than the narrowest columns.
        assert!(columns(&rows, Some(5)).starts_with("files__"));
    }
}
