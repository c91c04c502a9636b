//! The shape of the servers of an upstream process.

/// The shape of the servers in this process.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct UpstreamShape {
    /// Servers of each kind: /modern/u/0 to /modern/u/N-1, and likewise /legacy/u/... and
    /// /both/u/...
    #[arg(long, default_value_t = 1)]
    pub(crate) servers: usize,
    /// Tools of each server; the first two are `echo` and `measure`.
    #[arg(long, default_value_t = 50)]
    pub(crate) tools: usize,
    /// Tools on one page of tools/list.
    #[arg(long, default_value_t = 50)]
    pub(crate) page: usize,
}
