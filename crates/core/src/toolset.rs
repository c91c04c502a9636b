//! The operator's selection of the tools that an endpoint shows, and its overrides, by name.
//!
//! It is a selection, not a permission: every client sees the same. Scopes are configured here
//! because they are keyed by name too; the authorizer decides if a principal has them.

use std::fmt;
use std::sync::Arc;

/// The selection of an endpoint's tools, and its overrides of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toolset {
    /// Only these; if empty, all.
    pub include: Vec<NamePattern>,
    /// Not these, even if `include` has them.
    pub exclude: Vec<NamePattern>,
    /// Other names. No two are equal; the pattern is a plain name.
    pub aliases: Vec<(NamePattern, Arc<str>)>,
    /// Other descriptions. The pattern is a plain name.
    pub descriptions: Vec<(NamePattern, Arc<str>)>,
    /// The operator's hints about the behaviour of tools; of two, each hint of the later counts.
    pub hints: Vec<(NamePattern, ToolHints)>,
    /// Scopes that a caller has to have. A tool takes those of all patterns that fit it.
    pub scopes: Vec<(NamePattern, Vec<Arc<str>>)>,
}

/// The annotations of a tool: hints about its behaviour. A hint that is not given is `None`,
/// whichever default the protocol has. Source: schema 2025-03-26 and later, `ToolAnnotations`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolHints {
    /// It only reads.
    pub read_only: Option<bool>,
    /// It may make destructive changes.
    pub destructive: Option<bool>,
    /// Calling it again has no further effect.
    pub idempotent: Option<bool>,
    /// It reaches out beyond its server.
    pub open_world: Option<bool>,
}

/// A name, in which `*` stands for any text and `?` for any one character.
///
/// It is matched with the name that a tool would have on the endpoint without an alias, and with
/// `upstream/tool` with the upstream's own name for it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NamePattern(Arc<str>);

/// The names of a tool that patterns are matched with.
#[derive(Clone, Copy, Debug)]
pub struct ToolNames<'a> {
    /// The names that the endpoint could give it.
    pub names: &'a [&'a str],
    /// `upstream/tool`.
    pub qualified: &'a str,
}

/// The overrides of a toolset for one tool.
#[derive(Debug, Default)]
pub struct ToolOverrides {
    /// The name that clients see instead of the one by the rule.
    pub alias: Option<Arc<str>>,
    /// The description that clients see instead of the upstream's.
    pub description: Option<Arc<str>>,
    /// The operator's hints about the tool's behaviour.
    pub hints: ToolHints,
    /// The scopes that a caller has to have.
    pub scopes: Vec<Arc<str>>,
}

impl Toolset {
    /// The overrides for a tool; absent if the endpoint does not have it.
    #[must_use]
    pub fn overrides_for(&self, known: &ToolNames<'_>) -> Option<ToolOverrides> {
        let fits = |pattern: &NamePattern| {
            known
                .names
                .iter()
                .chain([&known.qualified])
                .any(|name| pattern.fits(name))
        };
        if self.exclude.iter().any(fits)
            || !(self.include.is_empty() || self.include.iter().any(fits))
        {
            return None;
        }
        let first = |list: &[(NamePattern, Arc<str>)]| {
            list.iter()
                .find(|(pattern, _)| fits(pattern))
                .map(|(_, text)| text.clone())
        };
        let hints = self.hints.iter().filter(|(pattern, _)| fits(pattern));
        let scopes = self.scopes.iter().filter(|(pattern, _)| fits(pattern));
        Some(ToolOverrides {
            alias: first(&self.aliases),
            description: first(&self.descriptions),
            hints: hints.fold(ToolHints::default(), |all, (_, own)| own.or(all)),
            scopes: scopes
                .flat_map(|(_, scopes)| scopes.iter().cloned())
                .collect(),
        })
    }
}

impl ToolHints {
    /// These hints, and the others for those that are absent.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            read_only: self.read_only.or(other.read_only),
            destructive: self.destructive.or(other.destructive),
            idempotent: self.idempotent.or(other.idempotent),
            open_world: self.open_world.or(other.open_world),
        }
    }

    /// Each with its name in the protocol.
    #[must_use]
    pub fn named(self) -> [(&'static str, Option<bool>); 4] {
        [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ]
    }
}

impl NamePattern {
    /// Every text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if only one name fits.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// True if a name fits. Never worse than the product of both lengths.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // The position behind the last star, and the end of its match so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p + 1, n));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    n = next(name, n);
                }
                Some(byte) if *byte == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => match star {
                    Some((behind, reached)) => {
                        star = Some((behind, reached + 1));
                        (p, n) = (behind, reached + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }
}

/// The beginning of the next character.
fn next(name: &[u8], at: usize) -> usize {
    let behind = name[at + 1..].iter().position(|byte| byte & 0xc0 != 0x80);
    behind.map_or(name.len(), |more| at + 1 + more)
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        let table = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("files__*", "files__read", true),
            ("files__*", "other__files__read", false),
            ("*delete*", "files__delete_all", true),
            ("*delete*", "files__read", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?c", "aéc", true),
            ("a*b*c", "a--b--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("files/read", "files/read", true),
            ("Files", "files", false),
        ];
        for (pattern, name, fits) in table {
            assert_eq!(
                NamePattern::new(pattern).fits(name),
                fits,
                "{pattern} and {name}"
            );
        }
    }

    #[test]
    fn adversarial_pattern_is_matched_quickly() {
        let pattern = NamePattern::new(&format!("{}b", "a*".repeat(60)));
        assert!(!pattern.fits(&"a".repeat(2000)));
    }

    #[test]
    fn exclusion_wins_and_scopes_add_up() {
        let scope = |text: &str| vec![Arc::from(text)];
        let set = Toolset {
            include: vec![NamePattern::new("files__*")],
            exclude: vec![NamePattern::new("files/delete*")],
            scopes: vec![
                (NamePattern::new("*"), scope("a")),
                (NamePattern::new("*__write"), scope("b")),
            ],
            ..Toolset::default()
        };
        let make = |native: &str| {
            let (name, home) = (format!("files__{native}"), format!("files/{native}"));
            set.overrides_for(&ToolNames {
                names: &[&name],
                qualified: &home,
            })
            .map(|made| made.scopes)
        };
        assert_eq!(make("write"), Some(vec!["a".into(), "b".into()]));
        assert_eq!(make("read"), Some(vec!["a".into()]));
        assert_eq!(make("delete_all"), None);
        assert_eq!(
            set.overrides_for(&ToolNames {
                names: &["other__x"],
                qualified: "other/x"
            })
            .map(|made| made.scopes),
            None
        );
    }
}
