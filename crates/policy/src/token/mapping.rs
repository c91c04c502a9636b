//! From claims to a subject: scopes, groups, the actor, and the claims that the operator's rules
//! read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};
use weir_core::principal::Subject;

use crate::settings::{TokenIssuer, VerifierSettings};
use crate::token::claims::TokenClaims;
use crate::token::token_refusal::TokenRefusal;

/// The most scopes, and the most groups, of a subject. More are refused: leaving some out could
/// invert a rule.
const MAX_SCOPES_OR_GROUPS: usize = 256;
/// The longest further claim that is kept.
const MAX_CLAIM: usize = 1024;

/// Makes a subject of claims.
pub(crate) fn subject(
    claims: &TokenClaims,
    issuer: &TokenIssuer,
    settings: &VerifierSettings,
) -> Result<Subject, TokenRefusal> {
    let mut subject = Subject::new(issuer.name.clone(), claims.subject.clone());
    let expires = claims.times().end(settings.leeway);
    let claims = &claims.all;
    let mut given = BTreeSet::new();
    for name in ["scope", "scp"] {
        collect(claims.get(name), true, &mut given)?;
    }
    subject.scopes = with_implied(given, &settings.implied);
    let mut groups = BTreeSet::new();
    for path in &issuer.groups {
        collect(claim(claims, path)?, false, &mut groups)?;
    }
    subject.groups = groups.into_iter().collect();
    // RFC 9068 has `client_id`; OpenID's providers have `azp`.
    subject.client = ["client_id", "azp"]
        .iter()
        .find_map(|name| claims.get(*name)?.as_str())
        .map(Arc::from);
    subject.actor = claims
        .get("act")
        .and_then(|act| act.get("sub")?.as_str())
        .map(Arc::from);
    let mut further = Vec::new();
    for path in &issuer.claims {
        if let Some(text) = claim(claims, path)?.and_then(text) {
            further.push((path.clone(), text));
        }
    }
    subject.claims = further.into();
    subject.expires = expires;
    subject.is_by_token = true;
    Ok(subject)
}

/// The scopes, and all that they include.
pub(crate) fn with_implied(
    mut given: BTreeSet<Arc<str>>,
    implied: &HashMap<Arc<str>, Vec<Arc<str>>>,
) -> Arc<[Arc<str>]> {
    if !implied.is_empty() {
        let mut next: Vec<Arc<str>> = given.iter().cloned().collect();
        while let Some(scope) = next.pop() {
            for more in implied.get(&scope).into_iter().flatten() {
                if given.insert(more.clone()) {
                    next.push(more.clone());
                }
            }
        }
    }
    given.into_iter().collect()
}

/// The texts of a claim: a list of texts, or one text; with `words`, each word of that text.
fn collect(
    claim: Option<&Value>,
    words: bool,
    into: &mut BTreeSet<Arc<str>>,
) -> Result<(), TokenRefusal> {
    match claim {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) if words => into.extend(
            text.split(' ')
                .filter(|word| !word.is_empty())
                .map(Arc::from),
        ),
        Some(Value::String(text)) => {
            into.insert(text.as_str().into());
        }
        Some(Value::Array(list)) => {
            for item in list {
                into.insert(item.as_str().ok_or(TokenRefusal::Claims)?.into());
            }
        }
        Some(_) => return Err(TokenRefusal::Claims),
    }
    if into.len() > MAX_SCOPES_OR_GROUPS {
        Err(TokenRefusal::Claims)
    } else {
        Ok(())
    }
}

/// The value at a path into the claims.
///
/// A claim that the token only refers to (OpenID Connect Core, 5.6.2; some providers do so for
/// long lists of groups) is refused: without it, a subject would have none of its groups.
fn claim<'a>(
    claims: &'a Map<String, Value>,
    path: &str,
) -> Result<Option<&'a Value>, TokenRefusal> {
    let elsewhere = claims.get("_claim_names").and_then(Value::as_object);
    match elsewhere.is_some_and(|names| begins_at(names, path)) {
        true => Err(TokenRefusal::Claims),
        false => Ok(at(claims, path)),
    }
}

/// True if a path is the name of a member, or goes through it.
fn begins_at(names: &Map<String, Value>, path: &str) -> bool {
    let mut dots = path.match_indices('.');
    names.contains_key(path) || dots.any(|(dot, _)| names.contains_key(&path[..dot]))
}

/// The value at a path of names with dots between them. A name may have dots itself: a whole rest
/// of the path that is a name wins, then the shortest beginning that is one.
fn at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let within = |dot: usize| at(claims.get(&path[..dot])?.as_object()?, &path[dot + 1..]);
    let mut dots = path.match_indices('.');
    claims
        .get(path)
        .or_else(|| dots.find_map(|(dot, _)| within(dot)))
}

/// A scalar as text.
fn text(value: &Value) -> Option<Arc<str>> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (text.len() <= MAX_CLAIM).then(|| text.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    fn found(claims: &Value, path: &str) -> Result<Option<Value>, TokenRefusal> {
        claim(claims.as_object().unwrap(), path).map(Option::<&Value>::cloned)
    }

    #[test]
    fn claims_are_found_by_paths_whose_names_may_have_dots() {
        let claims = json!({
            "groups": 1,
            "https://example.com/roles": 2,
            "realm": {"roles": 3, "a.b": 4},
            "resource_access": {"my.client": {"roles": 5}},
            "x": {"y": 6},
            "x.y": 7,
        });
        for (path, value) in [
            ("groups", Some(1)),
            ("https://example.com/roles", Some(2)),
            ("realm.roles", Some(3)),
            ("realm.a.b", Some(4)),
            ("resource_access.my.client.roles", Some(5)),
            ("x.y", Some(7)),
            ("x.z", None),
            ("groups.a", None),
            ("", None),
            (".", None),
        ] {
            let found = found(&claims, path).unwrap();
            assert_eq!(found.and_then(|value| value.as_i64()), value, "{path}");
        }
    }

    #[test]
    fn claims_that_a_token_only_refers_to_are_refused() {
        let claims = json!({
            "roles": ["a"],
            "_claim_names": {"groups": "src1", "realm": "src1"},
            "_claim_sources": {"src1": {"endpoint": "https://graph.example/groups"}},
        });
        for path in ["groups", "realm.roles"] {
            assert_eq!(found(&claims, path), Err(TokenRefusal::Claims), "{path}");
        }
        assert_eq!(found(&claims, "roles"), Ok(Some(json!(["a"]))));
        assert_eq!(found(&claims, "other"), Ok(None));
    }
}
