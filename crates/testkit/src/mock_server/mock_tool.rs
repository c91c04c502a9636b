//! The tools of a mock server and the pages of their list.

use serde_json::{Value, json};

use crate::mock_server::behaviour::MockBehaviour;

/// The behaviour of the list's cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorBehaviour {
    /// Correct cursors: opaque, and none after the last page.
    Good,
    /// The second page's cursor is the empty string, which is a valid one.
    Empty,
    /// Every page names the same next cursor, and is the same page.
    Same,
    /// Every page names a new next cursor and has new tools, for ever.
    Endless,
}

/// One tool of a mock server.
#[derive(Clone, Debug)]
pub struct MockTool {
    pub(super) name: String,
    /// JSON text, kept byte for byte.
    pub(super) definition: String,
    /// The behaviours of its calls, one after another; the last one repeats for ever.
    pub(super) behaviours: Vec<MockBehaviour>,
    /// The client capability that a client needs to see the tool.
    pub(super) needs: Option<String>,
}

impl MockTool {
    /// A tool that takes any object and echoes.
    pub fn new(name: &str) -> Self {
        let schema = json!({"type": "object"});
        Self::raw(
            &json!({"name": name, "description": format!("mock {name}"), "inputSchema": schema})
                .to_string(),
        )
    }

    /// A tool of exactly this definition, kept byte for byte. It echoes.
    ///
    /// # Panics
    /// `definition` is not a JSON object with a name.
    pub fn raw(definition: &str) -> Self {
        let parsed: Value = serde_json::from_str(definition)
            .unwrap_or_else(|error| panic!("{definition}: {error}"));
        let name = parsed["name"]
            .as_str()
            .unwrap_or_else(|| panic!("no name in {definition}"))
            .to_owned();
        Self {
            name,
            definition: definition.to_owned(),
            behaviours: vec![MockBehaviour::echo()],
            needs: None,
        }
    }

    /// Sets a member in its definition, such as `outputSchema`.
    pub fn with(mut self, member: &str, value: Value) -> Self {
        let mut definition: Value = serde_json::from_str(&self.definition).unwrap_or_default();
        definition[member] = value;
        self.definition = definition.to_string();
        self
    }

    /// Sets another behaviour.
    pub fn does(self, behaviour: MockBehaviour) -> Self {
        self.does_in_turn([behaviour])
    }

    /// Sets a behaviour for each call in turn; the last one stays.
    ///
    /// # Panics
    /// There are no behaviours.
    pub fn does_in_turn(mut self, behaviours: impl IntoIterator<Item = MockBehaviour>) -> Self {
        self.behaviours = behaviours.into_iter().collect();
        assert!(!self.behaviours.is_empty(), "a tool does something");
        self
    }

    /// Lists it only to clients that declare this capability, as some real servers do.
    pub fn needing(mut self, capability: &str) -> Self {
        self.needs = Some(capability.to_owned());
        self
    }

    /// `count` echoing tools named `tool_0000` and so on.
    pub fn numbered(count: usize) -> Vec<Self> {
        (0..count)
            .map(|number| Self::new(&format!("tool_{number:04}")))
            .collect()
    }
}

/// Renders one page, as the members of a list result: `"tools":[...]` and perhaps
/// `"nextCursor":...`. No page for a bad cursor.
pub(super) fn render_page(
    tools: &[&MockTool],
    size: usize,
    cursors: CursorBehaviour,
    cursor: Option<&str>,
) -> Option<String> {
    let start = match (cursor, cursors) {
        (None, _) | (Some("again"), CursorBehaviour::Same) => 0,
        (Some(""), CursorBehaviour::Empty) => size,
        (Some(cursor), _) => cursor.strip_prefix("from:")?.parse().ok()?,
    };
    if cursors == CursorBehaviour::Endless {
        let fresh: Vec<_> = (start..start + size)
            .map(|n| MockTool::new(&format!("endless_{n:06}")).definition)
            .collect();
        return Some(members(
            fresh.iter().map(String::as_str),
            Some(&format!("from:{}", start + size)),
        ));
    }
    if start > 0 && start >= tools.len() {
        return None;
    }
    let end = tools.len().min(start + size);
    let shown = tools[start..end]
        .iter()
        .map(|tool| tool.definition.as_str());
    let next = match cursors {
        CursorBehaviour::Same => Some("again".to_owned()),
        _ if end == tools.len() => None,
        CursorBehaviour::Empty if start == 0 => Some(String::new()),
        CursorBehaviour::Good | CursorBehaviour::Empty | CursorBehaviour::Endless => {
            Some(format!("from:{end}"))
        }
    };
    Some(members(shown, next.as_deref()))
}

fn members<'a>(tools: impl Iterator<Item = &'a str>, next: Option<&str>) -> String {
    let mut text = format!(r#""tools":[{}]"#, tools.collect::<Vec<_>>().join(","));
    if let Some(next) = next {
        text.push_str(&format!(r#","nextCursor":{}"#, json!(next)));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn walk(count: usize, size: usize, cursors: CursorBehaviour) -> (Vec<String>, Vec<String>) {
        let tools = MockTool::numbered(count);
        let tools: Vec<_> = tools.iter().collect();
        let (mut names, mut seen, mut cursor) = (Vec::new(), Vec::new(), None::<String>);
        for _ in 0..5 {
            let page = render_page(&tools, size, cursors, cursor.as_deref()).unwrap();
            let page: Value = serde_json::from_str(&format!("{{{page}}}")).unwrap();
            names.extend(
                page["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap().to_owned()),
            );
            match page["nextCursor"].as_str() {
                Some(next) => seen.push(next.to_owned()),
                None => break,
            }
            cursor = seen.last().cloned();
        }
        (names, seen)
    }

    #[test]
    fn pages_end_or_do_not_as_scripted() {
        let (names, cursors) = walk(5, 2, CursorBehaviour::Good);
        assert_eq!(
            (names.len(), cursors),
            (5, vec!["from:2".to_owned(), "from:4".to_owned()])
        );
        let (names, cursors) = walk(5, 2, CursorBehaviour::Empty);
        assert_eq!(
            (names.len(), cursors),
            (5, vec![String::new(), "from:4".to_owned()])
        );
        assert_eq!(walk(5, 2, CursorBehaviour::Same).1, ["again"; 5]);
        let (names, cursors) = walk(0, 2, CursorBehaviour::Endless);
        assert_eq!((names.len(), cursors.len()), (10, 5));
        assert!(render_page(&[], 2, CursorBehaviour::Good, Some("nonsense")).is_none());
        assert!(render_page(&[], 2, CursorBehaviour::Good, Some("from:2")).is_none());
    }
}
