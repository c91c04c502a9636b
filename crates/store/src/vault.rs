//! Outbound credentials of principals, in memory: they end with the process, so no secret at rest
//! needs a seal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use weir_core::Principal;
use weir_core::port::{Clock, CredentialVault, Fut, StoreError};

use crate::lock;

/// Secrets of one principal: at most one for each upstream.
const MAX_SECRETS_PER_PRINCIPAL: usize = 500;
/// Secrets of all principals.
const MAX_SECRETS: usize = 200_000;

struct VaultEntry {
    secret: Bytes,
    ends: Duration,
}

#[derive(Default)]
struct VaultEntries {
    by_principal: HashMap<Principal, HashMap<Box<str>, VaultEntry>>,
    total: usize,
}

impl VaultEntries {
    fn sweep(&mut self, now: Duration) {
        self.by_principal.retain(|_, kept| {
            kept.retain(|_, one| one.ends > now);
            !kept.is_empty()
        });
        self.total = self.by_principal.values().map(HashMap::len).sum();
    }
}

/// Secrets by principal and name: at most 500 a principal and 200,000 altogether.
pub struct MemoryVault {
    clock: Arc<dyn Clock>,
    entries: Mutex<VaultEntries>,
}

impl MemoryVault {
    /// An empty vault.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            entries: Mutex::default(),
        }
    }

    fn keep_now(
        &self,
        principal: &Principal,
        name: &str,
        kept: VaultEntry,
    ) -> Result<(), StoreError> {
        let now = self.clock.monotonic();
        let mut held = lock(&self.entries);
        let there = held
            .by_principal
            .get(principal)
            .is_some_and(|own| own.contains_key(name));
        if there {
            held.total -= 1;
        } else {
            let own = held.by_principal.get(principal).map_or(0, HashMap::len);
            if held.total >= MAX_SECRETS || own >= MAX_SECRETS_PER_PRINCIPAL {
                held.sweep(now);
            }
            let own = held.by_principal.get(principal).map_or(0, HashMap::len);
            if held.total >= MAX_SECRETS || own >= MAX_SECRETS_PER_PRINCIPAL {
                return Err(StoreError("the vault is full".into()));
            }
        }
        held.by_principal
            .entry(principal.clone())
            .or_default()
            .insert(name.into(), kept);
        held.total += 1;
        Ok(())
    }
}

impl std::fmt::Debug for MemoryVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryVault").finish_non_exhaustive()
    }
}

impl CredentialVault for MemoryVault {
    fn open<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
    ) -> Fut<'a, Result<Option<Bytes>, StoreError>> {
        let now = self.clock.monotonic();
        let held = lock(&self.entries);
        let kept = held
            .by_principal
            .get(principal)
            .and_then(|own| own.get(name));
        let secret = kept
            .filter(|kept| kept.ends > now)
            .map(|kept| kept.secret.clone());
        Box::pin(std::future::ready(Ok(secret)))
    }

    fn keep<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
        secret: Bytes,
        ttl: Duration,
    ) -> Fut<'a, Result<(), StoreError>> {
        let kept = VaultEntry {
            secret,
            ends: self.clock.monotonic() + ttl,
        };
        Box::pin(std::future::ready(self.keep_now(principal, name, kept)))
    }

    fn forget<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
    ) -> Fut<'a, Result<(), StoreError>> {
        let mut held = lock(&self.entries);
        if let Some(own) = held.by_principal.get_mut(principal) {
            let gone = own.remove(name).is_some();
            if own.is_empty() {
                held.by_principal.remove(principal);
            }
            held.total -= usize::from(gone);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::fake::StoreManualClock;
    use crate::records::tests::principal;

    #[tokio::test]
    async fn a_secret_opens_for_its_principal_until_its_ttl() {
        let clock = Arc::new(StoreManualClock::default());
        let vault = MemoryVault::new(clock.clone());
        let (ann, bob) = (principal("ann").await, principal("bob").await);
        let secret = Bytes::from_static(b"token");
        vault
            .keep(&ann, "files", secret.clone(), Duration::from_secs(60))
            .await
            .unwrap();
        assert_eq!(
            vault.open(&ann, "files").await.unwrap(),
            Some(secret.clone())
        );
        assert_eq!(vault.open(&bob, "files").await.unwrap(), None);
        assert_eq!(vault.open(&ann, "other").await.unwrap(), None);
        clock.advance(Duration::from_secs(60));
        assert_eq!(vault.open(&ann, "files").await.unwrap(), None);
        vault
            .keep(&ann, "files", secret, Duration::from_secs(60))
            .await
            .unwrap();
        vault.forget(&ann, "files").await.unwrap();
        assert_eq!(vault.open(&ann, "files").await.unwrap(), None);
        assert_eq!(lock(&vault.entries).total, 0);
    }

    #[tokio::test]
    async fn one_principal_cannot_fill_the_vault() {
        let clock = Arc::new(StoreManualClock::default());
        let vault = MemoryVault::new(clock.clone());
        let (ann, bob) = (principal("ann").await, principal("bob").await);
        let ttl = Duration::from_secs(60);
        for n in 0..MAX_SECRETS_PER_PRINCIPAL {
            vault
                .keep(&ann, &n.to_string(), Bytes::new(), ttl)
                .await
                .unwrap();
        }
        assert!(vault.keep(&ann, "more", Bytes::new(), ttl).await.is_err());
        vault.keep(&ann, "0", Bytes::new(), ttl).await.unwrap();
        vault.keep(&bob, "0", Bytes::new(), ttl).await.unwrap();
        clock.advance(ttl);
        vault.keep(&ann, "more", Bytes::new(), ttl).await.unwrap();
        assert_eq!(lock(&vault.entries).total, 1);
    }
}
