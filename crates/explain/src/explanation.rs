//! The answer: its steps in the order of a call's path.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The answer to an operator's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The path of the endpoint.
    pub endpoint: String,
    /// The tool as named in the question.
    pub tool: String,
    /// The principal of the sender, if it can be determined.
    pub principal: Option<String>,
    /// True if the tool is in the sender's list.
    pub(crate) listed: bool,
    /// True if a call would be made now.
    pub callable: bool,
    /// False if no running weir was queried. Upstreams are then assumed to be up, and limits
    /// unused.
    pub live: bool,
    /// The steps: causes first, in the order of the path; then notes; then steps that pass.
    pub(crate) steps: Vec<ExplanationStep>,
}

/// One step of a call's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplanationStep {
    /// The name of the step, from a small, fixed set.
    pub(crate) stage: String,
    pub(crate) effect: StepEffect,
    /// The explanation in plain words.
    pub text: String,
}

/// The effect of a step on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepEffect {
    /// The tool is not in the list, and a call of it is refused too.
    Hides,
    /// It is in the list, but a call is refused.
    Refuses,
    /// Neither, but worth a note.
    Notes,
    /// The call passes.
    Passes,
}

impl StepEffect {
    /// Reports if no call gets past it.
    pub(crate) fn stops(self) -> bool {
        matches!(self, Self::Hides | Self::Refuses)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, tool, .. } = self;
        let who = self.principal.as_deref().unwrap_or("this sender");
        let (word, what) = match (self.listed, self.callable) {
            (_, true) => ("Yes", "is in the list, and a call would be made"),
            (true, false) => ("No", "is in the list, but a call would be refused"),
            (false, false) => ("No", "is not in the list, and a call would be refused"),
        };
        writeln!(f, "{word}: `{tool}` on {endpoint} {what}, for {who}.")?;
        if !self.live {
            writeln!(
                f,
                "From the config alone: upstreams are assumed to be up and to have the tool, and limits to be unused."
            )?;
        }
        let part = |f: &mut fmt::Formatter<'_>, title: &str, fits: &dyn Fn(StepEffect) -> bool| {
            let mut steps = self
                .steps
                .iter()
                .filter(|step| fits(step.effect))
                .peekable();
            if steps.peek().is_some() {
                writeln!(f, "\n{title}")?;
            }
            steps.try_for_each(|step| writeln!(f, "  {:<11} {}", step.stage, step.text))
        };
        part(f, "Causes, the first one first:", &StepEffect::stops)?;
        part(f, "Notes:", &|effect| effect == StepEffect::Notes)?;
        part(f, "Passed:", &|effect| effect == StepEffect::Passes)
    }
}
