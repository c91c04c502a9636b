//! The comparison of what two credentials of one principal say about it.

use std::collections::BTreeSet;

use weir_core::Principal;
use weir_core::principal::Subject;

/// True if both are equal, and no rule can tell their scopes, groups and other claims apart.
#[must_use]
pub fn have_same_claims(own: &Principal, other: &Principal) -> bool {
    match (own.subject(), other.subject()) {
        (Some(own), Some(other)) => are_same(own, other),
        (own, other) => own.is_none() && other.is_none(),
    }
}

fn are_same(own: &Subject, other: &Subject) -> bool {
    own.digest() == other.digest()
        && is_same_set(&own.scopes, &other.scopes)
        && is_same_set(&own.groups, &other.groups)
        && is_same_set(&own.claims, &other.claims)
        && (&own.client, &own.actor) == (&other.client, &other.actor)
}

/// An issuer may name the members of a claim in any order.
fn is_same_set<T: Ord>(own: &[T], other: &[T]) -> bool {
    let sets = [own, other].map(|members| members.iter().collect::<BTreeSet<_>>());
    sets[0] == sets[1]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn claims_are_the_same_in_any_order() {
        let of = |change: &dyn Fn(&mut Subject)| {
            let mut subject = Subject::new("issuer", "ada");
            subject.groups = Arc::new(["a".into(), "b".into()]);
            change(&mut subject);
            subject
        };
        let ada = of(&|_| ());
        let later: [&dyn Fn(&mut Subject); 2] = [
            &|subject| subject.groups = Arc::new(["b".into(), "a".into()]),
            &|subject| subject.expires = Some(SystemTime::UNIX_EPOCH),
        ];
        for change in later {
            assert!(are_same(&of(change), &ada));
        }
        let other: [&dyn Fn(&mut Subject); 5] = [
            &|subject| subject.groups = Arc::new(["a".into()]),
            &|subject| subject.scopes = Arc::new(["read".into()]),
            &|subject| subject.claims = Arc::new([("team".into(), "x".into())]),
            &|subject| subject.client = Some("cli".into()),
            &|subject| subject.actor = Some("bot".into()),
        ];
        for change in other {
            assert!(!are_same(&of(change), &ada));
        }
        let (ada, anonymous) = (
            Principal::owner(Some(("issuer", "ada"))),
            Principal::owner(None),
        );
        assert!(have_same_claims(&ada, &ada) && have_same_claims(&anonymous, &anonymous));
        assert!(!have_same_claims(&ada, &anonymous) && !have_same_claims(&anonymous, &ada));
    }
}
