//! The syntax of regular expressions in schemas: that of ECMA-262 with the flag `u`, which the
//! validators of clients compile them with. One of another dialect, such as `(?P<year>\d+)` or
//! `\@`, makes such a client refuse the whole list of tools.

use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

use unicode_ident::{is_xid_continue, is_xid_start};

use crate::unicode_property::is_property;

/// The nesting of groups that is followed. A deeper pattern counts as valid.
const MAX_DEPTH: usize = 128;

/// True for a regular expression of ECMA-262 in Unicode mode.
pub(super) fn is_ecma_pattern(pattern: &str) -> bool {
    let mut parser = PatternParser {
        rest: pattern.chars().peekable(),
        groups: 0,
        names: HashSet::new(),
        highest_reference: 0,
        named_references: Vec::new(),
        is_too_deep: false,
    };
    let is_whole = parser.alternatives(0).is_some() && parser.rest.peek().is_none();
    parser.is_too_deep
        || is_whole
            && parser.highest_reference <= parser.groups
            && parser
                .named_references
                .iter()
                .all(|name| parser.names.contains(name))
}

/// The parser. Each function reads one part of the grammar; no value means that there is none.
struct PatternParser<'a> {
    rest: Peekable<Chars<'a>>,
    groups: u32,
    names: HashSet<String>,
    highest_reference: u32,
    named_references: Vec<String>,
    /// True if groups were nested too deeply, and the rest was not read.
    is_too_deep: bool,
}

/// An element of a character class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassElement {
    Character(u32),
    /// Several characters, such as `\w`: no end of a range.
    Set,
}

impl PatternParser<'_> {
    fn take(&mut self, expected: char) -> bool {
        self.rest.next_if_eq(&expected).is_some()
    }

    /// Terms up to the end of the pattern or of the group.
    fn alternatives(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            self.is_too_deep = true;
            return None;
        }
        while let Some(&next) = self.rest.peek() {
            if next == ')' {
                break;
            }
            self.term(depth)?;
        }
        Some(())
    }

    fn term(&mut self, depth: usize) -> Option<()> {
        let is_repeatable = match self.rest.next()? {
            '|' | '^' | '$' => false,
            '(' => self.group(depth)?,
            '[' => self.class()?,
            '\\' => self.escape()?,
            '*' | '+' | '?' | '{' | '}' | ']' | ')' => return None,
            _ => true,
        };
        let is_repeated = match self.rest.peek() {
            Some('*' | '+' | '?') => self.rest.next().is_some(),
            Some('{') => self.bounds()?,
            _ => return Some(()),
        };
        // The lazy form.
        self.take('?');
        (is_repeatable && is_repeated).then_some(())
    }

    /// `{n}`, `{n,}` or `{n,m}`.
    fn bounds(&mut self) -> Option<bool> {
        self.rest.next();
        let least = self.digits()?;
        let most = if self.take(',') { self.digits() } else { None };
        let is_ordered = most.is_none_or(|most| least <= most);
        (self.take('}') && is_ordered).then_some(true)
    }

    /// A decimal number; a very large one as the largest that there is.
    fn digits(&mut self) -> Option<u64> {
        let mut number = None;
        while let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(10)) {
            self.rest.next();
            let before: u64 = number.unwrap_or(0);
            number = Some(before.saturating_mul(10).saturating_add(digit.into()));
        }
        number
    }

    /// A group or an assertion about what follows or precedes. True if it may be repeated.
    fn group(&mut self, depth: usize) -> Option<bool> {
        let mut is_repeatable = true;
        if self.take('?') {
            match self.rest.next()? {
                ':' => {}
                '=' | '!' => is_repeatable = false,
                '<' if matches!(self.rest.peek(), Some('=' | '!')) => {
                    self.rest.next();
                    is_repeatable = false;
                }
                '<' => {
                    // Engines before ES2025 refuse the same name in two alternatives, too.
                    let name = self.name()?;
                    if !self.names.insert(name) {
                        return None;
                    }
                    self.groups += 1;
                }
                _ => return None,
            }
        } else {
            self.groups += 1;
        }
        self.alternatives(depth + 1)?;
        self.take(')').then_some(is_repeatable)
    }

    /// The name of a group, behind its `<`: an identifier, whose characters may be escaped.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            let next = match self.rest.next()? {
                '>' => return (!name.is_empty()).then_some(name),
                '\\' => self
                    .take('u')
                    .then(|| self.unicode())?
                    .and_then(char::from_u32)?,
                other => other,
            };
            let is_of_name = matches!(next, '$' | '_')
                || is_xid_start(next)
                || !name.is_empty()
                    && (is_xid_continue(next) || matches!(next, '\u{200c}' | '\u{200d}'));
            if !is_of_name {
                return None;
            }
            name.push(next);
        }
    }

    /// An escape outside of a class. True if it may be repeated.
    fn escape(&mut self) -> Option<bool> {
        match *self.rest.peek()? {
            'b' | 'B' => {
                self.rest.next();
                return Some(false);
            }
            '1'..='9' => {
                let reference = u32::try_from(self.digits()?).unwrap_or(u32::MAX);
                self.highest_reference = self.highest_reference.max(reference);
            }
            'k' => {
                self.rest.next();
                let name = self.take('<').then(|| self.name())??;
                self.named_references.push(name);
            }
            _ => {
                self.character_escape(false)?;
            }
        }
        Some(true)
    }

    /// The rest of an escape of one character, or of a set of them.
    fn character_escape(&mut self, is_in_class: bool) -> Option<ClassElement> {
        let code = match self.rest.next()? {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => return Some(ClassElement::Set),
            'p' | 'P' => return self.property(),
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'v' => 0x0b,
            'b' if is_in_class => 0x08,
            'c' => {
                let letter = self.rest.next_if(char::is_ascii_alphabetic)?;
                u32::from(letter) % 32
            }
            '0' => match self.rest.peek() {
                Some('0'..='9') => return None,
                _ => 0,
            },
            'x' => self.hex(2)?,
            'u' => self.unicode()?,
            '-' if is_in_class => u32::from('-'),
            other if r"^$\.*+?()[]{}|/".contains(other) => u32::from(other),
            _ => return None,
        };
        Some(ClassElement::Character(code))
    }

    /// `\p{...}`.
    fn property(&mut self) -> Option<ClassElement> {
        if !self.take('{') {
            return None;
        }
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '}' => return is_property(&text).then_some(ClassElement::Set),
                next => text.push(next),
            }
        }
    }

    fn hex(&mut self, count: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..count {
            code = code * 16 + self.rest.next()?.to_digit(16)?;
        }
        Some(code)
    }

    /// `\uXXXX`, a pair of them, or `\u{X}`.
    fn unicode(&mut self) -> Option<u32> {
        if !self.take('{') {
            return self.code_unit();
        }
        let mut code: u32 = self.rest.next()?.to_digit(16)?;
        while let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(16)) {
            self.rest.next();
            code = code.saturating_mul(16).saturating_add(digit);
        }
        (self.take('}') && code <= 0x10_ffff).then_some(code)
    }

    /// `XXXX`, and the second half of a surrogate pair if it follows.
    fn code_unit(&mut self) -> Option<u32> {
        let first = self.hex(4)?;
        let behind_first = self.rest.clone();
        if (0xd800..0xdc00).contains(&first)
            && self.take('\\')
            && self.take('u')
            && let Some(second @ 0xdc00..0xe000) = self.hex(4)
        {
            return Some(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00));
        }
        self.rest = behind_first;
        Some(first)
    }

    /// A character class, behind its `[`. True: it may be repeated.
    fn class(&mut self) -> Option<bool> {
        self.take('^');
        loop {
            if self.take(']') {
                return Some(true);
            }
            let first = self.class_element()?;
            if !self.take('-') {
                continue;
            }
            if self.rest.peek() == Some(&']') {
                continue;
            }
            let last = self.class_element()?;
            match (first, last) {
                (ClassElement::Character(first), ClassElement::Character(last))
                    if first <= last => {}
                (_, _) => return None,
            }
        }
    }

    fn class_element(&mut self) -> Option<ClassElement> {
        match self.rest.next()? {
            '\\' => self.character_escape(true),
            other => Some(ClassElement::Character(u32::from(other))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_of_ecma_262_in_unicode_mode_are_valid() {
        for good in [
            "",
            "^[a-z]+$",
            r"^\d{4}-\d{2,}-\d{2,3}?$",
            r"^(?=.*\d)(?!x)(?<=a)(?<!b).{8,}$",
            r"(?<year>\d+)\k<year>(a)\2",
            r"[\w.-]+@[^\s\-]+[-]?[a\]\b\x41-\u{1F600}]",
            r"\p{L}\P{Script=Greek}[\p{Lu}_]\cA\0\/\.\u00e9|",
            "a||b",
            "[]",
            "[^]",
            "é",
            r"(?:a|b)*?",
            r"[\ud83d\ude00-\ud83d\ude4f]",
            r"[\ud83d-\ude00]\ud83d\u{1f600}",
            r"(?<\u0061>x)\k<a>(?<a\u{62}>x)(?<\ud835\udc9c>x)",
            r"(?<a·>x)(?<a‿b>x)(?<$é1>x)",
        ] {
            assert!(is_ecma_pattern(good), "{good}");
        }
        for bad in [
            r"(?P<year>\d+)",
            "(?i)a",
            r"\A\d+\Z",
            r"\@",
            r"\-",
            r"\_",
            r"[\w-.]",
            "[z-a]",
            "[a",
            "(a",
            "a)",
            "a**",
            "*a",
            "a{",
            "{1}",
            "a{2,1}",
            "a]",
            "}",
            "^*",
            r"\b+",
            "(?=a)*",
            "(?>a)",
            r"\1",
            r"\k<a>",
            r"\01",
            r"\xg0",
            r"\u{110000}",
            r"[\ud83d\ude00-\ud83d]",
            r"(?<·a>x)",
            r"(?<\u0031>x)",
            r"(?<a\x62>x)",
            r"(?<a\ud83d>x)",
            r"(?<a>x)(?<a>y)",
            r"(?<a>x)|(?<a>y)",
            r"\p{}",
            r"\p{Han}",
            r"[\p{Alnum}_]",
            r"\p{L",
            r"\pL",
            r"\",
            "[[:alpha:]-9]]",
        ] {
            assert!(!is_ecma_pattern(bad), "{bad}");
        }
        assert!(is_ecma_pattern(&"(".repeat(1000)), "not followed so deep");
    }
}
