//! The rules of a text, found before it is parsed: where each begins, and how deep it is. The
//! parser, the validator and the evaluator recurse for each level, so a rule without a bound on its
//! depth could exhaust the stack of a thread, which ends the process.

/// The greatest depth of a rule.
pub(super) const MAX_LEVELS: usize = 64;
/// The depth that every thread has room for.
const PLAIN_LEVELS: usize = 12;
/// The stack for deeper rules: several times what they need in a build without optimization.
const STACK_BYTES: usize = 32 << 20;

/// Runs work on rules; with deep ones on a stack with room for them.
pub(super) fn with_stack<R>(has_deep_rules: bool, work: impl FnOnce() -> R) -> R {
    match has_deep_rules {
        true => stacker::grow(STACK_BYTES, work),
        false => work(),
    }
}

/// One rule of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuleText {
    /// The offset of its first word.
    pub(super) start: usize,
    /// Its depth. A bracket is a level, and so is each `||`, `&&` or other operator around an
    /// expression: the first expression of a chain of operators is the deepest.
    pub(super) levels: usize,
}

impl RuleText {
    /// True if not every thread has room for it.
    pub(super) fn is_deep(&self) -> bool {
        self.levels > PLAIN_LEVELS
    }
}

/// The rules of a text, in its order. The text need not be valid.
pub(super) fn rule_texts(text: &str) -> Vec<RuleText> {
    let mut rules = Vec::new();
    let mut tokens = CedarTokens { text, at: 0 };
    while let Some((start, mut token)) = tokens.next() {
        let mut depth = RuleDepth::default();
        while token != ";" {
            depth.take(token);
            let Some((_, next)) = tokens.next() else {
                break;
            };
            token = next;
        }
        let levels = depth.total();
        rules.push(RuleText { start, levels });
    }
    rules
}

/// The depth of what stands between two brackets, as far as it is read.
#[derive(Default)]
struct BracketDepth {
    /// The deepest of the earlier items of a list.
    items: usize,
    /// The number of `||` and `if`.
    ors: usize,
    /// The deepest of the operands of `||`.
    or_operand: usize,
    /// The number of `&&` in the current operand of `||`.
    ands: usize,
    /// The deepest of the operands of `&&`.
    and_operand: usize,
    /// The number of other operators in the current operand of `&&`.
    others: usize,
    /// The deepest bracket in it.
    bracket: usize,
}

impl BracketDepth {
    fn end_and_operand(&mut self) {
        self.and_operand = self.and_operand.max(self.others + self.bracket);
        (self.others, self.bracket) = (0, 0);
    }

    fn end_or_operand(&mut self) {
        self.end_and_operand();
        self.or_operand = self.or_operand.max(self.ands + self.and_operand);
        (self.ands, self.and_operand) = (0, 0);
    }

    fn end_item(&mut self) {
        self.end_or_operand();
        self.items = self.items.max(self.ors + self.or_operand);
        (self.ors, self.or_operand) = (0, 0);
    }
}

/// The open brackets of a rule, the outermost first.
#[derive(Default)]
struct RuleDepth {
    outer: BracketDepth,
    open: Vec<BracketDepth>,
}

impl RuleDepth {
    fn take(&mut self, token: &str) {
        let current = self.open.last_mut().unwrap_or(&mut self.outer);
        match token {
            "(" | "[" | "{" => self.open.push(BracketDepth::default()),
            ")" | "]" | "}" => self.close(),
            "," => current.end_item(),
            "||" | "if" => {
                current.end_or_operand();
                current.ors += 1;
            }
            // The conditions of a rule are one chain.
            "&&" | "when" | "unless" => {
                current.end_and_operand();
                current.ands += 1;
            }
            "." | "!" | "+" | "-" | "*" | "/" | "%" | "<" | ">" | "<=" | ">=" | "==" | "!="
            | "in" | "has" | "like" | "is" => current.others += 1,
            _ => {}
        }
    }

    fn close(&mut self) {
        if let Some(mut closed) = self.open.pop() {
            closed.end_item();
            let outer = self.open.last_mut().unwrap_or(&mut self.outer);
            outer.bracket = outer.bracket.max(closed.items + 1);
        }
    }

    /// The depth of the whole rule, also of one without its end.
    fn total(mut self) -> usize {
        while !self.open.is_empty() {
            self.close();
        }
        self.outer.end_item();
        self.outer.items
    }
}

/// The words, brackets, operators and separators of a text, with their offsets, without its
/// comments and strings.
struct CedarTokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for CedarTokens<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at;
            let rest = &self.text[start..];
            let first = rest.chars().next()?;
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (length, is_token) = if is_word(first) {
                (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true)
            } else if rest.starts_with("//") {
                (rest.find(['\n', '\r']).unwrap_or(rest.len()), false)
            } else if first == '"' {
                (string_length(rest), false)
            } else if ["||", "&&", "==", "!=", "<=", ">="]
                .iter()
                .any(|operator| rest.starts_with(operator))
            {
                (2, true)
            } else {
                (first.len_utf8(), first.is_ascii_punctuation())
            };
            self.at += length;
            if is_token {
                return Some((start, &rest[..length]));
            }
        }
    }
}

/// The length of the string at the start of a text, with its quotation marks.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(condition: &str) -> usize {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        rule_texts(&text)[0].levels
    }

    #[test]
    fn rules_begin_at_their_first_word_and_not_in_comments_or_strings() {
        let text = "// permit(principal, action, resource);\n@id(\"a;\\\"//;\")\npermit(principal, action, resource);\nforbid(principal, action, resource) // ; \n;\n// the end\n";
        let starts: Vec<&str> = rule_texts(text)
            .iter()
            .map(|rule| &text[rule.start..rule.start + 6])
            .collect();
        assert_eq!(starts, ["@id(\"a", "forbid"]);
        assert_eq!(rule_texts(""), []);
        assert_eq!(rule_texts("// permit;"), []);
    }

    #[test]
    fn levels_of_a_rule_are_counted_along_its_deepest_expression() {
        let plain = levels("true");
        for (condition, more) in [
            ("a || b", 1),
            ("a || b || c", 2),
            ("a && b || c && d || e && f", 3),
            ("a && b && c || d", 3),
            ("[a, b, c, d]", 1),
            ("[a, b || c, d]", 2),
            ("((a)) || b", 3),
            ("!(a)", 2),
            ("a.b.c == d", 3),
            ("if a then b else if c then d else e", 2),
            ("{a: {b: c}}", 2),
            ("principal.hasTag(\"|| && ((\")", 2),
            ("true } when { true } unless { true", 2),
        ] {
            assert_eq!(levels(condition), plain + more, "{condition}");
        }
        assert!(rule_texts(&"(".repeat(5000))[0].levels >= 5000, "no end");
    }
}
