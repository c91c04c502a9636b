//! Tokens that say nothing themselves: their issuer is asked (RFC 7662).
//!
//! A token is sent to its issuer alone, so at most one issuer of a config takes tokens that are not JWTs. What was said is
//! believed for a short while; a token that was said to be over is not asked about again at once.

use std::time::Duration;

use data_encoding::BASE64;
use quick_cache::sync::Cache;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::form_urlencoded::{Serializer, byte_serialize};
use weir_core::port::{Ask, NamedBy, Secret};

use crate::credentials::Refused;
use crate::jwks::World;
use crate::settings::{Issuer, Password};
use crate::strict;
use crate::token::{Claims, Reason};

/// The largest answer that is read.
const LARGEST: usize = 64 << 10;
/// The time for one answer.
const WITHIN: Duration = Duration::from_secs(5);
/// How many tokens are asked about at once; more are told to come again.
const AT_ONCE: usize = 64;
/// Tokens that were over, and for how long nobody asks again.
const REMEMBERED: usize = 1024;
const OVER_FOR: Duration = Duration::from_secs(10);

/// An issuer that is asked.
pub(crate) struct Introspector {
    url: String,
    /// The whole `Authorization` header.
    authorization: Password,
    places: Semaphore,
    /// Tokens that were over, by digest, and since when.
    over: Cache<[u8; 32], Duration>,
}

impl Introspector {
    pub(crate) fn new(url: &str, client_id: &str, client_secret: &Password) -> Self {
        // RFC 6749, 2.3.1: each part is encoded as in a form, before they are joined.
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(client_id), encode(client_secret.expose()));
        let authorization = Password::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
        Self { url: url.to_owned(), authorization, places: Semaphore::new(AT_ONCE), over: Cache::new(REMEMBERED) }
    }

    /// What the issuer says of a token. Cancel safe.
    pub(crate) async fn ask(
        &self,
        token: &str,
        digest: &[u8; 32],
        issuer: &Issuer,
        world: &World,
    ) -> Result<Claims, Refused> {
        let now = world.clock.monotonic();
        if self.over.get(digest).is_some_and(|since| now.saturating_sub(since) < OVER_FOR) {
            return Err(Reason::Expired.into());
        }
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Refused::Unavailable("too many tokens are being asked about"));
        };
        let form = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let ask = Ask {
            url: &self.url,
            form: Some(Secret::new(&form)),
            authorization: Some(Secret::new(self.authorization.expose())),
            limit: LARGEST,
            within: WITHIN,
            named_by: NamedBy::Operator,
        };
        let fetched = world.fetch.fetch(ask).await.map_err(|failure| {
            tracing::warn!(issuer = &*issuer.name, %failure, "an issuer cannot be asked about a token");
            Refused::Unavailable("the issuer does not answer")
        })?;
        if fetched.status != 200 {
            tracing::warn!(issuer = &*issuer.name, status = fetched.status, "an issuer does not tell of a token");
            return Err(Refused::Unavailable("the issuer does not tell"));
        }
        let said =
            strict::object(&fetched.body).ok_or(Refused::Unavailable("the issuer's answer is no JSON object"))?;
        // The very value: `"true"` or 1 is not active.
        match said.get("active") {
            Some(Value::Bool(true)) => Ok(Claims::read(said, issuer)?),
            Some(Value::Bool(false)) => {
                self.over.insert(*digest, now);
                Err(Reason::Expired.into())
            }
            _ => Err(Refused::Unavailable("the issuer's answer does not say whether the token is active")),
        }
    }
}
