//! The claims about a token, from the token itself or from introspection: each in its exact form.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use weir_core::is_invisible;
use weir_core::names::EndpointId;

use crate::settings::{TokenIssuer, VerifierSettings};
use crate::token::token_refusal::TokenRefusal;

/// The longest name of a subject. OpenID has at most 255.
const MAX_SUBJECT: usize = 256;
/// The most audiences of a token.
const MAX_AUDIENCES: usize = 32;

/// The claims of a token of proven origin.
#[derive(Debug)]
pub(crate) struct TokenClaims {
    pub(crate) all: Map<String, Value>,
    pub(crate) subject: Arc<str>,
    audiences: Arc<[Box<str>]>,
    times: TokenTimes,
}

/// The validity of a token, in whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenTimes {
    pub(crate) expires: Option<u64>,
    begins: Option<u64>,
    issued: Option<u64>,
}

impl TokenClaims {
    /// Reads the claims that every token must have.
    pub(crate) fn read(
        all: Map<String, Value>,
        issuer: &TokenIssuer,
    ) -> Result<Self, TokenRefusal> {
        // A number or a list that another reader would find equal to the issuer is refused here.
        if all
            .get("iss")
            .is_some_and(|iss| iss.as_str() != Some(&issuer.name))
        {
            return Err(TokenRefusal::Issuer);
        }
        let subject = match all.get("sub") {
            // With invisible characters it would look like another subject to an operator.
            Some(Value::String(subject))
                if !subject.is_empty()
                    && subject.len() <= MAX_SUBJECT
                    && !subject.chars().any(is_invisible) =>
            {
                Arc::from(subject.as_str())
            }
            _ => return Err(TokenRefusal::Claims),
        };
        let audiences = audiences(all.get("aud"))?;
        let times = TokenTimes::read(&all)?;
        Ok(Self {
            all,
            subject,
            audiences,
            times,
        })
    }

    /// Refuses tokens of another kind than access tokens: OpenID's ID tokens, which are for the
    /// client, and refresh tokens (RFC 9068, 5; RFC 8725, 3.12).
    pub(crate) fn refuse_other_kinds(&self) -> Result<(), TokenRefusal> {
        let text = |name: &str| self.all.get(name).map(Value::as_str);
        if !matches!(
            text("token_use"),
            None | Some(Some("access" | "access_token"))
        ) {
            return Err(TokenRefusal::Type);
        }
        // The claim in which Keycloak writes the kind; others use it for other purposes.
        let typ = text("typ").flatten().unwrap_or_default();
        let is = |kind: &&str| typ.eq_ignore_ascii_case(kind);
        if ["refresh", "offline", "id"].iter().any(is) {
            return Err(TokenRefusal::Type);
        }
        // Earlier versions of Keycloak copy the nonce into access tokens.
        let is_declared = ["bearer", "dpop"].iter().any(is);
        let marks = ["nonce", "at_hash", "c_hash", "s_hash"];
        if !is_declared && marks.iter().any(|mark| self.all.contains_key(*mark)) {
            return Err(TokenRefusal::Type);
        }
        Ok(())
    }

    /// Refuses what [`Self::refuse_other_kinds`] does in an answer of introspection, and any other
    /// `token_type` than that of an access token: an issuer may tell about all of its tokens (RFC
    /// 7662, 2.2).
    pub(crate) fn refuse_other_introspected_kinds(&self) -> Result<(), TokenRefusal> {
        let is_access_token = match self.all.get("token_type") {
            None | Some(Value::Null) => true,
            Some(Value::String(kind)) => ["bearer", "dpop", "n_a", "access_token"]
                .iter()
                .any(|known| kind.eq_ignore_ascii_case(known)),
            Some(_) => false,
        };
        if is_access_token {
            self.refuse_other_kinds()
        } else {
            Err(TokenRefusal::Type)
        }
    }

    pub(crate) fn audiences(&self) -> &Arc<[Box<str>]> {
        &self.audiences
    }

    pub(crate) fn times(&self) -> TokenTimes {
        self.times
    }
}

/// True if one of the audiences is the endpoint, or an audience that the config accepts for all of
/// weir's endpoints.
pub(crate) fn has_audience(
    audiences: &[Box<str>],
    endpoint: &EndpointId,
    issuer: &TokenIssuer,
    settings: &VerifierSettings,
) -> bool {
    audiences.iter().any(|audience| {
        settings.is_endpoint(audience, endpoint)
            || issuer.audiences.iter().any(|own| **own == **audience)
    })
}

/// The audiences of a claim: a text, or a list of texts only.
pub(crate) fn audiences(aud: Option<&Value>) -> Result<Arc<[Box<str>]>, TokenRefusal> {
    match aud {
        Some(Value::String(one)) => Ok(Arc::new([one.as_str().into()])),
        Some(Value::Array(list)) if list.len() <= MAX_AUDIENCES => {
            let texts = list.iter().map(|item| item.as_str().map(Box::from));
            texts
                .collect::<Option<Arc<[_]>>>()
                .ok_or(TokenRefusal::Audience)
        }
        _ => Err(TokenRefusal::Audience),
    }
}

impl TokenTimes {
    /// Reads the times. Each of them, if present, must be a whole number of seconds.
    pub(crate) fn read(all: &Map<String, Value>) -> Result<Self, TokenRefusal> {
        let time = |name: &str| match all.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(TokenRefusal::Claims),
        };
        Ok(Self {
            expires: time("exp")?,
            begins: time("nbf")?,
            issued: time("iat")?,
        })
    }

    /// Checks the times against `now`.
    pub(crate) fn check(&self, now: SystemTime, leeway: Duration) -> Result<(), TokenRefusal> {
        let (now, leeway) = (seconds(now), leeway.as_secs());
        if self
            .expires
            .is_some_and(|expires| expires.saturating_add(leeway) <= now)
        {
            return Err(TokenRefusal::Expired);
        }
        let latest = now.saturating_add(leeway);
        if self
            .begins
            .into_iter()
            .chain(self.issued)
            .any(|time| time > latest)
        {
            return Err(TokenRefusal::NotYet);
        }
        Ok(())
    }

    /// Checks that a token expires, and is not valid for longer than `most`.
    pub(crate) fn check_lifetime(
        &self,
        now: SystemTime,
        leeway: Duration,
        most: Duration,
    ) -> Result<(), TokenRefusal> {
        let expires = self.expires.ok_or(TokenRefusal::Claims)?;
        let (now, most) = (seconds(now), most.as_secs());
        let from_issue = self
            .issued
            .is_some_and(|issued| expires.saturating_sub(issued) > most);
        let from_now = expires.saturating_sub(now) > most.saturating_add(leeway.as_secs());
        if from_issue || from_now {
            Err(TokenRefusal::NotYet)
        } else {
            Ok(())
        }
    }

    /// The end of the token's validity, with the leeway. `None`: it has no expiry.
    pub(crate) fn end(&self, leeway: Duration) -> Option<SystemTime> {
        let expires = self.expires.map(Duration::from_secs)?;
        UNIX_EPOCH.checked_add(expires.saturating_add(leeway))
    }
}

/// Whole seconds since 1970; a clock before that is at zero.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
