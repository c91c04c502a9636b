//! Questions to a person at the terminal: the inputs of other programs' config files.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use weir_config_file::foreign::inputs::InputVariable;
use weir_text::one_line;

/// Ends of the input that are no answer: Ctrl-C and Ctrl-D.
const ABORTS: [u8; 2] = [0x03, 0x04];
const BACKSPACES: [u8; 2] = [0x08, 0x7f];
/// Ctrl-U takes back the whole line.
const KILL: u8 = 0x15;
/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Asks for the value of an input, until the answer is one of its choices. Returns `None` without a
/// terminal or an answer.
pub fn prompt_input(input: &InputVariable) -> Option<String> {
    loop {
        let line = ask(input)?;
        if line.is_empty() {
            return input.default.clone();
        }
        if let Some(answer) = answer(input, &line) {
            return Some(answer);
        }
        weir_terminal::note("that is none of the choices: type the number of one");
    }
}

/// Asks once, without echo for a secret. Returns `None` without a terminal or a line.
fn ask(input: &InputVariable) -> Option<String> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return None;
    }
    // Before the question: switching the echo off discards input, and an answer may come as soon as
    // the question is shown.
    let quiet = input
        .is_secret
        .then(|| EchoGuard::new(stdin.as_fd()).ok())
        .flatten();
    if input.is_secret && quiet.is_none() {
        // A secret is not asked for if the echo cannot be switched off.
        return None;
    }
    let _ = stderr.write_all(question(input).as_bytes());
    let _ = stderr.flush();
    let line = read_line(&mut stdin.lock().bytes().map_while(Result::ok));
    if quiet.is_some() {
        drop(quiet);
        let _ = stderr.write_all(b"\n");
    }
    line
}

/// Returns the text before the answer.
fn question(input: &InputVariable) -> String {
    let what = input.description.as_deref().unwrap_or(&input.id);
    let choices: String = input
        .choices
        .iter()
        .enumerate()
        .map(|(n, choice)| format!("  {}. {}\n", n + 1, one_line(choice)))
        .collect();
    let default = match input
        .default
        .as_deref()
        .filter(|default| !input.is_secret && !default.is_empty())
    {
        Some(default) => format!(" [{}]", one_line(default)),
        None => String::new(),
    };
    format!(
        "{choices}{} (`{}`){default}: ",
        one_line(what),
        one_line(&input.id)
    )
}

/// Returns the answer in an entered line: a choice by its number or its text, or any text without
/// choices. `None` for another text.
fn answer(input: &InputVariable, line: &str) -> Option<String> {
    if input.choices.is_empty() {
        return Some(line.to_owned());
    }
    let number = line.parse::<usize>().ok();
    let numbered = number.and_then(|n| input.choices.get(n.checked_sub(1)?));
    let named = || input.choices.iter().find(|choice| *choice == line);
    numbered.or_else(named).cloned()
}

/// Reads up to the end of the line. Returns `None` if the input ended or was interrupted.
fn read_line(bytes: &mut dyn Iterator<Item = u8>) -> Option<String> {
    let mut line = Vec::new();
    for byte in bytes {
        match byte {
            b'\n' | b'\r' => return String::from_utf8(line).ok(),
            byte if ABORTS.contains(&byte) => return None,
            byte if BACKSPACES.contains(&byte) => {
                // A character may have several bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            KILL => line.clear(),
            byte if line.len() < MAX_ANSWER_BYTES => line.push(byte),
            _ => return None,
        }
    }
    None
}

/// A terminal without echo, until this is dropped. Ctrl-C is read like any key, so that the
/// terminal is always brought back.
struct EchoGuard<'a> {
    terminal: std::os::fd::BorrowedFd<'a>,
    before: Termios,
}

impl<'a> EchoGuard<'a> {
    fn new(terminal: std::os::fd::BorrowedFd<'a>) -> nix::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_flags &= !(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG);
        tcsetattr(terminal, SetArg::TCSAFLUSH, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoGuard<'_> {
    fn drop(&mut self) {
        // Input after the answer is kept for the next question.
        let _ = tcsetattr(self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> Option<String> {
        read_line(&mut bytes.iter().copied())
    }

    #[test]
    fn line_editing_keys_work() {
        assert_eq!(line(b"secret\nmore"), Some("secret".to_owned()));
        assert_eq!(line("aä\u{7f}b\r".as_bytes()), Some("ab".to_owned()));
        assert_eq!(line(b"abc\x15d\n"), Some("d".to_owned()));
        assert_eq!(line(b"abc\x03"), None);
        assert_eq!(line(b"abc"), None, "the input ended");
    }

    #[test]
    fn an_answer_is_a_choice_by_number_or_text() {
        let choices = ["one", "two"].map(str::to_owned).to_vec();
        let input = InputVariable {
            id: "a".to_owned(),
            choices,
            default: Some("two".to_owned()),
            ..InputVariable::default()
        };
        assert_eq!(answer(&input, "1"), Some("one".to_owned()));
        assert_eq!(answer(&input, "two"), Some("two".to_owned()));
        for other in ["9", "0", "three"] {
            assert_eq!(answer(&input, other), None, "{other}");
        }
        let free = InputVariable::default();
        assert_eq!(answer(&free, "9"), Some("9".to_owned()));
        assert_eq!(question(&input), "  1. one\n  2. two\na (`a`) [two]: ");
        let hostile = InputVariable {
            id: "a\u{1b}[2J".to_owned(),
            ..InputVariable::default()
        };
        assert!(!question(&hostile).contains('\u{1b}'));
    }
}
