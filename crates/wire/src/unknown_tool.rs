//! Results by which servers report a tool that they do not have. Most SDKs return such a result in
//! place of an error, each with words of its own, and the words name the tool.

/// The most bytes around the name.
const MAX_SURROUNDING_BYTES: usize = 64;

/// The words around the name, in lower case and without punctuation.
const WORDS: [&str; 5] = [
    "unknown tool",
    "tool not found",
    "tool does not exist",
    "no such tool",
    "no tool named",
];

/// True if the text of a failed tool's result says no more than that the server does not have the
/// tool of this name. Names are case-sensitive.
#[must_use]
pub fn is_reported_by(text: &str, name: &str) -> bool {
    let is_short = text.len() <= name.len() + MAX_SURROUNDING_BYTES;
    // The name may be a part of the words, too.
    let mut places = text.match_indices(name).map(|(at, _)| at);
    !name.is_empty()
        && is_short
        && places.any(|at| says_unknown(&text[..at], &text[at + name.len()..]))
}

/// True for the words before and after the name of an unknown tool.
fn says_unknown(before: &str, after: &str) -> bool {
    let around = format!("{before} {after}").to_lowercase();
    // The TypeScript SDK puts the code of the error first.
    let words = match around.strip_prefix("mcp error ") {
        Some(error) => error.split_once(':').map_or("", |(_code, words)| words),
        None => &around,
    };
    let words: Vec<&str> = words
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    WORDS.contains(&&*words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_sdks_are_recognized_for_the_name_that_was_called() {
        for text in [
            "Unknown tool: a.b-c",
            "Unknown tool: 'a.b-c'",
            "unknown tool \"a.b-c\"",
            "Tool a.b-c not found",
            "MCP error -32602: Tool a.b-c not found",
            "Tool not found: a.b-c",
            "No such tool: `a.b-c`.",
        ] {
            assert!(is_reported_by(text, "a.b-c"), "{text}");
            assert!(!is_reported_by(text, "A.b-c"), "{text}");
            assert!(!is_reported_by(text, ""), "{text}");
        }
    }

    #[test]
    fn name_may_be_a_part_of_the_words() {
        for name in ["now", "o", "tool", "unknown", "not"] {
            for text in [
                format!("Unknown tool: {name}"),
                format!("Tool {name} not found"),
            ] {
                assert!(is_reported_by(&text, name), "{text}");
            }
        }
    }

    #[test]
    fn failures_of_a_tool_are_no_unknown_tools() {
        for (text, name) in [
            ("echo: not found", "echo"),
            ("Unknown tool", "echo"),
            ("Tool echo not found in the registry of plugins", "echo"),
            ("find: file not found", "find"),
            ("Error executing tool find: Unknown tool: grep", "find"),
            ("Unknown tools: echo", "echo"),
            ("", "echo"),
        ] {
            assert!(!is_reported_by(text, name), "{text}");
        }
        let long = format!("Unknown tool: echo{}", " ".repeat(100));
        assert!(!is_reported_by(&long, "echo"));
    }
}
