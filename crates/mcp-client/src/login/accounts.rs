//! The store of logins: `$XDG_STATE_HOME/weir/tokens.json`, readable by its owner alone.
//!
//! One file for all servers. It is replaced as a whole, by a rename, under a lock. So two commands
//! never see half of it and never refresh the same token twice.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::task::spawn_blocking;
use url::Url;

use crate::login::grant;
use crate::login::login_account::LoginAccount;
use crate::login::login_error::LoginError;
use crate::login::server_url::{covers, key, server_url};

/// All logins of this user on this machine.
#[derive(Debug)]
pub struct LoginAccounts {
    file: PathBuf,
}

/// The outcome of [`LoginAccounts::forget`].
#[derive(Debug)]
pub enum Logout {
    /// The login is removed.
    Done {
        /// The login.
        account: LoginAccount,
        /// The outcome of its revocation.
        revoked: Result<(), LoginError>,
    },
    /// There is no login for this URL; that for a resource above it, which its requests use, stays.
    NoLogin(Option<LoginAccount>),
}

impl LoginAccounts {
    /// Returns the logins of this user: in `XDG_STATE_HOME`, or `.local/state` in the home folder.
    ///
    /// # Errors
    ///
    /// Neither is set.
    pub fn of_this_user() -> Result<Self, LoginError> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let nowhere = || {
            LoginError::Unfit(
                "neither XDG_STATE_HOME nor HOME is set, so logins cannot be stored".to_owned(),
            )
        };
        Ok(Self::in_folder(&state.ok_or_else(nowhere)?.join("weir")))
    }

    fn in_folder(folder: &Path) -> Self {
        Self {
            file: folder.join("tokens.json"),
        }
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns a valid token for `server`. It is refreshed if it expires soon, or if the server
    /// refused the token in `anew`. Returns `None` without a login there, or after its end. A token
    /// that expires soon and cannot be refreshed serves until its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, or no token is left and the authorization server gives
    /// none now, or none any more ([`LoginError::NotRefreshed`]).
    pub async fn token(
        &self,
        server: &Url,
        anew: Option<&LoginAccount>,
    ) -> Result<Option<LoginAccount>, LoginError> {
        let refused = |account: &LoginAccount| {
            anew.is_some_and(|refused| refused.access_token == account.access_token)
        };
        let is_fresh =
            |account: &LoginAccount| !refused(account) && !account.expires_soon(SystemTime::now());
        // The file is replaced as a whole: it is read without the lock.
        let account = match for_server(&self.read()?, server) {
            Some(account) if !is_fresh(&account) => account,
            found => return Ok(found),
        };
        let renewed = self.renew(server, &is_fresh).await;
        let serves = !refused(&account) && !account.is_expired(SystemTime::now());
        if serves && !matches!(renewed, Ok(Some(_))) {
            return Ok(Some(account));
        }
        renewed
    }

    /// Refreshes the stored token for `server`, unless another command already has.
    async fn renew(
        &self,
        server: &Url,
        is_fresh: &(dyn Fn(&LoginAccount) -> bool + Sync),
    ) -> Result<Option<LoginAccount>, LoginError> {
        // A refresh token works once.
        let _lock = self.lock().await?;
        let mut all = self.read()?;
        let account = match for_server(&all, server) {
            Some(account) if !is_fresh(&account) => account,
            found => return Ok(found),
        };
        if account.refresh_token.is_some() {
            // Where the file cannot be written, the new refresh token would be lost.
            self.write(&all)?;
        }
        let Some(fresh) = grant::refresh(&account).await? else {
            return Ok(None);
        };
        all.insert(account_key(&fresh)?, fresh.clone());
        self.write(&all)?;
        Ok(Some(fresh))
    }

    /// Returns the scopes of the login for this very resource at this issuer, if the issuer gave
    /// them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn scope(&self, resource: &str, issuer: &str) -> Result<Option<String>, LoginError> {
        let key = key(&server_url(resource)?);
        let account = self.read()?.remove(&key);
        let account = account.filter(|account| account.issuer == issuer);
        Ok(account.and_then(|account| account.scope))
    }

    /// Keeps a login, and replaces an earlier one at the same resource.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn keep(&self, account: &LoginAccount) -> Result<(), LoginError> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| self.local("make", error))?;
        let _lock = self.lock().await?;
        let mut all = self.read()?;
        all.insert(account_key(account)?, account.clone());
        self.write(&all)
    }

    /// Removes the login for the resource at this very URL, and revokes it at its issuer.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub async fn forget(&self, server: &Url) -> Result<Logout, LoginError> {
        if !self.file.exists() {
            return Ok(Logout::NoLogin(None));
        }
        let _lock = self.lock().await?;
        let mut all = self.read()?;
        let Some(account) = all.remove(&key(server)) else {
            return Ok(Logout::NoLogin(for_server(&all, server)));
        };
        self.write(&all)?;
        let revoked = grant::revoke(&account).await;
        Ok(Logout::Done { account, revoked })
    }

    /// Waits for the lock that excludes other commands. Dropping the file releases it. A wait that
    /// is cancelled ends with the lock's release by its holder.
    async fn lock(&self) -> Result<File, LoginError> {
        let name = self.file.with_extension("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(name);
        let file = file.map_err(|error| self.local("lock", error))?;
        // Another command may hold it for as long as its authorization server takes to answer.
        let locked = spawn_blocking(move || file.lock().map(|()| file)).await;
        let locked = locked.map_err(io::Error::other).and_then(|locked| locked);
        locked.map_err(|error| self.local("lock", error))
    }

    fn read(&self) -> Result<BTreeMap<String, LoginAccount>, LoginError> {
        match fs::read(&self.file) {
            // The cause is not shown: it could quote a token.
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| {
                self.local(
                    "understand",
                    io::Error::other("it is not a valid file of logins; remove it"),
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(self.local("read", error)),
        }
    }

    fn write(&self, all: &BTreeMap<String, LoginAccount>) -> Result<(), LoginError> {
        let next = self.file.with_extension("next");
        let written = || {
            let _ = fs::remove_file(&next);
            let mut file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&next)?;
            file.write_all(&serde_json::to_vec_pretty(all)?)?;
            file.sync_all()?;
            fs::rename(&next, &self.file)
        };
        written().map_err(|error| self.local("write", error))
    }

    fn local(&self, what: &str, error: io::Error) -> LoginError {
        LoginError::Local {
            what: format!("cannot {what} {}", self.file.display()),
            error,
        }
    }
}

fn account_key(account: &LoginAccount) -> Result<String, LoginError> {
    server_url(&account.resource).map(|url| key(&url))
}

/// Returns the account whose resource is the closest prefix of `server`.
fn for_server(all: &BTreeMap<String, LoginAccount>, server: &Url) -> Option<LoginAccount> {
    let fitting = all
        .iter()
        .filter(|(key, _)| server_url(key).is_ok_and(|resource| covers(&resource, server)));
    fitting
        .max_by_key(|(key, _)| key.len())
        .map(|(_, account)| account.clone())
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
