//! Cleaning as documented: slowly, one rule after another over decoded characters, on a tree of
//! values.

use serde_json::Value;
use weir_clean::{BIDI_WINDOW, MAX_SEQUENCE, RemovalCounts};

/// Cleans the strings of a tool's result.
pub(crate) fn tool_result(result: &mut Value, counts: &mut RemovalCounts) {
    if let Some(blocks) = result.get_mut("content").and_then(Value::as_array_mut) {
        for block in blocks {
            if let Some(Value::String(text)) = block.get_mut("text") {
                *text = string(text, counts);
            }
        }
    }
    if let Some(value) = result.get_mut("structuredContent") {
        values(value, counts);
    }
}

fn values(value: &mut Value, counts: &mut RemovalCounts) {
    match value {
        Value::String(text) => *text = string(text, counts),
        Value::Array(elements) => elements
            .iter_mut()
            .for_each(|element| values(element, counts)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| values(member, counts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cleans one string.
pub(crate) fn string(text: &str, counts: &mut RemovalCounts) -> String {
    let text: Vec<char> = text.chars().collect();
    let text = without_sequences(&text, counts);
    let text = without_single(text, counts);
    let text = without_tags(&text, counts);
    let text = without_bidi(&text, counts);
    without_private(&text, counts)
}

fn without_sequences(text: &[char], counts: &mut RemovalCounts) -> Vec<char> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let len = sequence(&text[at..]);
        counts.escapes += u64::from(len > 0);
        if len == 0 {
            kept.push(text[at]);
        }
        at += len.max(1);
    }
    kept
}

/// The length of the escape sequence at the beginning; 0 without a sequence.
fn sequence(all: &[char]) -> usize {
    let text = longest(all);
    match text {
        ['\u{9b}', ..] => control_sequence(text, 1),
        ['\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}', ..] => control_string(all, 1, false),
        ['\u{9d}', ..] => control_string(all, 1, true),
        ['\u{1b}', ..] => {
            let Some(at) = carried_out(text, 1) else {
                return text.len();
            };
            match text[at] {
                '\u{18}' | '\u{1a}' => at + 1,
                '[' => control_sequence(text, at + 1),
                ']' => control_string(all, at + 1, true),
                'P' | 'X' | '^' | '_' => control_string(all, at + 1, false),
                ' '..='/' => ended_by(text, at + 1, ' '..='/', '0'..='~'),
                '0'..='~' => at + 1,
                _ => at,
            }
        }
        _ => 0,
    }
}

fn longest(text: &[char]) -> &[char] {
    &text[..text.len().min(MAX_SEQUENCE as usize)]
}

/// The position behind controls that terminals execute in the midst of a sequence.
fn carried_out(text: &[char], from: usize) -> Option<usize> {
    let controls = |one: &char| matches!(one, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{17}' | '\u{19}' | '\u{1c}'..='\u{1f}' | '\u{7f}');
    text[from..]
        .iter()
        .position(|one| !controls(one))
        .map(|len| from + len)
}

fn control_sequence(text: &[char], from: usize) -> usize {
    ended_by(text, from, ' '..='?', '@'..='~')
}

fn ended_by(
    text: &[char],
    mut at: usize,
    middle: std::ops::RangeInclusive<char>,
    last: std::ops::RangeInclusive<char>,
) -> usize {
    loop {
        let Some(next) = carried_out(text, at) else {
            return text.len();
        };
        match &text[next] {
            one if middle.contains(one) => at = next + 1,
            '\u{18}' | '\u{1a}' => return next + 1,
            one if last.contains(one) => return next + 1,
            _ => return next,
        }
    }
}

/// The length with the terminator; its second half may lie beyond the longest sequence.
fn control_string(all: &[char], from: usize, is_osc: bool) -> usize {
    let text = longest(all);
    for at in from..text.len() {
        match text[at] {
            '\u{7}' if is_osc => return at + 1,
            '\u{9c}' | '\u{18}' | '\u{1a}' => return at + 1,
            // ESC ends it, and is half of its terminator or begins another.
            '\u{1b}' => {
                let rest = longest(&all[at..]);
                let Some(next) = carried_out(rest, 1) else {
                    return at + rest.len();
                };
                return match rest[next] {
                    '\\' | '\u{18}' | '\u{1a}' => at + next + 1,
                    ' '..='~' => at,
                    _ => at + next,
                };
            }
            '\u{90}' | '\u{98}' | '\u{9b}' | '\u{9d}'..='\u{9f}' => return at,
            _ => {}
        }
    }
    text.len()
}

fn without_single(text: Vec<char>, counts: &mut RemovalCounts) -> Vec<char> {
    let keep = |one: &char| match one {
        '\t' | '\n' | '\r' => true,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
            counts.controls += 1;
            false
        }
        '\u{e0100}'..='\u{e01ef}' => {
            counts.variation += 1;
            false
        }
        _ => true,
    };
    text.into_iter().filter(keep).collect()
}

fn without_tags(text: &[char], counts: &mut RemovalCounts) -> Vec<char> {
    let is_tag = |one: char| ('\u{e0000}'..='\u{e007f}').contains(&one);
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let ascii: String = text[at..]
            .iter()
            .skip(1)
            .take(6)
            .map(|one| char::from_u32((*one as u32).wrapping_sub(0xe_0000)).unwrap_or('?'))
            .collect();
        if text[at] == '\u{1f3f4}'
            && ["gbeng\x7f", "gbsct\x7f", "gbwls\x7f"].contains(&ascii.as_str())
        {
            kept.extend_from_slice(&text[at..at + 7]);
            at += 7;
            continue;
        }
        if is_tag(text[at]) {
            counts.tags += 1;
        } else {
            kept.push(text[at]);
        }
        at += 1;
    }
    kept
}

fn without_bidi(text: &[char], counts: &mut RemovalCounts) -> Vec<char> {
    let is_isolate = |at: &usize| ('\u{2066}'..='\u{2068}').contains(&text[*at]);
    let mut keep = vec![true; text.len()];
    let mut open: Vec<usize> = Vec::new();
    for at in 0..text.len() {
        while open
            .first()
            .is_some_and(|opener| at - opener > usize::try_from(BIDI_WINDOW).unwrap())
        {
            open.remove(0);
        }
        match text[at] {
            '\u{202a}' | '\u{202b}' | '\u{202d}' | '\u{202e}' | '\u{2066}'..='\u{2068}' => {
                keep[at] = false;
                open.push(at);
            }
            '\u{202c}' => {
                keep[at] = false;
                if open.last().is_some_and(|opener| !is_isolate(opener)) {
                    let opener = open.pop().unwrap();
                    let both = !matches!(text[opener], '\u{202d}' | '\u{202e}');
                    (keep[opener], keep[at]) = (both, both);
                }
            }
            '\u{2069}' => {
                keep[at] = false;
                if let Some(place) = open.iter().rposition(is_isolate) {
                    (keep[open[place]], keep[at]) = (true, true);
                    open.truncate(place);
                }
            }
            _ => {}
        }
    }
    counts.bidi += keep.iter().filter(|keep| !**keep).count() as u64;
    text.iter()
        .zip(keep)
        .filter(|(_, keep)| *keep)
        .map(|(one, _)| *one)
        .collect()
}

fn without_private(text: &[char], counts: &mut RemovalCounts) -> String {
    let is_private = |one: &char| matches!(one, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    let runs = text.chunk_by(|one, next| is_private(one) == is_private(next));
    let mut kept = String::new();
    for run in runs {
        if run.len() >= 4 && is_private(&run[0]) {
            counts.private += run.len() as u64;
        } else {
            kept.extend(run);
        }
    }
    kept
}
