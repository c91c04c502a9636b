//! The answer: a step for each thing on the way, in the order in which a call meets them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an operator asked, answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) endpoint: String,
    /// As it was asked for.
    pub(crate) tool: String,
    /// Who it would be, where that can be said.
    pub(crate) principal: Option<String>,
    /// Whether the tool is in the sender's list.
    pub(crate) listed: bool,
    /// Whether a call would be made now.
    pub(crate) callable: bool,
    /// False: nothing was asked of a running weir; upstreams and limits are taken to be at their
    /// best.
    pub(crate) live: bool,
    /// Causes first, in the order of the way; then what is to be known; then what is as it should
    /// be.
    pub(crate) steps: Vec<Step>,
}

/// One thing on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Which: one of a small, fixed set of words.
    pub(crate) stage: String,
    pub(crate) effect: Effect,
    /// In plain words.
    pub(crate) text: String,
}

/// What a step makes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    /// The tool is not in the list, and a call of it is refused too.
    Hides,
    /// It is in the list, but a call is refused.
    Refuses,
    /// Nothing of both, but worth knowing.
    Notes,
    /// Nothing.
    Passes,
}

impl Effect {
    /// Whether no call gets past it.
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
                "By the config alone: upstreams are taken to be up and to have the tool, limits to be unused."
            )?;
        }
        let part = |f: &mut fmt::Formatter<'_>, title: &str, fits: &dyn Fn(Effect) -> bool| {
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
        part(f, "Why, the first cause first:", &Effect::stops)?;
        part(f, "To know:", &|effect| effect == Effect::Notes)?;
        part(f, "As it should be:", &|effect| effect == Effect::Passes)
    }
}
