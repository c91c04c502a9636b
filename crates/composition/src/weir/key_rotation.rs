//! The rotation of `keys` by a reload: which lists may replace the one in force, and the order in
//! which the parts get it.

use std::time::Duration;

use weir_cluster::ClusterTls;
use weir_config::{Config, SealingKey};
use weir_core::port::Clock;
use weir_front::Front;
use weir_seal::{SealerKey, SealingKeyName};
use weir_store::TaskCaps;

use crate::weir::applied_config::keys_need_restart;
use crate::weir::components::Components;
use crate::weir::errors::ReloadError;
use crate::weir::shared_keys::{cluster_tls, sealer_keys};

/// New keys that may replace those in force.
pub(super) struct NewKeys<'a> {
    keys: &'a [SealingKey],
    /// Absent if the store is not shared.
    tls: Option<ClusterTls>,
    names: Vec<SealingKeyName>,
    /// The longest life of a text that was sealed with an old key.
    lifetime: Duration,
}

impl<'a> NewKeys<'a> {
    /// Checks the keys of a config. `None` if it brings no new ones, or needs a restart for them.
    ///
    /// # Errors
    /// A key that still seals is not among them, or the TLS library refuses one.
    pub(super) fn prepare(
        started: &Config,
        config: &'a Config,
        components: &Components,
    ) -> Result<Option<Self>, ReloadError> {
        if config.keys.is_empty() || keys_need_restart(started, config) {
            return Ok(None);
        }
        let keys = sealer_keys(&config.keys);
        let names: Vec<_> = keys.iter().map(SealerKey::name).collect();
        if names == components.base.sealer.key_names() {
            return Ok(None);
        }
        check_uses(&names, components)?;
        let tls = components
            .replicas
            .as_ref()
            .map(|_| cluster_tls(&config.keys))
            .transpose()
            .map_err(ReloadError::Keys)?;
        let sessions = config.front.limits.session.session_age;
        Ok(Some(Self {
            keys: &config.keys,
            tls,
            names,
            lifetime: sessions.max(TaskCaps::default().time),
        }))
    }

    /// Puts the keys in force. Alone, this process seals with the first at once; with others it
    /// waits until all have it.
    pub(super) fn take(&self, components: &Components, front: &Front) {
        let (sealer, clock) = (&components.base.sealer, &*components.base.clock);
        self.warn_of_removals(components, clock);
        let keys = sealer_keys(self.keys);
        match (&components.replicas, &self.tls) {
            (Some(replicas), Some(tls)) => replicas.replace_keys(keys, tls.clone(), front),
            _ => {
                sealer.replace(keys);
                if let Some(first) = self.names.first() {
                    sealer.seal_with(*first, clock.monotonic());
                    tracing::info!(key = first.id, "sealing keys replaced");
                }
            }
        }
    }

    /// Logs keys that sealed texts which clients may still bring back.
    fn warn_of_removals(&self, components: &Components, clock: &dyn Clock) {
        let sealer = &components.base.sealer;
        for name in sealer.key_names() {
            let Some(until) = sealer
                .sealed_until(name)
                .filter(|_| !self.names.contains(&name))
            else {
                continue;
            };
            let since = clock.monotonic().saturating_sub(until);
            if since < self.lifetime {
                tracing::warn!(
                    key = name.id,
                    sealed_seconds_ago = since.as_secs(),
                    lifetime_seconds = self.lifetime.as_secs(),
                    "sealing key removed early: older sessions and tasks are lost"
                );
            }
        }
    }
}

/// Refuses keys without one that still seals: every session opened with it would be lost.
fn check_uses(kept: &[SealingKeyName], components: &Components) -> Result<(), ReloadError> {
    let Some(replicas) = &components.replicas else {
        let sealing = components.base.sealer.sealing_key();
        if kept.contains(&sealing) {
            return Ok(());
        }
        return Err(ReloadError::Keys(format!(
            "key {} still seals: put the new key before it in `keys`, and remove it with a later reload",
            sealing.id
        )));
    };
    match replicas.lost_key_use(kept) {
        None => Ok(()),
        Some(used) => Err(ReloadError::Keys(format!(
            "{used}: put the new key before it in `keys` of all replicas, and remove it once `weir admin replicas` shows that all seal with the new one"
        ))),
    }
}
