//! Capabilities of both sides, as JSON and as classes.
//!
//! The capabilities that a client declares become a [`CapabilityClass`]; those that weir offers are
//! written from [`OfferedCapabilities`] in the form of a revision.

use bytes::BytesMut;
use weir_core::CapabilityClass;
use weir_core::upstream::{DeclaredExtension, ListKind, ListKinds};
use weir_wire::write::ObjectWriter;
use weir_wire::{Revision, scan};

use crate::extensions::{self, APPS};

/// Extensions that are members of a class.
const EXTENSIONS: [(&str, CapabilityClass); 2] = [
    (extensions::TASKS, CapabilityClass::TASKS),
    (APPS, CapabilityClass::UI),
];

/// The class of a `ClientCapabilities` object. Capabilities that weir does not know are left out.
///
/// `elicitation: {}` means form mode (2025-06-18); the `tasks` member of 2025-11-25 is not the
/// tasks extension and does not count.
#[must_use]
pub fn class_of(raw: &[u8]) -> CapabilityClass {
    let mut class = CapabilityClass::BASE;
    for member in scan::members(raw) {
        let value = &raw[member.value];
        if !scan::is_object(value) {
            continue;
        }
        class = class.with(match &*member.key.decode() {
            "sampling" => sampling(value),
            "elicitation" => elicitation(value),
            "roots" => CapabilityClass::ROOTS,
            "extensions" => extensions(value),
            _ => CapabilityClass::BASE,
        });
    }
    class
}

fn sampling(value: &[u8]) -> CapabilityClass {
    if has(value, "tools") {
        CapabilityClass::SAMPLING.with(CapabilityClass::SAMPLING_TOOLS)
    } else {
        CapabilityClass::SAMPLING
    }
}

fn elicitation(value: &[u8]) -> CapabilityClass {
    let url = if has(value, "url") {
        CapabilityClass::ELICITATION_URL
    } else {
        CapabilityClass::BASE
    };
    if has(value, "form") || url == CapabilityClass::BASE {
        url.with(CapabilityClass::ELICITATION_FORM)
    } else {
        url
    }
}

fn extensions(value: &[u8]) -> CapabilityClass {
    EXTENSIONS
        .iter()
        .filter(|(name, _)| has(value, name))
        .fold(CapabilityClass::BASE, |class, (_, one)| class.with(*one))
}

fn has(object: &[u8], name: &str) -> bool {
    scan::find(object, name).is_some_and(|value| scan::is_object(&object[value]))
}

/// The capabilities that an endpoint offers. A capability is offered only if weir can serve it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedCapabilities {
    /// Tools, and notifications of changed tool lists.
    pub tools: bool,
    /// Prompts, and notifications of changed prompt lists.
    pub prompts: bool,
    /// Resources, and notifications of changed resource lists.
    pub resources: bool,
    /// Notifications of updates of single resources.
    pub subscribe: bool,
    /// Completion of arguments; written only for revisions from 2025-03-26 on.
    pub completions: bool,
    /// The lists without change notifications.
    pub without_notifications: ListKinds,
    /// Log messages with calls.
    pub logging: bool,
    /// Calls of tools that become tasks; written only for revisions with tasks.
    pub tasks: bool,
    /// Interfaces of MCP Apps; written only for revisions with extensions.
    pub apps: bool,
    /// Lists of tasks, offered if tasks can be told apart by their owners.
    pub task_list: bool,
    /// Other extensions with their settings; written only for revisions with extensions.
    pub extensions: Vec<DeclaredExtension>,
}

impl OfferedCapabilities {
    /// Writes a `ServerCapabilities` object in the form of a revision.
    pub fn write(&self, revision: Revision, out: &mut BytesMut) {
        let mut object = ObjectWriter::new(out);
        if self.completions && revision.has_completions_capability() {
            object.raw("completions", b"{}");
        }
        if (self.tasks || self.apps || !self.extensions.is_empty()) && revision.is_modern() {
            object.with("extensions", |out| {
                let mut extensions = ObjectWriter::new(out);
                for (name, settings) in &self.extensions {
                    extensions.raw(name, settings);
                }
                for (name, has) in [(extensions::TASKS, self.tasks), (APPS, self.apps)] {
                    if has {
                        extensions.raw(name, b"{}");
                    }
                }
                extensions.end();
            });
        }
        if self.logging {
            object.raw("logging", b"{}");
        }
        if self.prompts {
            object.raw("prompts", self.list_capability(ListKind::Prompts, false));
        }
        if self.resources {
            object.raw(
                "resources",
                self.list_capability(ListKind::Resources, self.subscribe),
            );
        }
        if self.tasks && revision.has_task_param() {
            let calls = br#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#;
            let lists = br#"{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}"#;
            object.raw("tasks", if self.task_list { &lists[..] } else { calls });
        }
        if self.tools {
            object.raw("tools", self.list_capability(ListKind::Tools, false));
        }
        object.end();
    }

    /// The capability of a list: notifications of its changes, and of updates of single items.
    fn list_capability(&self, kind: ListKind, subscribe: bool) -> &'static [u8] {
        match (self.without_notifications.has(kind), subscribe) {
            (false, false) => br#"{"listChanged":true}"#,
            (false, true) => br#"{"listChanged":true,"subscribe":true}"#,
            (true, false) => br#"{"listChanged":false}"#,
            (true, true) => br#"{"listChanged":false,"subscribe":true}"#,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    // Proves R057.
    #[test]
    fn capability_class_equals_the_declaration() {
        let none = CapabilityClass::BASE;
        let form = CapabilityClass::ELICITATION_FORM;
        let url = CapabilityClass::ELICITATION_URL;
        let table: [(&str, CapabilityClass); 14] = [
            ("{}", none),
            ("[]", none),
            (r#"{"Sampling":{}}"#, none),
            (r#"{"sampling":null}"#, none),
            (r#"{"sampling":{}}"#, CapabilityClass::SAMPLING),
            (
                r#"{"sampling":{"tools":{}}}"#,
                CapabilityClass::SAMPLING.with(CapabilityClass::SAMPLING_TOOLS),
            ),
            (r#"{"elicitation":{}}"#, form),
            (r#"{"elicitation":{"form":{}}}"#, form),
            (r#"{"elicitation":{"url":{}}}"#, url),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, form.with(url)),
            (r#"{"roots":{"listChanged":true}}"#, CapabilityClass::ROOTS),
            (r#"{"tasks":{"requests":{}}}"#, none),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":[]},"a/b":{}}}"#,
                CapabilityClass::TASKS.with(CapabilityClass::UI),
            ),
            (r#"{"s\u0061mpling":{}}"#, CapabilityClass::SAMPLING),
        ];
        for (raw, class) in table {
            assert_eq!(class_of(raw.as_bytes()), class, "{raw}");
        }
    }

    // Proves R056.
    #[test]
    fn only_offered_capabilities_are_written() {
        let written = |offer: OfferedCapabilities| {
            let mut out = BytesMut::new();
            offer.write(Revision::MODERN, &mut out);
            out
        };
        let tools = OfferedCapabilities {
            tools: true,
            logging: true,
            ..OfferedCapabilities::default()
        };
        assert_eq!(
            written(tools),
            r#"{"logging":{},"tools":{"listChanged":true}}"#
        );
        assert_eq!(written(OfferedCapabilities::default()), "{}");
        let rest = OfferedCapabilities {
            prompts: true,
            resources: true,
            completions: true,
            ..OfferedCapabilities::default()
        };
        let all =
            r#"{"completions":{},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
        assert_eq!(written(rest.clone()), all);
        let told = OfferedCapabilities {
            resources: true,
            subscribe: true,
            ..OfferedCapabilities::default()
        };
        assert_eq!(
            written(told),
            r#"{"resources":{"listChanged":true,"subscribe":true}}"#
        );
        let silent = ListKinds::default()
            .with(ListKind::Tools)
            .with(ListKind::Resources);
        let silent = OfferedCapabilities {
            tools: true,
            prompts: true,
            resources: true,
            subscribe: true,
            without_notifications: silent,
            ..OfferedCapabilities::default()
        };
        let said = r#"{"prompts":{"listChanged":true},"resources":{"listChanged":false,"subscribe":true},"tools":{"listChanged":false}}"#;
        assert_eq!(written(silent), said);
        let tasks = OfferedCapabilities {
            tasks: true,
            task_list: true,
            ..OfferedCapabilities::default()
        };
        assert_eq!(
            written(tasks.clone()),
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            "R228"
        );
        let older = |offer: OfferedCapabilities, revision| {
            let mut out = BytesMut::new();
            offer.write(revision, &mut out);
            out
        };
        let listed = r#"{"tasks":{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}}"#;
        assert_eq!(older(tasks.clone(), Revision::V2025_11_25), listed);
        let unlisted = OfferedCapabilities {
            task_list: false,
            ..tasks.clone()
        };
        assert_eq!(
            older(unlisted, Revision::V2025_11_25),
            listed.replace(r#""list":{},"#, ""),
            "R234"
        );
        assert_eq!(older(tasks, Revision::V2025_06_18), "{}");
        let other = OfferedCapabilities {
            extensions: vec![("a/b".into(), Bytes::from_static(b"{\"c\":1}"))],
            ..OfferedCapabilities::default()
        };
        assert_eq!(written(other), r#"{"extensions":{"a/b":{"c":1}}}"#);
        let mut old = BytesMut::new();
        rest.write(Revision::V2024_11_05, &mut old);
        assert_eq!(
            old,
            r#"{"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#
        );
    }
}
