//! The names of members in a schema's graph, and the nodes that lead to them.

use weir_wire::case_folding::folded;

use crate::shape::graph::SchemaNode;

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
    pub(super) fn is_named(&self, key: &str) -> bool {
        self.keyed.contains_key(key) || self.named.contains(key)
    }

    /// The schemas of the member of this name.
    pub(super) fn of_member(&self, key: &str) -> impl Iterator<Item = usize> {
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
    pub(super) fn of_item(&self, place: usize) -> impl Iterator<Item = usize> {
        self.places
            .get(place)
            .copied()
            .or(self.rest)
            .into_iter()
            .chain(self.items.iter().copied())
    }
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
