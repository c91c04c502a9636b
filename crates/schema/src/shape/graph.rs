//! Reads a schema into a graph: its subschemas, and the edges from a value's schemas to those of
//! its parts.

use std::collections::HashMap;

use foldhash::{HashMap as FastMap, HashSet as FastSet};
use serde_json::{Map, Value};

use crate::dialect::is_metaschema;
use crate::ecma_pattern::is_ecma_pattern;
use crate::member_pattern::MemberPattern;
use crate::pattern_cost::PatternCosts;
use crate::unusable::UnusableSchema;

/// Steps of copying and hashing one value, for `uniqueItems`.
pub(super) const UNIQUE_STEPS: u64 = 8;

/// One subschema. Edges are places in the list of nodes; the root is the first.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    /// Own steps: its keywords, and the values that they list.
    pub(super) weight: u64,
    /// Further schemas for the same value.
    pub(super) same_value: Vec<usize>,
    /// True if `unevaluated...` makes it look again.
    pub(super) looks_again: bool,
    /// True if its errors need the errors of every one of its alternatives.
    pub(super) gathers: bool,
    /// True if it compares every item with every other.
    pub(super) unique: bool,
    /// Steps of matching its patterns with so many bytes of a text that one step is usual.
    pub(super) text_patterns: u64,
    /// The same for members' names.
    pub(super) key_patterns: u64,
    /// The member of this name.
    pub(super) keyed: FastMap<String, usize>,
    /// Members that are not named.
    pub(super) others: Option<usize>,
    /// Perhaps every member.
    pub(super) members: Vec<usize>,
    /// Every member's name.
    pub(super) names: Option<usize>,
    /// The item at this place.
    pub(super) places: Vec<usize>,
    /// Items behind those places.
    pub(super) rest: Option<usize>,
    /// Perhaps every item.
    pub(super) items: Vec<usize>,
    /// Schemas of members with names that match a pattern.
    pub(super) patterned: Vec<(MemberPattern, usize)>,
    /// The schema of members that no other keyword covers.
    pub(super) unevaluated: Option<usize>,
    /// Names of members that it names without a schema for them, as `required` does.
    pub(super) named: FastSet<String>,
    /// Every name of a member that it names, by its folded form.
    pub(super) folded: FastMap<String, String>,
    /// True if it, or a schema below it, names members.
    pub(super) leads_to_names: bool,
    /// True if the usual validator of clients in JavaScript (ajv) compiles it: its patterns are of
    /// ECMA-262, it has no id of its own, which may be that of another server's schema, and no
    /// keyword that ajv refuses.
    pub(super) is_for_clients: bool,
}

impl SchemaNode {
    /// True if a pattern takes more steps than its node's weight has.
    pub(super) fn has_dear_pattern(&self) -> bool {
        self.text_patterns + self.key_patterns > self.weight
    }

    /// Times that the name of a member is matched with each pattern: once for its own schemas, once
    /// for those of unevaluated members, and once for the names in the schema.
    pub(super) fn key_rounds(&self) -> u64 {
        1 + u64::from(self.looks_again) + u64::from(!self.patterned.is_empty())
    }

    /// Every edge.
    pub(super) fn all(&self) -> Vec<usize> {
        let mut all = self.same_value.clone();
        all.extend(self.keyed.values());
        all.extend(self.others.iter().chain(&self.names).chain(&self.rest));
        all.extend(self.members.iter().chain(&self.places).chain(&self.items));
        all
    }
}

/// The reading.
pub(super) struct SchemaGraph<'a> {
    root: &'a Value,
    own_id: Option<&'a str>,
    nodes: Vec<SchemaNode>,
    by_place: HashMap<*const Value, usize>,
    open: Vec<(usize, &'a Value)>,
    anchors: HashMap<&'a str, usize>,
    references: Vec<(usize, &'a str)>,
    costs: PatternCosts<'a>,
}

impl<'a> SchemaGraph<'a> {
    /// Reads a whole schema, references included.
    ///
    /// # Errors
    /// A reference leads out, or nowhere. The patterns are too large together.
    pub(super) fn read(root: &'a Value) -> Result<Vec<SchemaNode>, UnusableSchema> {
        let own_id = root
            .get("$id")
            .and_then(Value::as_str)
            .map(|id| id.trim_end_matches('#'))
            .filter(|id| !id.is_empty());
        let (by_place, anchors) = (HashMap::new(), HashMap::new());
        let mut graph = Self {
            root,
            own_id,
            nodes: Vec::new(),
            by_place,
            open: Vec::new(),
            anchors,
            references: Vec::new(),
            costs: PatternCosts::default(),
        };
        graph.node(root);
        loop {
            while let Some((at, schema)) = graph.open.pop() {
                graph.enter(at, schema)?;
            }
            // Anchors are known only when all schemas were entered, and pointers may lead to
            // further ones.
            let references = std::mem::take(&mut graph.references);
            if references.is_empty() {
                return Ok(graph.nodes);
            }
            for (at, reference) in references {
                let target = graph.target(reference)?;
                graph.nodes[at].same_value.push(target);
            }
        }
    }

    /// The node of a schema, to be entered if it is new.
    fn node(&mut self, schema: &'a Value) -> usize {
        *self
            .by_place
            .entry(std::ptr::from_ref(schema))
            .or_insert_with(|| {
                self.nodes.push(SchemaNode {
                    weight: 1,
                    is_for_clients: true,
                    ..SchemaNode::default()
                });
                self.open.push((self.nodes.len() - 1, schema));
                self.nodes.len() - 1
            })
    }

    fn enter(&mut self, at: usize, schema: &'a Value) -> Result<(), UnusableSchema> {
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        let is_root = std::ptr::eq(schema, self.root);
        // An `$id` inside changes the meaning of references below it; no tool's schema needs one.
        if !is_root
            && (keywords.get("$id").is_some_and(Value::is_string)
                || keywords.get("id").is_some_and(is_address))
        {
            return Err(UnusableSchema::BrokenReference);
        }
        for (keyword, value) in keywords {
            self.keyword(at, keyword, value);
            self.patterns(at, keyword, value)?;
        }
        self.nodes[at].is_for_clients &= is_for_clients(keywords);
        self.nodes[at].weight += keywords.len() as u64;
        Ok(())
    }

    fn keyword(&mut self, at: usize, keyword: &str, value: &'a Value) {
        match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                // Each validator of clients has the schema of one dialect alone.
                if is_metaschema(target) {
                    self.nodes[at].is_for_clients = false;
                } else {
                    self.references.push((at, target));
                }
            }
            ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                // Two of a name are refused by ajv.
                let is_single = self.anchors.insert(name, at).is_none();
                self.nodes[at].is_for_clients &= is_single;
            }
            ("not" | "if" | "then" | "else", schema) => self.here(at, schema),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                self.nodes[at].gathers |= keyword != "allOf";
                schemas.iter().for_each(|schema| self.here(at, schema));
            }
            ("dependentRequired", Value::Object(map)) => self.dependent(at, map),
            ("dependentSchemas" | "dependencies", Value::Object(map)) => {
                self.dependent(at, map);
                map.values()
                    .filter(|value| !value.is_array())
                    .for_each(|schema| self.here(at, schema));
            }
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(map)) => {
                self.map(at, keyword, map)
            }
            ("prefixItems" | "items", Value::Array(schemas)) => {
                self.nodes[at].places = schemas.iter().map(|schema| self.node(schema)).collect();
            }
            ("items" | "additionalItems", schema) => self.nodes[at].rest = Some(self.node(schema)),
            ("additionalProperties", schema) => self.nodes[at].others = Some(self.node(schema)),
            ("propertyNames", schema) => self.nodes[at].names = Some(self.node(schema)),
            ("contains", schema) => {
                let next = self.node(schema);
                self.nodes[at].items.push(next);
            }
            ("unevaluatedItems" | "unevaluatedProperties", schema) => {
                let next = self.node(schema);
                let node = &mut self.nodes[at];
                node.looks_again = true;
                if keyword == "unevaluatedItems" {
                    node.items.push(next);
                } else {
                    node.members.push(next);
                    node.unevaluated = Some(next);
                }
            }
            ("uniqueItems", Value::Bool(true)) => {
                self.nodes[at].unique = true;
                self.nodes[at].weight += UNIQUE_STEPS;
            }
            ("enum" | "required" | "const", listed) => {
                self.nodes[at].weight += size(listed);
                if keyword == "required" {
                    self.name(at, listed);
                }
            }
            _ => {}
        }
    }

    /// Adds the cost of a keyword's patterns. One step for each is in the weight of the node.
    fn patterns(
        &mut self,
        at: usize,
        keyword: &str,
        value: &'a Value,
    ) -> Result<(), UnusableSchema> {
        let node = &mut self.nodes[at];
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => {
                node.text_patterns = self.costs.steps(pattern).ok_or(UnusableSchema::Pattern)?;
                node.weight += 1;
                node.is_for_clients &= is_ecma_pattern(pattern);
            }
            ("patternProperties", Value::Object(map)) => {
                for pattern in map.keys() {
                    node.key_patterns +=
                        self.costs.steps(pattern).ok_or(UnusableSchema::Pattern)?;
                    node.is_for_clients &= is_ecma_pattern(pattern);
                }
                node.weight += map.len() as u64;
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes the names in a list of members.
    fn name(&mut self, at: usize, listed: &Value) {
        let names = listed
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        self.nodes[at].named.extend(names.map(str::to_owned));
    }

    /// Notes the names of members that others depend on, and of these others.
    fn dependent(&mut self, at: usize, map: &Map<String, Value>) {
        self.nodes[at].named.extend(map.keys().cloned());
        map.values().for_each(|listed| self.name(at, listed));
    }

    fn here(&mut self, at: usize, schema: &'a Value) {
        let next = self.node(schema);
        self.nodes[at].same_value.push(next);
    }

    fn map(&mut self, at: usize, keyword: &str, map: &'a Map<String, Value>) {
        for (key, schema) in map {
            let next = self.node(schema);
            match keyword {
                "properties" => {
                    self.nodes[at].keyed.insert(key.clone(), next);
                }
                "patternProperties" => {
                    self.nodes[at].members.push(next);
                    self.nodes[at]
                        .patterned
                        .push((MemberPattern::new(key), next));
                }
                // Definitions are only read, for anchors and for ids.
                _ => {}
            }
        }
    }

    /// The node that a reference leads to.
    fn target(&mut self, reference: &'a str) -> Result<usize, UnusableSchema> {
        let own = self
            .own_id
            .and_then(|id| reference.strip_prefix(id))
            .filter(|rest| rest.is_empty() || rest.starts_with('#'));
        let local = own.unwrap_or(reference);
        if local.is_empty() || local == "#" {
            return Ok(0);
        }
        let fragment = local
            .strip_prefix('#')
            .ok_or(UnusableSchema::ForeignReference)?;
        if fragment.starts_with('/') {
            let pointer = unescape(fragment).ok_or(UnusableSchema::BrokenReference)?;
            let schema = self
                .root
                .pointer(&pointer)
                .ok_or(UnusableSchema::BrokenReference)?;
            return Ok(self.node(schema));
        }
        self.anchors
            .get(fragment)
            .copied()
            .ok_or(UnusableSchema::BrokenReference)
    }
}

/// True if no keyword makes the schema one that ajv refuses, or takes for another server's.
fn is_for_clients(keywords: &Map<String, Value>) -> bool {
    let has = |keyword: &str| keywords.contains_key(keyword);
    let choices = keywords.get("enum").and_then(Value::as_array);
    let target = keywords.get("$ref").and_then(Value::as_str);
    let anchor = target.and_then(|target| target.split_once('#'));
    // `id` is that of draft 4.
    !has("$id")
        && !has("id")
        && is_nullable_clear(keywords)
        && is_format_bounded(keywords)
        && choices.is_none_or(|choices| !choices.is_empty())
        && anchor.is_none_or(|(_, anchor)| anchor.is_empty() || anchor.starts_with('/'))
}

/// True unless `nullable` of OpenAPI stands without `type`, or contradicts it.
fn is_nullable_clear(keywords: &Map<String, Value>) -> bool {
    let types = keywords.get("type");
    match keywords.get("nullable") {
        None => true,
        Some(Value::Bool(true)) => types.is_some(),
        Some(Value::Bool(false)) => match types {
            Some(Value::String(name)) => name != "null",
            Some(Value::Array(names)) => !names.iter().any(|name| name == "null"),
            _ => false,
        },
        Some(_) => false,
    }
}

/// True unless a bound for texts, which is a keyword of ajv, is of another type or stands without a
/// format whose texts have an order.
fn is_format_bounded(keywords: &Map<String, Value>) -> bool {
    const BOUNDS: [&str; 4] = [
        "formatMinimum",
        "formatMaximum",
        "formatExclusiveMinimum",
        "formatExclusiveMaximum",
    ];
    const ORDERED: [&str; 5] = ["date", "time", "date-time", "iso-time", "iso-date-time"];
    let format = keywords.get("format").and_then(Value::as_str);
    let has_order = format.is_some_and(|format| ORDERED.contains(&format));
    let mut bounds = BOUNDS.iter().filter_map(|bound| keywords.get(*bound));
    bounds.all(|bound| has_order && bound.is_string())
}

/// In draft 4 `id` has the meaning of the later `$id`; as the name of a property it is a schema,
/// and no text.
fn is_address(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.contains(['/', ':', '#']))
}

/// Values in a value.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Undoes the percent-encoding of a fragment.
fn unescape(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
