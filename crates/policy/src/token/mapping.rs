//! From claims to a subject: scopes, groups, the actor, and the claims that the operator's rules
//! read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};
use weir_core::principal::Subject;

use super::claims::TokenClaims;
use super::token_refusal::TokenRefusal;
use crate::settings::{TokenIssuer, VerifierSettings};

/// The most scopes, and the most groups, of a subject. More are refused: leaving some out could
/// invert a rule.
const MOST: usize = 256;
/// The longest further claim that is kept.
const LONGEST_CLAIM: usize = 1024;

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
        collect(at(claims, path), false, &mut groups)?;
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
    let further = issuer
        .claims
        .iter()
        .filter_map(|name| Some((name.clone(), text(claims.get(&**name)?)?)));
    subject.claims = further.collect();
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
    if into.len() > MOST {
        Err(TokenRefusal::Claims)
    } else {
        Ok(())
    }
}

/// The value at a path into the claims.
fn at<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(claims.get(first)?, |value, name| value.get(name))
}

/// A scalar as text.
fn text(value: &Value) -> Option<Arc<str>> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (text.len() <= LONGEST_CLAIM).then(|| text.into())
}
