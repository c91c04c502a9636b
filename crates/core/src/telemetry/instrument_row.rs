//! Descriptions of instruments.

/// One instrument.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentRow {
    /// Its OpenTelemetry name.
    pub name: &'static str,
    /// The kind of instrument.
    pub kind: InstrumentKind,
    /// Its unit in UCUM, with the counted noun in braces.
    pub unit: &'static str,
    /// The attributes that its series can have.
    pub attributes: &'static [&'static str],
    /// Its description.
    pub about: &'static str,
}

/// The kinds of instruments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstrumentKind {
    /// Goes up.
    Counter,
    /// Goes up and down.
    UpDownCounter,
    /// The newest value.
    Gauge,
    /// The distribution of values.
    Histogram,
}
