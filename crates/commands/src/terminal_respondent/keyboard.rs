//! Reads lines that a person types.

use std::io::stdin;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

/// Reads standard input line by line, each on request.
///
/// It uses a thread of its own: one of the runtime's would keep the process alive until the person
/// presses Enter.
#[derive(Debug, Default)]
pub(super) struct KeyboardReader {
    wanted: Option<Sender<oneshot::Sender<Option<String>>>>,
}

impl KeyboardReader {
    /// Shows the prompt and waits for a line. Returns it without its end, or `None` at the end of
    /// the input.
    pub(crate) async fn line(&mut self, prompt: &str) -> Option<String> {
        weir_terminal::prompt(prompt);
        let (answer, line) = oneshot::channel();
        self.wanted.get_or_insert_with(start).send(answer).ok()?;
        line.await.ok().flatten()
    }
}

fn start() -> Sender<oneshot::Sender<Option<String>>> {
    let (sender, wanted) = channel::<oneshot::Sender<Option<String>>>();
    // A thread that cannot start counts as the end of the input.
    let _thread = std::thread::Builder::new()
        .name("keyboard".to_owned())
        .spawn(move || {
            for answer in wanted {
                let mut line = String::new();
                let read = stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0);
                // The request may have been interrupted.
                let _gone =
                    answer.send(read.then(|| line.trim_end_matches(['\n', '\r']).to_owned()));
            }
        });
    sender
}
