//! Commands of a page of the docs, with the output that the page shows.

/// A command that a reader types.
#[derive(Debug)]
pub struct PageCommand {
    pub text: String,
    /// The lines that the page shows below it.
    pub shows: Vec<String>,
}

/// Returns the commands of the fenced blocks of a page, in their order. In a block with prompts
/// (`$ `) the lines between them are output; in one without, each line is a command. Blocks of
/// another language than a shell's are files.
pub fn commands(page: &str) -> Vec<PageCommand> {
    let mut all = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, lines) = block.split_once('\n').unwrap();
        if !["", "sh", "console"].contains(&language) {
            continue;
        }
        let has_prompts = lines.lines().any(|line| line.starts_with("$ "));
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            match (line.strip_prefix("$ "), has_prompts) {
                (Some(command), _) => all.push(PageCommand {
                    text: bare(command),
                    shows: Vec::new(),
                }),
                (None, false) => all.push(PageCommand {
                    text: bare(line),
                    shows: Vec::new(),
                }),
                (None, true) => {
                    let command: &mut PageCommand = all
                        .last_mut()
                        .unwrap_or_else(|| panic!("output of nothing: {line}"));
                    command.shows.push(line.to_owned());
                }
            }
        }
    }
    all
}

/// Returns the first file of a language that a page shows.
pub fn file<'a>(page: &'a str, language: &str) -> &'a str {
    page.split_once(&format!("\n```{language}\n"))
        .unwrap()
        .1
        .split_once("```")
        .unwrap()
        .0
}

/// Returns a command without its trailing remark.
fn bare(line: &str) -> String {
    line.split("  # ")
        .next()
        .unwrap()
        .split("      #")
        .next()
        .unwrap()
        .trim()
        .to_owned()
}

/// Reports if a command printed the output that its page shows: each shown line is a printed line,
/// in the same order. `...` stands for any text, such as times and counters. A page may leave lines
/// out.
pub fn is_as_shown(shows: &[String], printed: &str) -> bool {
    let mut printed = printed.lines();
    shows
        .iter()
        .all(|shown| printed.any(|line| fits(shown, line)))
}

fn fits(shown: &str, line: &str) -> bool {
    let parts: Vec<&str> = shown.split("...").map(str::trim).collect();
    let (first, rest) = parts.split_first().unwrap();
    let Some(mut left) = line.trim().strip_prefix(first) else {
        return false;
    };
    for part in rest {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.is_empty() || parts.last() == Some(&"")
}

#[test]
fn commands_and_outputs_are_parsed_from_doc_pages() {
    let page = "text\n\n```console\n$ weir tools URL\none\n$ weir x\n```\n\n```yaml\na: 1\n```\n\n```\nweir check f      # a remark\nweir serve\n```\n";
    let found = commands(page);
    let texts: Vec<&str> = found.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(
        texts,
        ["weir tools URL", "weir x", "weir check f", "weir serve"]
    );
    assert_eq!(found[0].shows, ["one"]);
    assert_eq!(file(page, "yaml"), "a: 1\n");
    let shows = ["a".to_owned(), "b".to_owned()];
    assert!(
        is_as_shown(&shows, "x\n  a\ny\nb")
            && !is_as_shown(&shows, "b\na")
            && !is_as_shown(&shows, "a")
    );
    assert!(!is_as_shown(&shows, "a 1\nb"), "a line is the whole of it");
    for (shown, line, is_so) in [
        ("a, until ...", "a, until 12:00", true),
        ("since ..., until ...: why", "since 1, until 2: why", true),
        (
            "since ..., until ...: why",
            "since 1, until 2: why not",
            false,
        ),
        ("a ... b", "x a 1 b", false),
    ] {
        assert_eq!(fits(shown, line), is_so, "{shown} and {line}");
    }
}
