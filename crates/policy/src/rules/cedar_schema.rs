//! The vocabulary of rules: entity types, attributes and actions. The Cedar schema and the entities
//! are both written from these tables, so they cannot differ.

use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttributeKind {
    Text,
    Texts,
    Switch,
}

struct SchemaAttribute {
    name: &'static str,
    kind: AttributeKind,
    /// True if a rule has to check `has` first.
    optional: bool,
    about: &'static str,
}

const fn attribute(
    name: &'static str,
    kind: AttributeKind,
    optional: bool,
    about: &'static str,
) -> SchemaAttribute {
    SchemaAttribute {
        name,
        kind,
        optional,
        about,
    }
}

pub(super) const ANONYMOUS: &str = "anonymous";
pub(super) const ISSUER: &str = "issuer";
pub(super) const SUBJECT: &str = "subject";
pub(super) const SCOPES: &str = "scopes";
pub(super) const GROUPS: &str = "groups";
pub(super) const CLIENT: &str = "client";
pub(super) const ACTOR: &str = "actor";

const PRINCIPAL: [SchemaAttribute; 7] = [
    attribute(
        ANONYMOUS,
        AttributeKind::Switch,
        false,
        "True for a caller without credentials, if the config requires none.",
    ),
    attribute(
        ISSUER,
        AttributeKind::Text,
        false,
        "The issuer of the credentials: the `iss` of the token, or a name of weir such as `api-key`.",
    ),
    attribute(
        SUBJECT,
        AttributeKind::Text,
        false,
        "The subject of the credentials. Unique together with the issuer.",
    ),
    attribute(
        SCOPES,
        AttributeKind::Texts,
        false,
        "The scopes of the credentials.",
    ),
    attribute(
        GROUPS,
        AttributeKind::Texts,
        false,
        "The names of the groups that are parents of the principal.",
    ),
    attribute(
        CLIENT,
        AttributeKind::Text,
        true,
        "The OAuth client that presents the credentials.",
    ),
    attribute(
        ACTOR,
        AttributeKind::Text,
        true,
        "The actor on behalf of the subject, if it is not the subject itself.",
    ),
];

pub(super) const UPSTREAM: &str = "upstream";
pub(super) const NATIVE: &str = "native";
pub(super) const NAME: &str = "name";
pub(super) const ENDPOINT: &str = "endpoint";

const ITEM: [SchemaAttribute; 4] = [
    attribute(
        UPSTREAM,
        AttributeKind::Text,
        false,
        "The id of its upstream.",
    ),
    attribute(
        NATIVE,
        AttributeKind::Text,
        false,
        "The upstream's own name for it: the URI of a resource, the URI template of a template.",
    ),
    attribute(
        NAME,
        AttributeKind::Text,
        false,
        "Its name, or URI, on the endpoint.",
    ),
    attribute(ENDPOINT, AttributeKind::Text, false, "The endpoint's path."),
];

const HINTS: [SchemaAttribute; 4] = [
    attribute(
        "readOnlyHint",
        AttributeKind::Switch,
        true,
        "The tool is read-only.",
    ),
    attribute(
        "destructiveHint",
        AttributeKind::Switch,
        true,
        "The tool may do destructive updates.",
    ),
    attribute(
        "idempotentHint",
        AttributeKind::Switch,
        true,
        "A repeated call has no further effect.",
    ),
    attribute(
        "openWorldHint",
        AttributeKind::Switch,
        true,
        "The tool interacts with systems outside its server.",
    ),
];

/// True if an attribute is an annotation that only tools may have.
pub(super) fn is_annotation(name: &str) -> bool {
    HINTS.iter().any(|hint| hint.name == name)
}

/// The member of `call`'s context that holds the arguments.
pub(super) const ARGUMENTS: &str = "arguments";

/// The schema as text, as in `docs/policy.cedarschema`.
#[must_use]
pub fn schema() -> String {
    let mut out = String::from(
        "// The Cedar schema of weir's rules. Generated from the code: `weir docs cedar-schema`.\n\n\
         // A group of principals: `principal in Group::\"staff\"`.\nentity Group;\n\n\
         // The caller: `Principal::\"ISSUER SUBJECT\"`, or `Principal::\"anonymous\"`. Tags: further claims, by name.\n\
         entity Principal in [Group] {\n",
    );
    attributes(&mut out, &PRINCIPAL);
    out.push_str(
        "} tags String;\n\n\
         // A server behind weir, by its id, and a path for clients.\nentity Upstream;\nentity Endpoint;\n\n\
         // A tool: `Tool::\"upstream/tool\"`, with the upstream's own name for it. The hints are set by the operator, or by\n\
         // an upstream with `trust: trusted`. Otherwise these attributes are absent.\n\
         entity Tool in [Upstream, Endpoint] {\n",
    );
    attributes(&mut out, &ITEM);
    attributes(&mut out, &HINTS);
    out.push_str(
        "};\n\n// A prompt, a resource and a resource template. Their names are like those of tools: `Resource::\"upstream/URI\"`.\n",
    );
    for other in ["Prompt", "Resource", "ResourceTemplate"] {
        out.push_str(&format!("entity {other} in [Upstream, Endpoint] {{\n"));
        attributes(&mut out, &ITEM);
        out.push_str("};\n");
    }
    out.push_str(
        "\n\
         // The arguments of a call. Tags: a JSON pointer such as \"/path\" or \"/items/0/id\", and the text of its value.\n\
         // Only strings, numbers, true, false and null have tags. An object or array has the tags of its members.\n\
         entity Arguments tags String;\n\n\
         // Lists an item. A caller that may not see an item may not call it.\n\
         action \"see\" appliesTo {\n    principal: Principal,\n    resource: [Tool, Prompt, Resource, ResourceTemplate],\n    \
         context: {},\n};\n\n\
         // Calls a tool, gets a prompt, reads a resource, or completes an argument of a prompt or resource template.\n\
         action \"call\" appliesTo {\n    principal: Principal,\n    resource: [Tool, Prompt, Resource, ResourceTemplate],\n    \
         context: { arguments: Arguments },\n};\n",
    );
    out
}

fn attributes(out: &mut String, attributes: &[SchemaAttribute]) {
    for SchemaAttribute {
        name,
        kind,
        optional,
        about,
    } in attributes
    {
        let kind = match kind {
            AttributeKind::Text => "String",
            AttributeKind::Texts => "Set<String>",
            AttributeKind::Switch => "Bool",
        };
        let mark = if *optional { "?" } else { "" };
        out.push_str(&format!("    // {about}\n    {name}{mark}: {kind},\n"));
    }
}

/// The same, parsed. The text is a constant except for its form, and a test parses it.
pub(super) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let (schema, _) = Schema::from_cedarschema_str(&schema())
        .expect("the schema is made of the tables above; a test reads it");
    schema
});

/// The entity types of the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum SchemaEntity {
    Group,
    Principal,
    Upstream,
    Endpoint,
    Tool,
    Prompt,
    Resource,
    ResourceTemplate,
    Arguments,
    Action,
}

impl SchemaEntity {
    /// The entity of this type with an id.
    pub(super) fn id(self, id: &str) -> EntityUid {
        static NAMES: LazyLock<[EntityTypeName; 10]> = LazyLock::new(|| {
            [
                "Group",
                "Principal",
                "Upstream",
                "Endpoint",
                "Tool",
                "Prompt",
                "Resource",
                "ResourceTemplate",
                "Arguments",
                "Action",
            ]
            .map(|name| name.parse().expect("each is a plain word"))
        });
        EntityUid::from_type_name_and_id(NAMES[self as usize].clone(), EntityId::new(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_can_be_read_and_has_the_two_actions() {
        let mut actions: Vec<String> = SCHEMA.actions().map(ToString::to_string).collect();
        actions.sort();
        assert_eq!(actions, ["Action::\"call\"", "Action::\"see\""]);
    }
}
