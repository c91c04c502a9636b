//! Bounds the cost of a schema: a graph of its subschemas, a bound on their expansion, and a
//! budgeted count of the steps of validating one value (B23).
//!
//! The validator has no budget of its own: a schema of 2 KiB can make it work for hours. Two
//! factors multiply: references that expand in place (`allOf` twice the next, 26 times), and
//! references that branch at every level of the value. The first is bounded when the schema is
//! read. The second depends on the value and is counted per value, unless the product of both sizes
//! is harmless anyway.

mod case_variant;
mod graph;
mod member_names;

use serde_json::Value;

use crate::pattern_cost::BYTES_A_STEP;
use crate::unusable::UnusableSchema;
use graph::{SchemaGraph, SchemaNode, UNIQUE_STEPS};

/// Values in a schema.
const MAX_NODES: usize = 5_000;
/// Levels of JSON in a schema: 32 schemas, each with its keyword.
const MAX_LEVELS: usize = 64;
/// Schemas that one value may be validated against.
const MAX_EXPANSIONS: u64 = 10_000;
/// Schemas in the longest chain for one value.
const MAX_CHAIN: u32 = 128;
/// Steps of one validation: each takes about a tenth of a microsecond, so this is well under 5 ms.
const BUDGET: u64 = 20_000;
/// Steps of one validation for every value in the arguments, if that is more: a plain schema is
/// checked however long a list is.
const STEPS_PER_VALUE: u64 = 16;
/// Steps of reporting mismatches: each copies a value into an error, at about a fortieth of a
/// microsecond for every value in it.
const REPORT_BUDGET: u64 = 100_000;
/// Steps of making and keeping an error, for any value.
const STEPS_PER_ERROR: u64 = 400;
/// Schemas and values entered at once: bounds the stack of this count and of the validator alike.
const MAX_DEPTH: u32 = 256;

/// The shape of a usable schema.
#[derive(Debug)]
pub(super) struct SchemaShape {
    nodes: Vec<SchemaNode>,
    /// The nodes that lead to names among those for the whole value.
    root: Vec<usize>,
    /// Steps for one value at most, if references neither branch nor come back: then no count is
    /// needed.
    steps: Option<u64>,
}

impl SchemaShape {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// The obstacle to using it.
    pub(super) fn of(schema: &Value) -> Result<Self, UnusableSchema> {
        bound(schema)?;
        let mut nodes = SchemaGraph::read(schema)?;
        member_names::gather(&mut nodes);
        let here = GraphExpansion::along(&nodes, |node| node.same_value.clone())?;
        if here.steps.iter().any(|steps| *steps > MAX_EXPANSIONS) {
            return Err(UnusableSchema::TooManyExpansions);
        }
        if here.longest > MAX_CHAIN {
            return Err(UnusableSchema::TooDeep);
        }
        let all = GraphExpansion::along(&nodes, SchemaNode::all).ok();
        let is_plain = |node: &SchemaNode| !node.looks_again && !node.has_dear_pattern();
        let tame = |all: &GraphExpansion| all.longest <= MAX_CHAIN && nodes.iter().all(is_plain);
        let steps = all.filter(tame).and_then(|all| all.steps.first().copied());
        let root = member_names::all_here(&nodes, vec![0]);
        Ok(Self { nodes, root, steps })
    }

    /// True if the validators of clients can use the schema ([`SchemaNode::is_for_clients`]).
    pub(super) fn is_for_clients(&self) -> bool {
        self.nodes.iter().all(|node| node.is_for_clients)
    }

    /// True if a value of `length` bytes of JSON can be validated within the budget.
    pub(super) fn is_affordable(&self, value: &Value, length: usize) -> bool {
        // Every value takes at least two bytes, except for the outermost.
        let values = length as u64 / 2 + 1;
        if self
            .steps
            .is_some_and(|steps| steps.saturating_mul(values) <= BUDGET)
        {
            return true;
        }
        // The budget grows with the value, so that a long list evades no check.
        let left = BUDGET.max(self::values(value, values).saturating_mul(STEPS_PER_VALUE));
        StepCounter {
            nodes: &self.nodes,
            left,
            gathered: false,
        }
        .count_steps(0, value, 0, true)
    }

    /// True if the mismatches of a value that [`Self::is_affordable`] can be reported within the
    /// budget. The validator stops at the first few errors, except for alternatives: it gathers
    /// every error of every alternative first.
    pub(super) fn is_reportable(&self, value: &Value) -> bool {
        !self.nodes.iter().any(|node| node.gathers)
            || StepCounter {
                nodes: &self.nodes,
                left: REPORT_BUDGET,
                gathered: true,
            }
            .count_steps(0, value, 0, false)
    }
}

/// Bounds the text: number of values and nesting.
fn bound(schema: &Value) -> Result<(), UnusableSchema> {
    let mut nodes = 0;
    let mut open = vec![(schema, 0)];
    while let Some((value, level)) = open.pop() {
        nodes += 1;
        if nodes > MAX_NODES {
            return Err(UnusableSchema::TooManyNodes);
        }
        if level > MAX_LEVELS {
            return Err(UnusableSchema::TooDeep);
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => {
                open.extend(members.values().map(|member| (member, level + 1)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// Values in a value, as far as `most` of them.
fn values(value: &Value, most: u64) -> u64 {
    let (mut count, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        count += 1;
        if count >= most {
            break;
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
}

/// The unfolding of a graph without circles into a tree.
struct GraphExpansion {
    /// Steps in the tree below each node, the node's own included.
    steps: Vec<u64>,
    /// Nodes on the longest way down.
    longest: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum VisitMark {
    New,
    Open,
    Done,
}

impl GraphExpansion {
    /// Follows the edges that `next` gives, each node once.
    ///
    /// # Errors
    ///
    /// There is a circle.
    fn along(
        nodes: &[SchemaNode],
        next: impl Fn(&SchemaNode) -> Vec<usize>,
    ) -> Result<Self, UnusableSchema> {
        let mut steps = vec![0u64; nodes.len()];
        let mut height = vec![0u32; nodes.len()];
        let mut marks = vec![VisitMark::New; nodes.len()];
        for root in 0..nodes.len() {
            let mut path = vec![root];
            while let Some(&at) = path.last() {
                match marks[at] {
                    VisitMark::New => {
                        marks[at] = VisitMark::Open;
                        for below in next(&nodes[at]) {
                            match marks[below] {
                                VisitMark::New => path.push(below),
                                VisitMark::Open => return Err(UnusableSchema::EndlessReference),
                                VisitMark::Done => {}
                            }
                        }
                    }
                    VisitMark::Open => {
                        let below = next(&nodes[at]);
                        let sum = below
                            .iter()
                            .fold(0u64, |sum, at| sum.saturating_add(steps[*at]));
                        steps[at] = sum.saturating_add(nodes[at].weight);
                        height[at] = below.iter().map(|at| height[*at]).max().unwrap_or(0) + 1;
                        marks[at] = VisitMark::Done;
                        path.pop();
                    }
                    VisitMark::Done => {
                        path.pop();
                    }
                }
            }
        }
        Ok(Self {
            steps,
            longest: height.into_iter().max().unwrap_or(0),
        })
    }
}

/// Counts the steps of a validation that never takes a short cut, until the budget is spent.
struct StepCounter<'a> {
    nodes: &'a [SchemaNode],
    left: u64,
    /// True to count only the steps below alternatives.
    gathered: bool,
}

/// Steps of matching a text with patterns that take so many for [`BYTES_A_STEP`] bytes.
fn pattern_steps(patterns: u64, text: &str) -> u64 {
    patterns.saturating_mul((text.len() / BYTES_A_STEP) as u64 + 1)
}

impl StepCounter<'_> {
    /// Takes steps from the budget; false if it has fewer.
    fn take(&mut self, steps: u64) -> bool {
        let rest = self.left.checked_sub(steps);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    fn count_steps(&mut self, at: usize, value: &Value, depth: u32, counts: bool) -> bool {
        let node = &self.nodes[at];
        let size = match value {
            Value::String(text) => text.len() / BYTES_A_STEP,
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        let cost = match (self.gathered, counts) {
            (true, true) => STEPS_PER_ERROR.saturating_add(values(value, self.left)),
            (true, false) => 0,
            (false, _) => {
                let unique = if node.unique {
                    UNIQUE_STEPS.saturating_mul(values(value, self.left))
                } else {
                    0
                };
                let patterns = match value {
                    Value::String(text) => pattern_steps(node.text_patterns, text),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => 0,
                };
                node.weight
                    .saturating_add(patterns)
                    .saturating_add(size as u64)
                    .saturating_add(unique)
            }
        };
        if depth > MAX_DEPTH || !self.take(cost) {
            return false;
        }
        let (counts, depth) = (counts || self.gathered && node.gathers, depth + 1);
        // `unevaluated...` validates each member against all schemas here once more.
        let rounds = if node.looks_again { size + 1 } else { 1 };
        let here = (0..rounds).all(|_| {
            node.same_value
                .iter()
                .all(|next| self.count_steps(*next, value, depth, counts))
        });
        here && match value {
            Value::Array(items) => items.iter().enumerate().all(|(index, item)| {
                let place = node.places.get(index).copied().or(node.rest);
                place
                    .iter()
                    .chain(&node.items)
                    .all(|next| self.count_steps(*next, item, depth, counts))
            }),
            Value::Object(members) => members.iter().all(|(key, member)| {
                let keyed = node.keyed.get(key.as_str()).copied().or(node.others);
                let patterns = node.key_patterns.saturating_mul(node.key_rounds());
                let steps = pattern_steps(patterns, key);
                // A name is hashed, too.
                let steps = steps.saturating_add((key.len() / BYTES_A_STEP) as u64);
                let matched = self.gathered || self.take(steps);
                let names = node.names.is_none_or(|next| {
                    self.count_steps(next, &Value::String(key.clone()), depth, counts)
                });
                matched
                    && names
                    && keyed
                        .iter()
                        .chain(&node.members)
                        .all(|next| self.count_steps(*next, member, depth, counts))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
}
