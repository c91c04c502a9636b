//! era
