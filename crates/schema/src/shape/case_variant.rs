//! Arguments that differ from the names of members in a schema in case alone.
//!
//! A server that matches names without regard to case takes `Path` for `path`, and the last of both
//! may win: then the server does not use the value that was checked. So a property that equals a
//! named one under simple case folding, and is not named itself, does not match, at every level at
//! which the schema names properties.

use serde_json::Value;
use weir_wire::case_folding::folded;

use crate::mismatch::Mismatch;
use crate::shape::SchemaShape;
use crate::shape::member_names::all_here;
use crate::unreadable::push;

impl SchemaShape {
    /// The first property of an affordable value that differs in case alone from one that the
    /// schema names there.
    pub(crate) fn case_variant(&self, value: &Value) -> Option<Mismatch> {
        let mut pointer = String::new();
        let name = self.variant_in(&self.root, value, &mut pointer)?;
        let text = format!(
            "a name that differs from {name:?} in case alone: send one of the schema's own names"
        );
        Some(Mismatch::at(&pointer, &text))
    }

    /// True if the schema names the member that these steps lead to.
    pub(crate) fn names(&self, steps: &[&str]) -> bool {
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
