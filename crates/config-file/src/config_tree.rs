//! A config file as a tree of values with their lines.
//!
//! All later code names values by path (`upstreams.files.url`). Only the tree knows lines. YAML is
//! parsed once, with budgets that stop an alias bomb or a giant file early. JSON with comments and
//! TOML have readers of their own.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::budget::BudgetBreach;

use crate::config_report::{ConfigPath, ConfigProblem};

/// The largest config in bytes. Configs are written by people: 500 upstreams with every key spelled
/// out stay far below it.
pub(crate) const MAX_BYTES: usize = 4 << 20;
const MAX_NODES: usize = 50_000;
const MAX_DEPTH: usize = 32;
const MAX_ALIASES: usize = 1000;

/// A value and its line.
#[derive(Clone, Debug)]
pub struct ConfigNode {
    /// The line in the file, from 1.
    pub line: u32,
    /// The value.
    pub value: NodeValue,
}

/// A value as YAML resolves it.
#[derive(Clone, Debug)]
pub enum NodeValue {
    /// A key without a value, `~` or `null`.
    Null,
    /// A text whose reference has no value. The error is already reported.
    Unset,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A text.
    Text(NodeText),
    /// A list.
    List(Vec<ConfigNode>),
    /// A map, with its keys in the order of the file.
    Map(Vec<(String, ConfigNode)>),
}

/// A text.
#[derive(Clone, Debug)]
pub struct NodeText {
    /// The text, with the values of its references.
    pub text: String,
    /// True if it has a value from the environment; messages then never repeat it.
    pub from_env: bool,
}

impl ConfigNode {
    /// Creates a text on a line.
    pub fn text(line: u32, text: impl Into<String>) -> Self {
        Self {
            line,
            value: NodeValue::Text(NodeText {
                text: text.into(),
                from_env: false,
            }),
        }
    }

    /// Returns the text of this value, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let NodeValue::Text(text) = &self.value {
            Some(&text.text)
        } else {
            None
        }
    }

    /// Returns the entries of this value, or an empty slice if it is not a map.
    pub fn entries(&self) -> &[(String, Self)] {
        if let NodeValue::Map(entries) = &self.value {
            entries
        } else {
            &[]
        }
    }

    /// Parses a YAML document. An empty one becomes an empty map.
    ///
    /// # Errors
    /// The text is not YAML, more than one document, or beyond a budget.
    pub fn parse(text: &str) -> Result<Self, ConfigProblem> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_events: 2 * MAX_NODES,
                max_depth: MAX_DEPTH,
                max_aliases: MAX_ALIASES,
                max_anchors: MAX_ALIASES,
                max_documents: 1,
                max_total_scalar_bytes: MAX_BYTES,
                max_recorded_anchor_events: MAX_NODES,
                max_recorded_anchor_bytes: MAX_BYTES,
            },
            // Without this, YAML 1.1 booleans such as `off`, `y` and `no` would not stay words.
            strict_booleans: true,
            // No key has such a number. As a text it is refused with its path.
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
            with_snippet: false,
        };
        match serde_saphyr::from_str_with_options::<Option<Spanned<NodeValue>>>(text, options) {
            Ok(Some(root)) => Ok(Self::from(root)),
            Ok(None) => Ok(Self {
                line: 1,
                value: NodeValue::Map(Vec::new()),
            }),
            Err(error) => Err(syntax(&error)),
        }
    }

    /// Returns the value under a path.
    pub fn find(&self, path: &ConfigPath) -> Option<&Self> {
        path.segments()
            .try_fold(self, |node, segment| match &node.value {
                NodeValue::Map(entries) => entries
                    .iter()
                    .find(|(key, _)| key == segment)
                    .map(|(_, node)| node),
                NodeValue::List(items) => segment
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index)),
                NodeValue::Null
                | NodeValue::Unset
                | NodeValue::Bool(_)
                | NodeValue::Integer(_)
                | NodeValue::Float(_)
                | NodeValue::Text(_) => None,
            })
    }

    /// Returns the line of the nearest existing value on a path.
    pub fn line_of(&self, path: &ConfigPath) -> u32 {
        (0..=path.depth())
            .rev()
            .find_map(|n| self.find(&path.first(n)))
            .map_or(self.line, |node| node.line)
    }

    /// Removes a value from its map. If the value is inside a list, the whole list is removed, so
    /// that the indexes of its other items keep their meaning. Returns false if there is no such
    /// value.
    pub fn remove(&mut self, path: &ConfigPath) -> bool {
        let mut node = self;
        for (n, segment) in path.segments().enumerate() {
            let NodeValue::Map(entries) = &mut node.value else {
                return false;
            };
            let Some(at) = entries.iter().position(|(key, _)| key == segment) else {
                return false;
            };
            let last = n + 1 == path.depth() || !matches!(entries[at].1.value, NodeValue::Map(_));
            if last {
                entries.remove(at);
                return true;
            }
            node = &mut entries[at].1;
        }
        false
    }

    /// Leaves out a value in a list: an item becomes unset, so that the others keep their positions,
    /// and an entry of a map is removed. Returns false, without a change, for a path that leads
    /// through no list.
    pub(crate) fn leave_out_of_list(&mut self, path: &ConfigPath) -> bool {
        let mut node = self;
        let mut is_in_list = false;
        let last = path.depth().saturating_sub(1);
        for (n, segment) in path.segments().enumerate() {
            match &mut node.value {
                NodeValue::Map(entries) => {
                    let Some(at) = entries.iter().position(|(key, _)| key == segment) else {
                        return false;
                    };
                    if n == last && is_in_list {
                        entries.remove(at);
                        return true;
                    }
                    node = &mut entries[at].1;
                }
                NodeValue::List(items) => {
                    let index = segment.parse::<usize>().ok();
                    let Some(item) = index.and_then(|index| items.get_mut(index)) else {
                        return false;
                    };
                    is_in_list = true;
                    node = item;
                    if n == last {
                        let is_set = !matches!(node.value, NodeValue::Unset);
                        node.value = NodeValue::Unset;
                        return is_set;
                    }
                }
                NodeValue::Null
                | NodeValue::Unset
                | NodeValue::Bool(_)
                | NodeValue::Integer(_)
                | NodeValue::Float(_)
                | NodeValue::Text(_) => return false,
            }
        }
        false
    }

    /// Collects the paths of the unset items of all lists.
    pub(crate) fn unset_items(&self, path: &ConfigPath, found: &mut Vec<ConfigPath>) {
        match &self.value {
            NodeValue::Map(entries) => {
                for (key, entry) in entries {
                    entry.unset_items(&path.key(key), found);
                }
            }
            NodeValue::List(items) => {
                for (n, item) in items.iter().enumerate() {
                    if matches!(item.value, NodeValue::Unset) {
                        found.push(path.key(n));
                    }
                    item.unset_items(&path.key(n), found);
                }
            }
            NodeValue::Null
            | NodeValue::Unset
            | NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_) => {}
        }
    }

    /// Returns the kind of value, in words for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            NodeValue::Null | NodeValue::Unset => "nothing",
            NodeValue::Bool(_) => "true or false",
            NodeValue::Integer(_) | NodeValue::Float(_) => "a number",
            NodeValue::Text(_) => "a string",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a map",
        }
    }
}

impl From<Spanned<NodeValue>> for ConfigNode {
    fn from(spanned: Spanned<NodeValue>) -> Self {
        Self {
            line: u32::try_from(spanned.referenced.line()).unwrap_or(u32::MAX),
            value: spanned.value,
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the reader has many errors, and two need a text of weir's own"
)]
fn syntax(error: &serde_saphyr::Error) -> ConfigProblem {
    let line = error.location().map_or(0, |location| location.line());
    let mut cause = error.without_snippet();
    while let serde_saphyr::Error::AliasError { error, .. } = cause {
        cause = error.without_snippet();
    }
    let message = match cause {
        // The reader's own text advises its callers, and not the author of the file.
        serde_saphyr::Error::NullIntoString { .. } => {
            "a key is null, which is no string: put it in quotes".to_owned()
        }
        serde_saphyr::Error::Budget { breach, .. } => match breach {
            BudgetBreach::Documents { .. } => {
                "there is more than one YAML document in the file".to_owned()
            }
            breach => format!(
                "the file exceeds the limits of a config: {}",
                excess(breach)
            ),
        },
        _ => syntax_message(error),
    };
    let mut problem = ConfigProblem::error(ConfigPath::root(), message);
    problem.line = u32::try_from(line).ok().filter(|&line| line > 0);
    problem
}

/// The reader's text of an error, without what is reported in weir's own format or is no matter of
/// the file.
fn syntax_message(error: &serde_saphyr::Error) -> String {
    let options = serde_saphyr::render_options! { snippets: serde_saphyr::SnippetMode::Off };
    let text = error.render_with_options(options);
    let text = text
        .split(" at line ")
        .next()
        .unwrap_or(&text)
        .trim_end_matches(|c: char| c == ',' || c.is_whitespace());
    let text = text
        .split(", set DuplicateKeyPolicy")
        .next()
        .unwrap_or(text);
    format!("this is not valid YAML or JSON: {text}")
}

/// The limit of a config that a file exceeds, in the author's terms.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the reader has limits that it leaves off or that a small file cannot reach"
)]
fn excess(breach: &BudgetBreach) -> &'static str {
    match breach {
        BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => {
            "more than 1000 anchors or aliases"
        }
        BudgetBreach::RecordedAnchorEvents { .. } | BudgetBreach::RecordedAnchorBytes { .. } => {
            "its aliases repeat too many values"
        }
        BudgetBreach::Depth { .. } => "more than 32 maps and lists in each other",
        BudgetBreach::MergeKeys { .. } => "too many merge keys (`<<`)",
        _ => "more than 50000 values, or too much text",
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeValueVisitor)
    }
}

struct NodeValueVisitor;

impl<'de> Visitor<'de> for NodeValueVisitor {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_none<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NodeValue, E> {
        // No setting has values in that range. As a float, the number is refused like any other
        // that is too large.
        Ok(i64::try_from(value).map_or(NodeValue::Float(value as f64), NodeValue::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeValue, E> {
        Ok(NodeValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(NodeText {
            text: value.to_owned(),
            from_env: false,
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NodeValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<NodeValue>>()? {
            items.push(ConfigNode::from(item));
        }
        Ok(NodeValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeValue, A::Error> {
        let mut entries: Vec<(String, ConfigNode)> = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = u32::try_from(key.referenced.line()).unwrap_or(u32::MAX);
            let key = key.value;
            if entries.iter().any(|(other, _)| *other == key) {
                return Err(de::Error::custom(format_args!(
                    "key `{key}` appears twice in one map"
                )));
            }
            let mut node = ConfigNode::from(map.next_value::<Spanned<NodeValue>>()?);
            if matches!(node.value, NodeValue::Map(_) | NodeValue::List(_)) {
                // A block begins on the line of its first entry, but the line of its key is more
                // useful in messages.
                node.line = line;
            }
            entries.push((key, node));
        }
        Ok(NodeValue::Map(entries))
    }
}
