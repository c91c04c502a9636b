//! The keys of a sealing key.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;

/// A sealing key, as `weir keygen` prints it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawKey {
    /// A number from 1 to 255 that identifies the key in sealed data.
    #[schemars(extend("x-protection" = "none"))]
    pub id: Option<u8>,
    /// 32 bytes in URL-safe base64. Keep the secret out of the file: `${WEIR_KEY}`.
    #[schemars(extend("x-protection" = "none"))]
    pub secret: Option<ConfigSecret>,
}
