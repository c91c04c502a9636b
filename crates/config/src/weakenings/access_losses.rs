//! Credentials of clients and operators, and TLS.

use weir_config_file::config_report::ConfigPath;
use weir_policy::settings::{TokenIssuer, TokenValidation};

use crate::admin_plan::AdminPlan;
use crate::checked_config::Config;
use crate::weakenings::weakening::ProtectionLoss;

pub(super) fn credentials(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let is_lost = old.auth.required && !new.auth.required;
    let loss = || {
        let message = "clients would no longer need credentials";
        ProtectionLoss::new(
            ConfigPath::at("auth.mode"),
            message,
            "write auth: { mode: none, allow_anyone: true }",
        )
    };
    is_lost.then(loss).into_iter().collect()
}

/// Finds issuers that had to mark their access tokens by type, and need not any more.
pub(super) fn token_types(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let is_strict = |issuer: &TokenIssuer| {
        matches!(
            issuer.validation,
            TokenValidation::Keys {
                strict_type: true,
                ..
            }
        )
    };
    let issuers = old.auth.issuers.iter().filter(|issuer| is_strict(issuer));
    let lost = issuers.filter(|issuer| {
        let now = new.auth.issuers.iter().find(|now| now.name == issuer.name);
        now.is_some_and(|now| {
            matches!(
                now.validation,
                TokenValidation::Keys {
                    strict_type: false,
                    ..
                }
            )
        })
    });
    let loss = |issuer: &TokenIssuer| {
        let path = ConfigPath::at("auth.issuers")
            .key(&issuer.name)
            .key("strict_type");
        ProtectionLoss::new(
            path,
            "tokens of other types would be accepted",
            "write strict_type: false there",
        )
    };
    lost.map(loss).collect()
}

/// Finds API keys that had an expiry.
pub(super) fn key_expiries(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let ending = old.auth.api_keys.iter().filter(|key| key.expires.is_some());
    let lost = ending.filter(|key| {
        let now = new.auth.api_keys.iter().find(|now| now.id == key.id);
        now.is_some_and(|now| now.expires.is_none())
    });
    lost.map(|key| expiry_loss(&ConfigPath::at("auth.api_keys").key(&key.id)))
        .collect()
}

fn expiry_loss(path: &ConfigPath) -> ProtectionLoss {
    ProtectionLoss::without_own_key(path.key("expires"), "the key would never expire")
}

pub(super) fn operators(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let is_lost = is_guarded(old) && new.admin.as_ref().is_some_and(|plan| !plan.is_guarded());
    let loss = || {
        let message = "operators would no longer need credentials";
        ProtectionLoss::new(
            ConfigPath::at("admin.auth"),
            message,
            "write admin: { auth: off }",
        )
    };
    is_lost.then(loss).into_iter().collect()
}

fn is_guarded(config: &Config) -> bool {
    config.admin.as_ref().is_some_and(AdminPlan::is_guarded)
}

/// Finds metrics that only operators could read. If operators need no credentials any more, only
/// that loss is reported.
pub(super) fn metrics(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let is_closed = |config: &Config| config.admin.as_ref().is_some_and(|plan| !plan.open_metrics);
    let is_lost = is_closed(old) && is_guarded(new) && !is_closed(new);
    let loss = || {
        let message = "every client that reaches the listener could read the metrics";
        ProtectionLoss::new(
            ConfigPath::at("admin.metrics"),
            message,
            "write metrics: open",
        )
    };
    is_lost.then(loss).into_iter().collect()
}

/// Finds operators' tokens that had an expiry.
pub(super) fn operator_expiries(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let keys = |config: &Config| {
        config
            .admin
            .as_ref()
            .map(|plan| plan.keys.clone())
            .unwrap_or_default()
    };
    let now = keys(new);
    let lost = keys(old).into_iter().filter(|key| {
        let is_endless = now
            .iter()
            .any(|now| now.name == key.name && now.expires.is_none());
        key.expires.is_some() && is_endless
    });
    lost.map(|key| expiry_loss(&ConfigPath::at("admin.auth.tokens").key(&key.name)))
        .collect()
}

pub(super) fn tls(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let Some(was) = &old.front.tls else {
        return Vec::new();
    };
    let Some(now) = &new.front.tls else {
        let message = "connections of clients would no longer be encrypted";
        return vec![ProtectionLoss::new(
            ConfigPath::at("tls"),
            message,
            "write tls: off",
        )];
    };
    if !was.clients.as_ref().is_some_and(|clients| clients.required) {
        return Vec::new();
    }
    let message = "clients would no longer need a certificate";
    match &now.clients {
        Some(clients) if clients.required => Vec::new(),
        Some(_) => vec![ProtectionLoss::new(
            ConfigPath::at("tls.client_auth"),
            message,
            "write client_auth: optional",
        )],
        None => vec![ProtectionLoss::without_own_key(
            ConfigPath::at("tls.client_ca"),
            message,
        )],
    }
}
