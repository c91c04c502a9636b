//! The members of a record about a principal.

use weir_core::Principal;

use crate::record::record_object::RecordObject;

/// Writes the principal, its actor and its client. The anonymous principal has no members.
pub(super) fn write_principal(principal: &Principal, record: &mut RecordObject<'_>) {
    let Some(subject) = principal.subject() else {
        return;
    };
    record.object("principal", |who| {
        who.text("issuer", subject.issuer())
            .text("subject", subject.subject());
    });
    record
        .optional_text("actor", subject.actor.as_deref())
        .optional_text("client", subject.client.as_deref());
}
