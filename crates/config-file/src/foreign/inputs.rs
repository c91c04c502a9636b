//! `inputs`: values that a person enters, as in files of VS Code.

use std::collections::HashMap;
use std::fmt;

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
use crate::env::Environment;
use crate::env::reference::{EnvReference, ReferenceError, ReferenceSyntax, TextPiece, pieces};

/// The key at the top of a file.
pub const KEY: &str = "inputs";

/// A value that a person enters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputVariable {
    /// The id that servers refer to.
    pub id: String,
    /// The text of the question.
    pub description: Option<String>,
    /// True for a secret: typed characters are not shown.
    pub is_secret: bool,
    /// The value of an empty answer.
    pub default: Option<String>,
    /// The values to choose from. An empty list allows any value.
    pub choices: Vec<String>,
    /// True if a command of the editor gives the value.
    pub is_command: bool,
    /// The line of its entry.
    pub line: u32,
}

impl InputVariable {
    /// Returns the environment variable that sets it: `WEIR_INPUT_` and the id in capitals.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(&self.id)
    }
}

/// Returns the variable of the input with this id.
pub fn variable(id: &str) -> String {
    let id = id.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    });
    std::iter::once("WEIR_INPUT_".to_owned())
        .chain(id.map(String::from))
        .collect()
}

/// The source of the values of inputs, after the environment.
#[derive(Clone, Copy, Default)]
pub enum InputSource<'a> {
    /// No source: an input without a variable is an error.
    #[default]
    Unavailable,
    /// A placeholder value, for a config that is only checked.
    StandIn,
    /// A prompt at the first load. It returns `None` without a terminal.
    Prompt(&'a (dyn Fn(&InputVariable) -> Option<String> + Send + Sync)),
}

impl std::fmt::Debug for InputSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "Nothing",
            Self::StandIn => "StandIn",
            Self::Prompt(_) => "Prompt",
        })
    }
}

/// Parses the inputs of a map of a file, which is at `place`.
pub fn parse(
    place: &ConfigPath,
    entries: &[(String, ConfigNode)],
    report: &mut ConfigReport,
) -> Vec<InputVariable> {
    let Some((_, node)) = entries.iter().find(|(key, _)| key == KEY) else {
        return Vec::new();
    };
    let place = place.key(KEY);
    let NodeValue::List(items) = &node.value else {
        let problem =
            ConfigProblem::error(place, format!("expected a list, found {}", node.kind()));
        report.add(ConfigProblem {
            line: Some(node.line),
            ..problem
        });
        return Vec::new();
    };
    let mut inputs = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let text = |key: &str| {
            item.find(&ConfigPath::root().key(key))
                .and_then(ConfigNode::as_text)
                .map(str::to_owned)
        };
        let Some(id) = text("id") else {
            let problem = ConfigProblem::error(place.key(n), "has no `id`");
            report.add(ConfigProblem {
                line: Some(item.line),
                ..problem.hint("write id: api-key")
            });
            continue;
        };
        let is_secret = item
            .find(&ConfigPath::at("password"))
            .is_some_and(|node| matches!(node.value, NodeValue::Bool(true)));
        inputs.push(InputVariable {
            id,
            description: text("description"),
            is_secret,
            default: text("default"),
            choices: choices(item),
            is_command: text("type").as_deref() == Some("command"),
            line: item.line,
        });
    }
    inputs
}

/// Returns the options of a choice: texts, or maps with a `value`.
fn choices(item: &ConfigNode) -> Vec<String> {
    let Some(ConfigNode {
        value: NodeValue::List(options),
        ..
    }) = item.find(&ConfigPath::at("options"))
    else {
        return Vec::new();
    };
    let text = |option: &ConfigNode| {
        option
            .as_text()
            .or_else(|| option.find(&ConfigPath::at("value"))?.as_text())
            .map(str::to_owned)
    };
    options.iter().filter_map(text).collect()
}

/// The sources of the values of inputs.
pub struct InputSources<'a> {
    /// The environment variables.
    pub environment: Environment<'a>,
    /// The source of values that no variable has.
    pub source: InputSource<'a>,
    /// Values that a person entered, by the ids of the inputs, kept for the next load.
    pub entered: &'a mut HashMap<String, String>,
}

impl fmt::Debug for InputSources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputSources").finish_non_exhaustive()
    }
}

/// The values of the inputs, or the reason for a missing one.
pub(crate) type InputAnswers = HashMap<String, Result<String, ReferenceError>>;

/// Returns the values of the inputs that the tree refers to.
pub fn answers(
    inputs: &[InputVariable],
    tree: &ConfigNode,
    sources: &mut InputSources<'_>,
    report: &mut ConfigReport,
) -> InputAnswers {
    let (environment, source) = (sources.environment, sources.source);
    let mut used = Vec::new();
    references(tree, &mut used);
    let mut answers = HashMap::new();
    for (n, input) in inputs
        .iter()
        .enumerate()
        .filter(|(_, input)| used.contains(&input.id))
    {
        let mut say = |message: String| {
            let problem = ConfigProblem::note(ConfigPath::at(KEY).key(n), message);
            report.add(ConfigProblem {
                line: Some(input.line),
                ..problem
            });
        };
        let known =
            environment(&input.variable()).or_else(|| sources.entered.get(&input.id).cloned());
        let answer = match (known, source) {
            (Some(known), _) => Ok(known),
            (None, _) if input.is_command => Err("a command of the editor gives it"),
            (None, InputSource::StandIn) => {
                say(format!(
                    "`{}` is asked for at the start; without a terminal the variable {} gives its value",
                    input.id,
                    input.variable()
                ));
                let choice = || input.choices.first().cloned();
                Ok(input
                    .default
                    .clone()
                    .or_else(choice)
                    .unwrap_or_else(|| "input".to_owned()))
            }
            (None, InputSource::Prompt(ask)) => ask(input).map_or_else(
                || default_answer(input, "the prompt at the terminal got no answer", &mut say),
                Ok,
            ),
            (None, InputSource::Unavailable) => {
                default_answer(input, "there is no terminal for a prompt", &mut say)
            }
        };
        if let (Ok(text), InputSource::Prompt(_)) = (&answer, source) {
            sources.entered.insert(input.id.clone(), text.clone());
        }
        let bad = |why| ReferenceError::Unanswered(input.id.clone(), input.variable(), why);
        answers.insert(input.id.clone(), answer.map_err(bad));
    }
    answers
}

/// Returns the value of an input without an answer: its default, unless it is a secret.
fn default_answer(
    input: &InputVariable,
    why: &'static str,
    say: &mut dyn FnMut(String),
) -> Result<String, &'static str> {
    let default = input.default.clone().filter(|_| !input.is_secret);
    if default.is_some() {
        say(format!(
            "`{}` uses its default, because {why}; the variable {} gives it another value",
            input.id,
            input.variable()
        ));
    }
    default.ok_or(why)
}

/// Collects the ids of the inputs that the texts of a tree refer to.
pub fn references(node: &ConfigNode, found: &mut Vec<String>) {
    match &node.value {
        NodeValue::Text(text) => {
            for piece in pieces(&text.text, ReferenceSyntax::Servers).unwrap_or_default() {
                if let TextPiece::Reference(EnvReference::Input(id)) = piece {
                    found.push(id.to_owned());
                }
            }
        }
        NodeValue::List(items) => items.iter().for_each(|item| references(item, found)),
        NodeValue::Map(entries) => entries
            .iter()
            .for_each(|(_, entry)| references(entry, found)),
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_) => {}
    }
}
