//! Pages of the documentation that are made from the code, so that they cannot be wrong about it.

/// `docs/errors.md`.
pub(crate) fn errors() -> String {
    String::new()
}
