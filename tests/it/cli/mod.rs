//! The commands of weir as a person and a script use them, against weir and against servers without
//! it.

mod broken_team_file;
mod command_waits;
mod config_watch;
mod doctor;
mod error_advice;
mod list_commands;
mod serve_command;
mod terminal_questions;
mod tool_arguments;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::harness::{TEST_TIMEOUT, weir_binary};

/// The output of a command, and its exit code.
#[derive(Debug)]
struct CliOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl CliOutput {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Returns the lines of the error output, without the note that a command waits for a server,
    /// which it prints on a busy machine.
    fn error_lines(&self) -> Vec<&str> {
        let is_note = |line: &&str| line.contains(" has not answered yet: waiting for up to ");
        self.err.lines().filter(|line| !is_note(line)).collect()
    }
}

/// Runs a command without the environment variables of this machine that it reads.
fn weir(arguments: &[&str]) -> CliOutput {
    CliOutput::of(&command(arguments).output().unwrap())
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(weir_binary());
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("XDG_STATE_HOME", "/nonexistent/state");
    for name in ["WEIR_CONFIG", "WEIR_ADMIN", "WEIR_TOKEN", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command with this text on its standard input.
fn weir_with_input(arguments: &[&str], input: &str) -> CliOutput {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    CliOutput::of(&child.wait_with_output().unwrap())
}

/// Runs a command at a terminal with this typed input; returns the exit code and all that the
/// terminal shows. `script` (util-linux) provides the terminal.
fn at_terminal(setup: &str, arguments: &[&str], typed: &str) -> (Option<i32>, String) {
    let mut child = start_at_terminal(setup, arguments);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), screen_text(&output.stdout))
}

/// Runs a command at a terminal until all of these words are shown, and interrupts it there.
/// Returns the exit code and all that the terminal shows.
fn interrupted_at_terminal(
    setup: &str,
    arguments: &[&str],
    words: &[&str],
) -> (Option<i32>, String) {
    let mut child = start_at_terminal(setup, arguments);
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (parts, shown_parts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 1024];
        // The test may have ended.
        while let Ok(bytes @ 1..) = screen.read(&mut part)
            && parts.send(part[..bytes].to_vec()).is_ok()
        {}
    });
    let (mut shown, begin) = (Vec::new(), Instant::now());
    while !words
        .iter()
        .all(|words| screen_text(&shown).contains(words))
    {
        let Ok(part) = shown_parts.recv_timeout(TEST_TIMEOUT.saturating_sub(begin.elapsed()))
        else {
            // Twice: the first one may begin an end that waits.
            let _ended = keys.write_all(b"\x03\x03");
            panic!("{words:?} in {}", screen_text(&shown));
        };
        shown.extend(part);
    }
    keys.write_all(b"\x03").unwrap();
    shown.extend(shown_parts.iter().flatten());
    (child.wait().unwrap().code(), screen_text(&shown))
}

fn screen_text(shown: &[u8]) -> String {
    String::from_utf8_lossy(shown).replace('\r', "")
}

fn start_at_terminal(setup: &str, arguments: &[&str]) -> Child {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    let line = format!(
        // Ctrl-C also reaches a shell that waits for the program, and changes the exit code.
        "{setup} exec {} {}",
        quoted(&weir_binary().display().to_string()),
        words.join(" ")
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("XDG_STATE_HOME", "/nonexistent/state")
        .env("TERM", "xterm");
    script
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    script
        .spawn()
        .unwrap_or_else(|error| panic!("script (util-linux): {error}"))
}
