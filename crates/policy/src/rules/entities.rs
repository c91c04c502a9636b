//! The facts for rules: the principal and the tool as Cedar entities, and the audience that a
//! principal belongs to.

use std::collections::BTreeMap;

use cedar_policy::{Entity, EntityUid, RestrictedExpression};
use sha2::{Digest, Sha256};
use weir_core::names::EndpointId;
use weir_core::port::Audience;
use weir_core::principal::{Principal, Subject};
use weir_core::upstream::ListKind;

use crate::rules::attribute_reads::AttributeReads;
use crate::rules::cedar_schema::{
    ACTOR, ANONYMOUS, CLIENT, ENDPOINT, GROUPS, ISSUER, NAME, NATIVE, SCOPES, SUBJECT,
    SchemaEntity, UPSTREAM,
};
use crate::rules::policy_target::PolicyTarget;

type EntityAttributes = Vec<(String, RestrictedExpression)>;

/// A principal's own entity. A space in the issuer would let two principals share an id.
pub(super) fn principal_id(principal: &Principal) -> EntityUid {
    match principal.subject() {
        None => SchemaEntity::Principal.id(ANONYMOUS),
        Some(subject) => SchemaEntity::Principal.id(&format!(
            "{} {}",
            subject.issuer().replace(' ', "%20"),
            subject.subject()
        )),
    }
}

/// The groups of a principal.
pub(super) fn groups(principal: &Principal) -> Vec<EntityUid> {
    principal
        .subject()
        .map(|subject| {
            subject
                .groups
                .iter()
                .map(|group| SchemaEntity::Group.id(group))
                .collect()
        })
        .unwrap_or_default()
}

/// The entity of a principal.
///
/// # Errors
/// For the log; cannot happen with attributes that are plain texts.
pub(super) fn principal(principal: &Principal) -> Result<Entity, String> {
    let mut attributes: EntityAttributes = Vec::with_capacity(7);
    let subject = principal.subject();
    let (issuer, name) = subject
        .map(|subject| (subject.issuer(), subject.subject()))
        .unwrap_or_default();
    attributes.push((
        ANONYMOUS.to_owned(),
        RestrictedExpression::new_bool(subject.is_none()),
    ));
    attributes.push((ISSUER.to_owned(), text(issuer)));
    attributes.push((SUBJECT.to_owned(), text(name)));
    attributes.push((
        SCOPES.to_owned(),
        texts(subject.map(|subject| &*subject.scopes).unwrap_or_default()),
    ));
    attributes.push((
        GROUPS.to_owned(),
        texts(subject.map(|subject| &*subject.groups).unwrap_or_default()),
    ));
    attributes.extend(
        subject
            .and_then(|subject| subject.client.as_deref())
            .map(|it| (CLIENT.to_owned(), text(it))),
    );
    attributes.extend(
        subject
            .and_then(|subject| subject.actor.as_deref())
            .map(|it| (ACTOR.to_owned(), text(it))),
    );
    let claims = subject.map(|subject| &*subject.claims).unwrap_or_default();
    // Of two claims of one name the last counts.
    let claims: BTreeMap<&str, &str> = claims
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let tags = claims
        .into_iter()
        .map(|(name, value)| (name.to_owned(), text(value)));
    Entity::new_with_tags(principal_id(principal), attributes, groups(principal), tags)
        .map_err(|error| error.to_string())
}

/// The entity of a tool on an endpoint, and its parents.
pub(super) fn tool_ids(target: &PolicyTarget<'_>) -> [EntityUid; 3] {
    let PolicyTarget {
        kind,
        endpoint,
        upstream,
        native,
        ..
    } = target;
    let own = match kind {
        ListKind::Tools => SchemaEntity::Tool,
        ListKind::Prompts => SchemaEntity::Prompt,
        ListKind::Resources => SchemaEntity::Resource,
        ListKind::Templates => SchemaEntity::ResourceTemplate,
    };
    [
        // An upstream's id has no `/`, so this is unambiguous.
        own.id(&format!("{upstream}/{native}")),
        SchemaEntity::Upstream.id(upstream.as_str()),
        SchemaEntity::Endpoint.id(endpoint.as_str()),
    ]
}

/// The entity of a tool: its names, and its trusted hints.
///
/// # Errors
/// As [`principal`].
pub(super) fn tool(target: &PolicyTarget<'_>) -> Result<Entity, String> {
    let [own, upstream, path] = tool_ids(target);
    let mut attributes: EntityAttributes = vec![
        (UPSTREAM.to_owned(), text(target.upstream.as_str())),
        (NATIVE.to_owned(), text(target.native)),
        (NAME.to_owned(), text(target.name)),
        (ENDPOINT.to_owned(), text(target.endpoint.as_str())),
    ];
    let hints = target
        .hints
        .named()
        .into_iter()
        .filter(|_| target.kind == ListKind::Tools);
    attributes.extend(
        hints.filter_map(|(name, hint)| {
            Some((name.to_owned(), RestrictedExpression::new_bool(hint?)))
        }),
    );
    Entity::new_with_tags(own, attributes, [upstream, path], []).map_err(|error| error.to_string())
}

/// The audience of principals that look the same to rules that read `reads`, and have the same
/// scopes if those count.
pub(super) fn audience(
    seed: &Sha256,
    endpoint: &EndpointId,
    principal: &Principal,
    reads: AttributeReads,
) -> Audience {
    let mut hash = seed.clone();
    let mut put = |part: &str| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    };
    put(endpoint.as_str());
    match principal.subject() {
        None => put("nobody"),
        Some(subject) => {
            put("somebody");
            describe(subject, reads, &mut put);
        }
    }
    let full: [u8; 32] = hash.finalize().into();
    let mut name = [0; 16];
    name.copy_from_slice(&full[..16]);
    Audience(name)
}

/// Each part with its name in front, so that no part can pass for another; sets in one order.
fn describe(subject: &Subject, reads: AttributeReads, put: &mut impl FnMut(&str)) {
    let one = |read: bool, name: &str, value: Option<&str>, put: &mut dyn FnMut(&str)| {
        if let Some(value) = value.filter(|_| read) {
            put(name);
            put(value);
        }
    };
    one(reads.issuer, ISSUER, Some(subject.issuer()), put);
    one(reads.subject, SUBJECT, Some(subject.subject()), put);
    one(reads.client, CLIENT, subject.client.as_deref(), put);
    one(reads.actor, ACTOR, subject.actor.as_deref(), put);
    for (read, name, values) in [
        (reads.scopes, SCOPES, &subject.scopes),
        (reads.groups, GROUPS, &subject.groups),
    ] {
        if read {
            let mut sorted: Vec<&str> = values.iter().map(|value| &**value).collect();
            sorted.sort_unstable();
            sorted.dedup();
            put(name);
            put(&sorted.len().to_string());
            sorted.into_iter().for_each(&mut *put);
        }
    }
    if reads.claims {
        let mut sorted: Vec<(&str, &str)> = subject
            .claims
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        sorted.sort_unstable();
        put("claims");
        put(&sorted.len().to_string());
        sorted.into_iter().for_each(|(name, value)| {
            put(name);
            put(value);
        });
    }
}

fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

fn texts(values: &[std::sync::Arc<str>]) -> RestrictedExpression {
    RestrictedExpression::new_set(values.iter().map(|value| text(value)))
}
