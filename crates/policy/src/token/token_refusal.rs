//! The reasons for refusing a token.

/// The reason for refusing a token, as labels of the metric and of the audit. A client does not see
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenRefusal {
    /// It is not a token, or the request has more than one kind of credentials.
    Malformed,
    /// Its algorithm is not one that its issuer uses.
    Algorithm,
    /// It is another kind of token, or has header parameters that change its meaning.
    Type,
    /// Its issuer is not accepted here.
    Issuer,
    /// The key is unknown.
    Key,
    /// Its signature is wrong.
    Signature,
    /// It lacks a required claim, or has one in another form.
    Claims,
    /// It has expired.
    Expired,
    /// It is not valid yet, or for too long.
    NotYet,
    /// It is for another audience.
    Audience,
}

impl TokenRefusal {
    /// Returns the label of the metric.
    pub(crate) fn metric_label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "alg",
            Self::Type => "type",
            Self::Issuer => "issuer",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Audience => "audience",
        }
    }
}
