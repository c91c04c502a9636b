//! The bounds of a JSON text.

/// Bounds of one JSON text. The defaults suit a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Open brackets at one time; more than [`JsonLimits::DEPTH_CEILING`] counts as that.
    pub max_depth: u32,
    /// Keys and values together, each container counting as one.
    pub max_tokens: u32,
    /// Bytes of one number.
    pub max_number_len: u32,
    /// Messages in a batch.
    pub max_batch: usize,
    /// True if `"params": null` counts as no params: servers in languages with null send it.
    pub null_params: bool,
    /// True if members of the envelope with names that differ from those of JSON-RPC in case alone
    /// are ignored like other unknown members, instead of refused.
    pub ignore_case_variants: bool,
}

impl JsonLimits {
    /// The depth no limit can exceed.
    pub const DEPTH_CEILING: u32 = 256;

    /// Keys and values of a client's request.
    pub const DEFAULT_TOKENS: u32 = 100_000;

    /// The limits for responses of a configured upstream: the same depth, but room for very long
    /// lists.
    #[must_use]
    pub fn upstream() -> Self {
        Self {
            max_tokens: 20_000_000,
            null_params: true,
            ignore_case_variants: true,
            ..Self::default()
        }
    }
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            max_depth: 64,
            max_tokens: Self::DEFAULT_TOKENS,
            max_number_len: 64,
            max_batch: 50,
            null_params: false,
            ignore_case_variants: false,
        }
    }
}
