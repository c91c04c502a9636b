//! Drivers of foreign clients that run one scenario after another, each with a client of its own.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::foreign_peers::DriverEvents;

/// Drivers that wait for their next scenario, by program. They end with their standard input, when
/// the test process ends.
static WAITING: Mutex<Vec<(Vec<String>, ClientDriver)>> = Mutex::new(Vec::new());

/// A running driver.
pub struct ClientDriver {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Reads standard error to its end, so that the driver never waits for a reader.
    stderr: JoinHandle<String>,
}

impl ClientDriver {
    /// Runs a scenario in a waiting driver, or in a new one; returns if it succeeded, the events,
    /// and the driver's standard error. A driver whose scenario failed has ended.
    pub fn attempt(program: &[String], scenario: &[String]) -> (bool, DriverEvents, String) {
        let waiting = {
            let mut waiting = WAITING.lock();
            let found = waiting.iter().position(|(of, _)| of == program);
            found.map(|index| waiting.swap_remove(index).1)
        };
        let mut driver = waiting.unwrap_or_else(|| Self::start(program));
        writeln!(driver.stdin, "{}", json!(scenario))
            .unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let mut seen = Vec::new();
        let mut line = String::new();
        while driver.stdout.read_line(&mut line).unwrap() > 0 {
            match serde_json::from_str::<Value>(&line) {
                Ok(told) if told["event"] == "done" => {
                    WAITING.lock().push((program.to_vec(), driver));
                    return (true, DriverEvents(seen), String::new());
                }
                Ok(told) => seen.push(told),
                Err(_) => {}
            }
            line.clear();
        }
        driver.child.wait().unwrap();
        (false, DriverEvents(seen), driver.stderr.join().unwrap())
    }

    fn start(program: &[String]) -> Self {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg("-");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let (stdin, stdout) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let mut told = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut all = Vec::new();
            told.read_to_end(&mut all).unwrap();
            String::from_utf8_lossy(&all).into_owned()
        });
        Self {
            child,
            stdin,
            stdout,
            stderr,
        }
    }
}
