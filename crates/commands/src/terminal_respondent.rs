//! Answers elicitation and sampling requests of servers at the terminal, in the middle of a
//! request.
//!
//! Without a terminal no capability is declared: see [`weir_terminal::can_ask`].

mod form_field;
mod keyboard;

use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use weir_wire::{Method, error_code};

use form_field::FormField;
use keyboard::KeyboardReader;
use weir_mcp_client::{Answering, DeclinedRequest, Respondent};
use weir_text::{one_line, plain};

/// The most characters that are shown of each message of a conversation.
const MAX_SHOWN_CHARS: usize = 2000;

/// The person at the terminal. Requests are answered one at a time.
#[derive(Debug, Default)]
pub(super) struct TerminalRespondent {
    keyboard: Mutex<KeyboardReader>,
}

impl Respondent for TerminalRespondent {
    fn capabilities(&self) -> Value {
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {} })
    }

    fn answer<'a>(&'a self, method: &'a str, params: &'a Value) -> Answering<'a> {
        Box::pin(async move {
            let mut keyboard = self.keyboard.lock().await;
            match Method::parse(method) {
                Some(Method::ElicitationCreate) if params["mode"] == "url" => {
                    Ok(confirm_url(&mut keyboard, params).await)
                }
                Some(Method::ElicitationCreate) => Ok(fill_form(&mut keyboard, params).await),
                Some(Method::SamplingCreateMessage) => answer_sampling(&mut keyboard, params).await,
                _ => {
                    let why = format!(
                        "the server asks for `{}`, which weir's commands do not have",
                        one_line(method)
                    );
                    Err(DeclinedRequest {
                        code: error_code::METHOD_NOT_FOUND,
                        why,
                    })
                }
            }
        })
    }
}

fn print_note(text: impl std::fmt::Display) {
    weir_terminal::note(text);
}

/// Returns the server's message. Its further lines are indented, so that a server cannot imitate a
/// line of weir.
fn message(params: &Value) -> String {
    plain(params["message"].as_str().unwrap_or_default()).replace('\n', "\n  | ")
}

/// Asks for every field of a form, then for consent to send it. The end of the input cancels.
async fn fill_form(keyboard: &mut KeyboardReader, params: &Value) -> Value {
    print_note(format_args!("\nThe server asks: {}", message(params)));
    let fields = FormField::of(&params["requestedSchema"]);
    if !fields.is_empty() {
        print_note("Enter takes the default or leaves out what is optional; Ctrl-D cancels.");
    }
    let mut content = Map::new();
    for field in &fields {
        loop {
            let Some(line) = keyboard.line(&field.prompt()).await else {
                return json!({ "action": "cancel" });
            };
            match field.read(&line) {
                Ok(Some(value)) => drop(content.insert(field.name.clone(), value)),
                Ok(None) => {}
                Err(why) => {
                    print_note(format_args!("  {why}"));
                    continue;
                }
            }
            break;
        }
    }
    match confirm(keyboard, "Send this answer? [Y/n] ", true).await {
        None => json!({ "action": "cancel" }),
        Some(false) => json!({ "action": "decline" }),
        Some(true) => json!({ "action": "accept", "content": content }),
    }
}

/// Asks for consent to open a page (URL elicitation). weir opens no page by itself.
async fn confirm_url(keyboard: &mut KeyboardReader, params: &Value) -> Value {
    print_note(format_args!("\nThe server asks: {}", message(params)));
    print_note(format_args!(
        "It asks you to open this page, which may ask for private data. Check its address first:"
    ));
    print_note(format_args!(
        "  {}",
        one_line(params["url"].as_str().unwrap_or_default())
    ));
    let action = match confirm(keyboard, "Will you open it? [y/N] ", false).await {
        None => "cancel",
        Some(false) => "decline",
        Some(true) => "accept",
    };
    json!({ "action": action })
}

/// Asks for a text that a model should write (sampling). A person may type it line by line. An
/// empty answer refuses.
async fn answer_sampling(
    keyboard: &mut KeyboardReader,
    params: &Value,
) -> Result<Value, DeclinedRequest> {
    print_note("\nThe server requests an answer from a model, and weir has no model. The request:");
    if let Some(system) = params["systemPrompt"].as_str() {
        print_note(format_args!("  system: {}", shortened(system)));
    }
    for message in params["messages"].as_array().into_iter().flatten() {
        let role = one_line(message["role"].as_str().unwrap_or("?"));
        for block in blocks(&message["content"]) {
            print_note(format_args!(
                "  {role}: {}",
                shortened(&super::content::show(block))
            ));
        }
    }
    print_note("Type an answer, and end it with an empty line. An empty answer declines.");
    let mut lines = Vec::new();
    while let Some(line) = keyboard
        .line("> ")
        .await
        .filter(|line| !line.trim().is_empty())
    {
        lines.push(line);
    }
    if lines.is_empty() {
        let why = "the person at the terminal did not answer for a model".to_owned();
        return Err(DeclinedRequest {
            code: error_code::USER_REJECTED,
            why,
        });
    }
    Ok(json!({
        "role": "assistant",
        "content": { "type": "text", "text": lines.join("\n") },
        "model": "typed-by-a-person",
        "stopReason": "endTurn",
    }))
}

fn blocks(content: &Value) -> &[Value] {
    match content.as_array() {
        Some(blocks) => blocks,
        None => std::slice::from_ref(content),
    }
}

fn shortened(text: &str) -> String {
    super::table::truncate(&plain(text), MAX_SHOWN_CHARS)
}

/// Asks for yes or no. Returns `None` at the end of the input.
async fn confirm(keyboard: &mut KeyboardReader, question: &str, default: bool) -> Option<bool> {
    loop {
        match keyboard
            .line(question)
            .await?
            .trim()
            .to_lowercase()
            .as_str()
        {
            "" => return Some(default),
            "y" | "yes" => return Some(true),
            "n" | "no" => return Some(false),
            _ => print_note("  write y or n; Ctrl-D cancels"),
        }
    }
}
