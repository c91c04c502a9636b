//! The cost of matching the patterns of a schema.
//!
//! The engine is linear, but not equally fast: it builds the states of an automaton while it
//! matches, and keeps them in a cache. A pattern whose states all fit costs a few nanoseconds for
//! each byte of a text. Another one costs up to microseconds, because states are built again and
//! again or each part of the pattern is followed on its own.

use std::collections::HashMap;

use foldhash::HashSet as FastSet;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input};

use crate::member_pattern::PATTERN_BYTES;

/// Bytes of text that a step of the count is worth: most texts and patterns take a step.
pub(crate) const BYTES_A_STEP: usize = 64;
/// Steps for each byte of text under a pattern whose states do not fit: at least, and at most.
const MIN_DEAR: usize = 4;
const MAX_DEAR: usize = 32;
/// Parts of such a pattern that a step for each byte is worth.
const PARTS_A_STEP: usize = 16;
/// Transitions that are followed for one pattern in one direction, and for all of a schema.
const PATTERN_TRANSITIONS: usize = 1 << 16;
const SCHEMA_TRANSITIONS: usize = 1 << 18;
/// Bytes of all compiled patterns of a schema: the time to compile them grows with it.
const SCHEMA_BYTES: usize = 16 << 20;

/// The costs of a schema's patterns.
pub(crate) struct PatternCosts<'a> {
    by_text: HashMap<&'a str, u64>,
    transitions: usize,
    bytes: usize,
}

impl Default for PatternCosts<'_> {
    fn default() -> Self {
        Self {
            by_text: HashMap::new(),
            transitions: SCHEMA_TRANSITIONS,
            bytes: SCHEMA_BYTES,
        }
    }
}

impl<'a> PatternCosts<'a> {
    /// Steps of matching [`BYTES_A_STEP`] bytes of text; absent if the schema's patterns are too
    /// large together. A pattern that cannot be compiled has the most: its schema is not used.
    pub(crate) fn steps(&mut self, pattern: &'a str) -> Option<u64> {
        if let Some(known) = self.by_text.get(pattern) {
            return Some(*known);
        }
        let steps = self.measure(pattern)?;
        self.by_text.insert(pattern, steps);
        Some(steps)
    }

    fn measure(&mut self, pattern: &str) -> Option<u64> {
        let dear = |steps: usize| (BYTES_A_STEP * steps) as u64;
        let text = jsonschema_regex::to_rust_regex(pattern).ok();
        let automata =
            text.and_then(|text| Some([automaton(&text, false)?, automaton(&text, true)?]));
        let Some([forward, reverse]) = automata else {
            return Some(dear(MAX_DEAR));
        };
        let parts = forward.get_nfa().states().len();
        self.bytes = self
            .bytes
            .checked_sub(forward.get_nfa().memory_usage() + reverse.get_nfa().memory_usage())?;
        // Some patterns are matched from the end of the text.
        let fits = self.fits(&forward, Anchored::No) && self.fits(&reverse, Anchored::Yes);
        let steps = (MIN_DEAR + parts / PARTS_A_STEP).min(MAX_DEAR);
        Some(if fits { 1 } else { dear(steps) })
    }

    /// True if all states of an automaton fit into its cache, as far as they may be followed.
    fn fits(&mut self, automaton: &DFA, anchored: Anchored) -> bool {
        let mut cache = automaton.create_cache();
        let input = Input::new("").anchored(anchored);
        let Ok(start) = automaton.start_state_forward(&mut cache, &input) else {
            return false;
        };
        let classes = automaton.byte_classes().representatives(0..=u8::MAX);
        let bytes: Vec<u8> = classes.filter_map(|class| class.as_u8()).collect();
        let (mut known, mut open) = (FastSet::from_iter([start]), vec![start]);
        let mut left = self.transitions.min(PATTERN_TRANSITIONS);
        self.transitions -= left;
        while let Some(state) = open.pop() {
            let Some(rest) = left.checked_sub(bytes.len()) else {
                return false;
            };
            left = rest;
            for byte in &bytes {
                match automaton.next_state(&mut cache, state, *byte) {
                    Ok(next) if next.is_dead() => {}
                    Ok(next) if !next.is_quit() => {
                        if known.insert(next) {
                            open.push(next);
                        }
                    }
                    Ok(_) | Err(_) => return false,
                }
            }
        }
        self.transitions += left;
        true
    }
}

/// The engine's automaton of a pattern, whose cache is as large as the engine's and is never
/// emptied.
fn automaton(text: &str, reverse: bool) -> Option<DFA> {
    let cache = DFA::config()
        .cache_capacity(PATTERN_BYTES)
        .minimum_cache_clear_count(Some(0));
    let parts = thompson::Config::new()
        .nfa_size_limit(Some(PATTERN_BYTES))
        .reverse(reverse);
    DFA::builder()
        .configure(cache)
        .thompson(parts)
        .build(text)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_with_few_states_are_cheap() {
        for cheap in [
            "^[a-z]+$",
            r"^\d{4}-\d{2}-\d{2}$",
            r"^\S+@\S+\.\S+$",
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
            "^[A-Za-z0-9_.-]{1,1000}$",
            "^[^<>]{1,256}$",
            "^.{1,500}$",
            "^(a+)+$",
            r"\p{L}+",
        ] {
            assert_eq!(PatternCosts::default().steps(cheap), Some(1), "{cheap}");
        }
        for dear in [
            "[ab]*a[ab]{14}c$|x",
            "[ab]*a[ab]{2000}c$|x",
            // The same from the end of a text.
            "(c|x)[abc]{14}a[abc]*$",
            "(?=a)b",
        ] {
            let steps = PatternCosts::default().steps(dear);
            assert!(steps >= Some((BYTES_A_STEP * MIN_DEAR) as u64), "{dear}");
        }
    }
}
