//! A calculator: `+ - * / ^`, parentheses and decimal numbers, evaluated while it is parsed.
//!
//! `^` binds tightest and to the right; a sign binds weaker than `^`, so `-2^2` is `-4` and `2^-1`
//! is `0.5`.

/// Longest expression, in bytes.
const MAX_LENGTH: usize = 1_000;
/// Deepest nesting of parentheses, signs and powers: each level costs a stack frame.
const MAX_DEPTH: usize = 64;

/// Returns the value of `expression`, or a sentence about the fault and its position.
pub(super) fn evaluate(expression: &str) -> Result<f64, String> {
    if expression.len() > MAX_LENGTH {
        return Err(format!("The expression is longer than {MAX_LENGTH} bytes."));
    }
    let mut parser = ExpressionParser {
        text: expression,
        at: 0,
        depth: 0,
    };
    let value = parser.sum()?;
    match parser.peek() {
        None if value.is_finite() => Ok(value),
        None => Err("The result is too large for this calculator.".to_owned()),
        Some(_) => Err(parser.unexpected("an operator or the end")),
    }
}

struct ExpressionParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl ExpressionParser<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut left = self.product()?;
        loop {
            if self.eat('+') {
                left += self.product()?;
            } else if self.eat('-') {
                left -= self.product()?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut left = self.signed()?;
        loop {
            if self.eat('*') {
                left *= self.signed()?;
            } else if self.eat('/') {
                let right = self.signed()?;
                if right == 0.0 {
                    return Err("Division by zero.".to_owned());
                }
                left /= right;
            } else {
                return Ok(left);
            }
        }
    }

    fn signed(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!(
                "The expression is nested deeper than {MAX_DEPTH} levels."
            ));
        }
        let value = if self.eat('-') {
            -self.signed()?
        } else if self.eat('+') {
            self.signed()?
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, String> {
        let base = self.operand()?;
        if !self.eat('^') {
            return Ok(base);
        }
        let power = base.powf(self.signed()?);
        if power.is_nan() {
            Err("A root of a negative number is not a real number.".to_owned())
        } else {
            Ok(power)
        }
    }

    fn operand(&mut self) -> Result<f64, String> {
        if self.eat('(') {
            let value = self.sum()?;
            return if self.eat(')') {
                Ok(value)
            } else {
                Err(self.unexpected("`)`"))
            };
        }
        self.number()
    }

    fn number(&mut self) -> Result<f64, String> {
        // Skips the white space before the number.
        self.peek();
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.unexpected("a number or `(`"));
        }
        let digits = &rest[..length];
        let value = digits
            .parse()
            .map_err(|_| format!("`{digits}` at position {} is not a number.", self.at + 1))?;
        self.at += length;
        Ok(value)
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn unexpected(&mut self, wanted: &str) -> String {
        match self.peek() {
            Some(found) => format!(
                "Unexpected `{found}` at position {}: expected {wanted}.",
                self.at + 1
            ),
            None => format!("The expression ends too early: expected {wanted}."),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn arithmetic_follows_the_usual_precedence() {
        for (expression, value) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("2^3^2", 512.0),
            ("-2^2", -4.0),
            ("2^-1", 0.5),
            ("7 - 2 - 1", 4.0),
            ("8 / 4 / 2", 1.0),
            (" .5 + 1. ", 1.5),
            ("--3", 3.0),
        ] {
            assert_eq!(evaluate(expression), Ok(value), "{expression}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_position() {
        for (expression, wanted) in [
            ("", "ends too early"),
            ("1 +", "ends too early"),
            ("(1", "expected `)`"),
            ("1 2", "`2` at position 3"),
            ("2 $ 3", "`$` at position 3"),
            ("1.2.3", "`1.2.3` at position 1"),
            ("1 / (2 - 2)", "Division by zero"),
            ("10^999", "too large"),
            ("(0-1)^0.5", "root of a negative"),
            ("né", "`n` at position 1"),
        ] {
            let error = evaluate(expression).unwrap_err();
            assert!(error.contains(wanted), "{expression}: {error}");
        }
    }

    #[test]
    fn nesting_and_length_are_bounded() {
        for expression in [
            "(".repeat(900),
            "-".repeat(900),
            "2^".repeat(450),
            "1".repeat(1_001),
        ] {
            assert!(evaluate(&expression).is_err());
        }
        assert_eq!(
            evaluate(&format!("{}1{}", "(".repeat(60), ")".repeat(60))),
            Ok(1.0)
        );
    }
}
