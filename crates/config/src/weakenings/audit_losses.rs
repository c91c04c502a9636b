//! The audit log: its existence, its destinations, and the key that signs it.

use weir_audit::AuditPlan;
use weir_config_file::config_report::ConfigPath;

use crate::checked_config::Config;
use crate::weakenings::weakening::ProtectionLoss;

/// A part of the audit log: its key, its presence in a plan, the message about its loss, and the
/// hint that gives it up.
type AuditPart = (
    &'static str,
    fn(&AuditPlan) -> bool,
    &'static str,
    Option<&'static str>,
);

pub(super) fn losses(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let Some(was) = &old.audit else {
        return Vec::new();
    };
    let at = ConfigPath::at("audit");
    let Some(now) = &new.audit else {
        return vec![ProtectionLoss::new(
            at,
            "records would no longer be kept",
            "write audit: off",
        )];
    };
    let has: [AuditPart; 5] = [
        (
            "file",
            |plan| plan.file.is_some(),
            "records would no longer be written to a file",
            None,
        ),
        (
            "stdout",
            |plan| plan.stdout,
            "records would no longer be written to standard output",
            Some("write stdout: false"),
        ),
        (
            "otlp",
            |plan| plan.otlp.is_some(),
            "records would no longer be sent to the collector",
            None,
        ),
        (
            "on_failure",
            |plan| plan.closed,
            "calls would continue while records cannot be kept",
            Some("write on_failure: open"),
        ),
        (
            "key",
            |plan| plan.key.is_some(),
            "the chain of records would no longer be signed",
            None,
        ),
    ];
    let lost = has.into_iter().filter(|(_, has, ..)| has(was) && !has(now));
    lost.map(|(key, _, message, words)| ProtectionLoss {
        path: at.key(key),
        message: message.to_owned(),
        waiver_hint: words,
    })
    .collect()
}
