//! The names of members in a schema, and arguments that differ from them in case alone.
//!
//! A server that matches names without regard to case takes `Path` for `path`, and the last of both
//! may win: then the server does not use the value that was checked. So a property that equals a
//! named one under simple case folding, and is not named itself, does not match, at every level at
//! which the schema names properties.

use std::fmt;

use jsonschema::Validator;
use serde_json::Value;
use weir_wire::case_folding::folded;

use super::super::compile::patterns;
use super::super::mismatch::Mismatch;
use super::super::unreadable::push;
use super::SchemaShape;
use super::graph::SchemaNode;

/// A pattern of members' names, matched by the validator's own engine.
pub(super) struct MemberPattern {
    text: String,
    /// Absent until it is needed, and for a pattern that cannot be used: such a schema is not used
    /// either.
    validator: Option<Validator>,
}

impl MemberPattern {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            validator: None,
        }
    }

    fn compile(&mut self) {
        let schema = serde_json::json!({ "pattern": self.text });
        self.validator = jsonschema::options()
            .with_pattern_options(patterns())
            .build(&schema)
            .ok();
    }

    fn fits(&self, name: &str) -> bool {
        self.validator
            .as_ref()
            .is_none_or(|validator| validator.is_valid(&Value::from(name)))
    }
}

impl fmt::Debug for MemberPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Gathers the names of each node, and marks the nodes that lead to names.
pub(super) fn gather(nodes: &mut [SchemaNode]) {
    for node in &mut *nodes {
        node.folded = node
            .keyed
            .keys()
            .chain(&node.named)
            .map(|name| (folded(name), name.clone()))
            .collect();
        node.leads_to_names = !node.folded.is_empty();
    }
    // Backwards along the edges, each node once.
    let mut before = vec![Vec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        node.all()
            .into_iter()
            .for_each(|next| before[next].push(at));
    }
    let mut open: Vec<usize> = (0..nodes.len())
        .filter(|at| nodes[*at].leads_to_names)
        .collect();
    while let Some(at) = open.pop() {
        for from in &before[at] {
            if !std::mem::replace(&mut nodes[*from].leads_to_names, true) {
                open.push(*from);
            }
        }
    }
    // Patterns that lead to no names are not asked.
    let leads: Vec<bool> = nodes.iter().map(|node| node.leads_to_names).collect();
    for node in nodes {
        node.patterned.retain(|(_, next)| leads[*next]);
        node.patterned
            .iter_mut()
            .for_each(|(pattern, _)| pattern.compile());
    }
}

impl SchemaNode {
    fn is_named(&self, key: &str) -> bool {
        self.keyed.contains_key(key) || self.named.contains(key)
    }

    /// The schemas of the member of this name.
    fn of_member(&self, key: &str) -> impl Iterator<Item = usize> {
        let keyed = self.keyed.get(key).copied();
        let patterned = self
            .patterned
            .iter()
            .filter(|(pattern, _)| pattern.fits(key))
            .map(|(_, next)| *next);
        let others = [self.others, self.unevaluated]
            .into_iter()
            .flatten()
            .filter(move |_| keyed.is_none());
        keyed.into_iter().chain(patterned).chain(others)
    }

    /// The schemas of the item at this position.
    fn of_item(&self, place: usize) -> impl Iterator<Item = usize> {
        self.places
            .get(place)
            .copied()
            .or(self.rest)
            .into_iter()
            .chain(self.items.iter().copied())
    }
}

impl SchemaShape {
    /// The first property of an affordable value that differs in case alone from one that the
    /// schema names there.
    pub(in super::super) fn case_variant(&self, value: &Value) -> Option<Mismatch> {
        let mut pointer = String::new();
        let name = self.variant_in(&self.root, value, &mut pointer)?;
        let text = format!(
            "a name that differs from {name:?} in case alone: send one of the schema's own names"
        );
        Some(Mismatch::at(&pointer, &text))
    }

    /// True if the schema names the member that these steps lead to.
    pub(in super::super) fn names(&self, steps: &[&str]) -> bool {
        let Some((last, outer)) = steps.split_last() else {
            return false;
        };
        let at = outer.iter().fold(self.root.clone(), |here, step| {
            let place = step.parse::<usize>().ok();
            let next = here.iter().flat_map(|at| {
                let node = &self.nodes[*at];
                node.of_member(step)
                    .chain(place.into_iter().flat_map(|place| node.of_item(place)))
            });
            all_here(&self.nodes, next.collect())
        });
        at.iter().any(|at| self.nodes[*at].is_named(last))
    }

    /// The name that a member, at any level of the value, differs from in case alone; `pointer`
    /// leads to that member then. `here` are the value's nodes that lead to names.
    fn variant_in(&self, here: &[usize], value: &Value, pointer: &mut String) -> Option<String> {
        if here.is_empty() {
            return None;
        }
        match value {
            Value::Object(members) => members.iter().find_map(|(key, member)| {
                if let Some(name) = self.variant_of(here, key) {
                    push(pointer, key);
                    return Some(name.to_owned());
                }
                has_parts(member).then(|| {
                    let next = here
                        .iter()
                        .flat_map(|at| self.nodes[*at].of_member(key))
                        .collect();
                    self.variant_below(key, next, member, pointer)
                })?
            }),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .filter(|(_, item)| has_parts(item))
                .find_map(|(place, item)| {
                    let next = here
                        .iter()
                        .flat_map(|at| self.nodes[*at].of_item(place))
                        .collect();
                    self.variant_below(&place.to_string(), next, item, pointer)
                }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// The same for a member or an item, at the end of `step`; `at` are its first nodes.
    fn variant_below(
        &self,
        step: &str,
        at: Vec<usize>,
        value: &Value,
        pointer: &mut String,
    ) -> Option<String> {
        let before = pointer.len();
        push(pointer, step);
        let name = self.variant_in(&all_here(&self.nodes, at), value, pointer);
        if name.is_none() {
            pointer.truncate(before);
        }
        name
    }

    fn variant_of(&self, here: &[usize], key: &str) -> Option<&str> {
        if here.iter().any(|at| self.nodes[*at].is_named(key)) {
            return None;
        }
        let key = folded(key);
        here.iter()
            .find_map(|at| self.nodes[*at].folded.get(&key))
            .map(String::as_str)
    }
}

/// True of an object and an array.
fn has_parts(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// The nodes of a value that lead to names, each once; `at` are the first of them.
pub(super) fn all_here(nodes: &[SchemaNode], at: Vec<usize>) -> Vec<usize> {
    let mut here: Vec<usize> = Vec::with_capacity(at.len());
    let mut met = VisitedNodes::default();
    let mut open = at;
    while let Some(at) = open.pop() {
        let node = &nodes[at];
        if node.leads_to_names && met.insert(at, &here) {
            here.push(at);
            open.extend(&node.same_value);
        }
    }
    here
}

/// The set of visited nodes: searched one by one while they are few.
#[derive(Default)]
struct VisitedNodes(std::collections::HashSet<usize>);

impl VisitedNodes {
    const FEW: usize = 16;

    /// Adds a node that is not among `few`, the list of all so far; false if it is there already.
    fn insert(&mut self, at: usize, few: &[usize]) -> bool {
        if few.len() < Self::FEW {
            return !few.contains(&at);
        }
        if self.0.is_empty() {
            self.0.extend(few);
        }
        self.0.insert(at)
    }
}
