//! Suggestions of known words and names for a misspelt one.

/// The most names that are offered.
const MAX_SUGGESTIONS: usize = 3;

/// Returns the candidate with the fewest edits, if they are few enough for a typing mistake.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate));
    distances
        .min()
        .filter(|(distance, near)| is_near(*distance, near))
        .map(|(_, near)| near)
}

/// Returns the similar names, nearest first: `word` may be misspelt, lack the part before `__`, or
/// be a part of the name.
pub fn similar<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((edit_distances(word, name)?, name)))
        .collect();
    found.sort();
    found.truncate(MAX_SUGGESTIONS);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns the edits between the names without their upstreams, then between the whole ones; `None`
/// for a name that is not similar.
fn edit_distances(word: &str, name: &str) -> Option<(usize, usize)> {
    let (word, name) = (word.to_lowercase(), name.to_lowercase());
    // For a URI template: the text before its first variable.
    let template = own(&name)
        .split_once('{')
        .map(|(before, _)| before)
        .filter(|before| before.contains(':'));
    if template.is_some_and(|before| own(&word).starts_with(before)) {
        return Some((0, 0));
    }
    let (edits, whole) = (distance(own(&word), own(&name)), distance(&word, &name));
    let contains = own(&word).len() > 2 && own(&name).contains(own(&word));
    match is_near(edits, own(&name)) || is_near(whole, own(&name)) {
        true => Some((edits.min(whole), whole)),
        false => contains.then_some((usize::MAX, whole)),
    }
}

/// Returns a name without its upstream: `echo` of `files__echo`, `memo:1` of `notes+memo:1`.
fn own(name: &str) -> &str {
    let of_uri = name
        .split_once('+')
        .filter(|(id, uri)| !id.contains(':') && uri.contains(':'));
    name.split_once("__")
        .or(of_uri)
        .map_or(name, |(_, own)| own)
}

fn is_near(distance: usize, candidate: &str) -> bool {
    distance <= 1 + candidate.len() / 4
}

/// Returns the edits between two short words: letters inserted, deleted, changed, or swapped with
/// their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let a: String = a.chars().take(64).collect();
    strsim::osa_distance(&a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_made_only_for_a_near_misspelling() {
        let levels = ["trace", "debug", "info"];
        for (word, near) in [
            ("inof", Some("info")),
            ("dbug", Some("debug")),
            ("info", Some("info")),
            ("everything", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, levels), near, "{word}");
        }
    }

    #[test]
    fn names_are_found_by_a_mistake_by_their_own_part_and_by_a_piece() {
        let names = [
            "files__echo",
            "files__read_text_file",
            "desk__calculate",
            "notes__echo",
        ];
        assert_eq!(
            similar("files__ecoh", names),
            ["files__echo", "notes__echo"]
        );
        assert_eq!(similar("echo", names), ["files__echo", "notes__echo"]);
        assert_eq!(similar("Calculate", names), ["desk__calculate"]);
        assert_eq!(similar("read_text", names), ["files__read_text_file"]);
        assert_eq!(similar("shop__buy_milk", names), [""; 0]);
        assert_eq!(
            similar("demo://text/1", ["one+demo://text/{resourceId}", "memo:1"]),
            ["one+demo://text/{resourceId}"]
        );
    }
}
