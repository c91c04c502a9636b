//! A line diff of two texts, for display.

/// The most pairs of lines that are compared. Beyond that, all lines between the first and the last
/// difference count as changed.
const MAX_PAIRS: usize = 1 << 22;

/// A line that only one of the texts has, with its number there, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedLine<'a> {
    /// A line of the old text alone.
    Removed(usize, &'a str),
    /// A line of the new text alone.
    Added(usize, &'a str),
}

/// Returns the changed lines, in order. A comma at the end of a line is no change: an entry gets
/// one when another follows it.
pub fn changed_lines<'a>(before: &'a str, after: &'a str) -> Vec<ChangedLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |(one, two): &(&&str, &&str)| bare(one) == bare(two);
    let start = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - start;
    let end = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(rest)
        .take_while(same)
        .count();
    let (old, new) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let is_small = old.len().saturating_mul(new.len()) <= MAX_PAIRS;
    let common = if is_small {
        common(old, new)
    } else {
        Vec::new()
    };
    let mut changed = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (in_old, in_new) in common.into_iter().chain([(old.len(), new.len())]) {
        changed.extend((i..in_old).map(|i| ChangedLine::Removed(start + i + 1, old[i])));
        changed.extend((j..in_new).map(|j| ChangedLine::Added(start + j + 1, new[j])));
        (i, j) = (in_old + 1, in_new + 1);
    }
    changed
}

/// Returns the positions of a longest common subsequence of lines.
fn common(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = if bare(old[i]) == bare(new[j]) {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if bare(old[i]) == bare(new[j]) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Returns a line without a comma at its end.
fn bare(line: &str) -> &str {
    let line = line.trim_end();
    line.strip_suffix(',').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChangedLine::{Added, Removed};

    #[test]
    fn line_diff_ignores_a_comma_behind_the_former_last_entry() {
        assert_eq!(changed_lines("{\n a\n}", "{\n a,\n b\n}"), [Added(3, " b")]);
        assert_eq!(changed_lines("a\nb", "a\nb"), []);
        assert_eq!(changed_lines("", "a\n"), [Added(1, "a")]);
        let two = changed_lines("a\nb\nc\nd\ne", "a\nx\nc\nd\ny\ne");
        assert_eq!(two, [Removed(2, "b"), Added(2, "x"), Added(5, "y")]);
    }
}
