//! The text of a policy file, and complaints about it with the line, the message and a remedy.

use cedar_policy::{ParseErrors, PolicySet};
use miette::Diagnostic;

use crate::rules::cedar_schema::is_annotation;
use crate::rules::rule_texts::{MAX_LEVELS, RuleText};

/// An error or a warning about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDiagnostic {
    /// The line in the text, from 1, if it is known.
    pub line: Option<u32>,
    /// The message, for people.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
    /// True for a warning: the rules are valid.
    pub is_warning: bool,
}

/// The text of a policy file, for complaints with their lines.
pub(super) struct PolicySource<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    /// The line number of the first line, from 1.
    pub(super) first: u32,
    /// The offsets of its line ends, computed once for many lookups.
    ends: Vec<usize>,
}

impl<'t> PolicySource<'t> {
    pub(super) fn new(name: &'t str, text: &'t str, first: u32) -> Self {
        let ends = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        Self {
            name,
            text,
            first,
            ends,
        }
    }

    pub(super) fn parse(&self) -> Result<PolicySet, Vec<PolicyDiagnostic>> {
        self.text.parse().map_err(|errors: ParseErrors| {
            errors.iter().map(|error| self.complaint(error)).collect()
        })
    }

    /// Returns the syntax errors of all rules. Cedar's parser stops at the first rule with one.
    pub(super) fn syntax_errors(&self, rules: &[RuleText]) -> Vec<PolicyDiagnostic> {
        let ends = rules.iter().skip(1).map(|next| next.start);
        let mut all = Vec::new();
        for (rule, end) in rules.iter().zip(ends.chain([self.text.len()])) {
            let lines = self.ends.partition_point(|end| *end < rule.start);
            let first = self.first + u32::try_from(lines).unwrap_or(u32::MAX - self.first);
            let own = Self::new(self.name, &self.text[rule.start..end], first);
            all.extend(own.parse().err().into_iter().flatten());
        }
        all
    }

    /// A complaint about the text as a whole.
    pub(super) fn whole(&self, message: impl Into<String>) -> PolicyDiagnostic {
        PolicyDiagnostic {
            line: None,
            message: message.into(),
            hint: None,
            is_warning: false,
        }
    }

    /// The complaints of the parser or the validator, in the order of the text. A rule is checked
    /// for tools, prompts and resources: a fault at one position is reported once.
    pub(super) fn complaints<'a>(
        &self,
        errors: impl Iterator<Item = &'a dyn Diagnostic>,
    ) -> Vec<PolicyDiagnostic> {
        let place = |error: &dyn Diagnostic| Some(error.labels()?.next()?.offset());
        let mut all: Vec<_> = errors
            .map(|error| (place(error), error.to_string(), error))
            .collect();
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        all.dedup_by(|a, b| a.0.is_some() && a.0 == b.0);
        all.into_iter()
            .map(|(_, _, error)| self.complaint(error))
            .collect()
    }

    pub(super) fn complaint(&self, error: &dyn Diagnostic) -> PolicyDiagnostic {
        let label = error.labels().and_then(|mut labels| labels.next());
        let message = error.to_string();
        // A rule's own number has no meaning for its author; the line does.
        let own = message
            .split_once(", ")
            .filter(|(head, _)| head.starts_with("for policy `policy"));
        let mut message = own.map(|(_, rest)| rest.to_owned()).unwrap_or(message);
        if let Some(about) = label
            .as_ref()
            .and_then(|label| label.label())
            .filter(|about| !message.contains(about))
        {
            message = format!("{message}: {about}");
        }
        let hint = annotation_hint(&message).or_else(|| error.help().map(|help| help.to_string()));
        PolicyDiagnostic {
            line: label.map(|label| self.line(label.offset())),
            message: message.replace('\n', " "),
            hint: hint.map(|hint| hint.replace('\n', " ")),
            is_warning: false,
        }
    }

    /// The line number of an offset.
    pub(super) fn line(&self, offset: usize) -> u32 {
        let lines = self.ends.partition_point(|end| *end < offset);
        self.first
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX))
    }

    /// The complaints about rules that a thread could not parse or evaluate.
    pub(super) fn too_deep(&self, rules: &[RuleText]) -> Vec<PolicyDiagnostic> {
        let deep = rules.iter().filter(|rule| rule.levels > MAX_LEVELS);
        let complaint = |rule: &RuleText| {
            PolicyDiagnostic {
            line: Some(self.line(rule.start)),
            hint: Some(
                "instead of a chain of `||`, write [\"ada\", \"ben\"].contains(principal.subject) or \
                 principal in Group::\"staff\", or split the rule"
                    .to_owned(),
            ),
            ..self.whole(format!(
                "this rule has {} levels, more than {MAX_LEVELS}: each bracket and each operator \
                 of a chain is one",
                rule.levels
            ))
        }
        };
        deep.map(complaint).collect()
    }
}

/// The advice on a rule that reads an annotation of tools without a test for its presence. Cedar
/// suggests an attribute with a similar name.
fn annotation_hint(message: &str) -> Option<String> {
    let name = message.strip_prefix("attribute `")?.split('`').next()?;
    is_annotation(name)
        .then(|| format!("only a tool may have it: write `resource has {name} && resource.{name}`"))
}
