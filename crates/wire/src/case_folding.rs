//! Unicode simple case folding: names that parsers without regard to case take for each other.
//!
//! A server that matches member names without regard to case takes `Name`, or `argument\u{17f}`
//! with a long s, for a member that was decided on under its exact name. Two names are the same to
//! such a parser if they are equal under simple case folding (the mappings C and S of Unicode's
//! `CaseFolding.txt`), which folds one character to one character.

/// Returns the representative of all characters that are equal to `character` under simple case
/// folding.
#[must_use]
pub fn fold(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    match character {
        // Its upper case is I, but it folds to itself alone.
        '\u{131}' => character,
        // Equal by a mapping of their own: neither has an upper case of one character.
        '\u{1fd3}' => '\u{390}',
        '\u{1fe3}' => '\u{3b0}',
        '\u{fb05}' => '\u{fb06}',
        _ => {
            let upper = single(character.to_uppercase(), character);
            single(upper.to_lowercase(), upper)
        }
    }
}

/// Returns the mapping's one character, or `same` if it maps to several: simple folding leaves
/// those alone.
fn single(mut mapped: impl ExactSizeIterator<Item = char>, same: char) -> char {
    if mapped.len() == 1 {
        mapped.next().unwrap_or(same)
    } else {
        same
    }
}

/// Returns the folded text. Two texts are equal under simple case folding exactly if their folded
/// texts are equal.
#[must_use]
pub fn folded(text: &str) -> String {
    text.chars().map(fold).collect()
}

/// Reports if two texts are equal under simple case folding.
#[must_use]
pub fn equal_folded(one: &str, other: &str) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    one.chars().map(fold).eq(other.chars().map(fold))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;
    use std::ops::RangeInclusive;

    use proptest::prelude::*;
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

    use super::*;

    /// Characters added by Unicode 17, which those tables do not have yet.
    const NEWER: [RangeInclusive<char>; 2] = ['\u{a7ce}'..='\u{a7d5}', '\u{16ea0}'..='\u{16ed3}'];

    /// The characters equal to one of these, by tables made from Unicode's own data.
    fn orbit(characters: impl IntoIterator<Item = char>) -> ClassUnicode {
        let mut class = ClassUnicode::new(
            characters
                .into_iter()
                .map(|character| ClassUnicodeRange::new(character, character)),
        );
        class.try_case_fold_simple().unwrap();
        class
    }

    #[test]
    fn folding_matches_unicode_tables() {
        let mut classes: BTreeMap<char, Vec<char>> = BTreeMap::new();
        for character in
            ('\0'..=char::MAX).filter(|one| !NEWER.iter().any(|newer| newer.contains(one)))
        {
            classes.entry(fold(character)).or_default().push(character);
        }
        let alone = || {
            classes
                .iter()
                .filter(|(_, class)| class.len() == 1)
                .map(|(_, class)| class[0])
        };
        assert!(classes.iter().all(|(stands, class)| class.contains(stands)));
        assert_eq!(
            orbit(alone()).ranges(),
            ClassUnicode::new(alone().map(|one| ClassUnicodeRange::new(one, one))).ranges()
        );
        let mut several = 0;
        for class in classes.values().filter(|class| class.len() > 1) {
            let equal: Vec<char> = orbit([class[0]])
                .iter()
                .flat_map(|range| range.start()..=range.end())
                .collect();
            assert_eq!(equal, *class);
            several += 1;
        }
        assert!(several > 1_300, "{several}");
    }

    #[test]
    fn the_letters_of_names_have_these_other_forms_and_no_others() {
        let forms = |letter: char| {
            ('\0'..=char::MAX)
                .filter(|other| fold(*other) == letter)
                .collect::<String>()
        };
        for letter in 'a'..='z' {
            let expected = match letter {
                'k' => "Kk\u{212a}".to_owned(),
                's' => "Ss\u{17f}".to_owned(),
                _ => format!("{}{letter}", letter.to_ascii_uppercase()),
            };
            assert_eq!(forms(letter), expected);
        }
        for sign in "_-./0123456789".chars() {
            assert_eq!(forms(sign), sign.to_string());
        }
    }

    proptest! {
        #[test]
        fn equal_texts_are_those_with_one_folded_form(one in ".{0,8}", other in ".{0,8}") {
            prop_assert_eq!(equal_folded(&one, &other), folded(&one) == folded(&other));
            let upper: String = one.chars().map(|c| single(c.to_uppercase(), c)).filter(|c| *c != 'I').collect();
            let plain: String = one.chars().filter(|c| !"iIı".contains(*c)).collect();
            let upper_of_plain: String = upper.chars().filter(|c| !"iIı".contains(*c)).collect();
            prop_assert!(equal_folded(&plain, &upper_of_plain));
        }
    }
}
