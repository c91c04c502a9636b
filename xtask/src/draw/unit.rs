//! The text form of a number.

/// The unit of a number, by Grafana's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueUnit {
    Plain,
    PerSecond(&'static str),
    Seconds,
    Part,
    Bytes,
    BytesPerSecond,
}

impl ValueUnit {
    /// Returns the unit of Grafana's name.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "reqps" => Self::PerSecond("req/s"),
            "cps" => Self::PerSecond("/s"),
            "s" | "dtdurations" => Self::Seconds,
            "percentunit" => Self::Part,
            "bytes" => Self::Bytes,
            "Bps" => Self::BytesPerSecond,
            _ => Self::Plain,
        }
    }

    /// Reports if the steps of a scale are powers of two.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Self::Bytes | Self::BytesPerSecond)
    }

    /// Renders a number, three digits at the most.
    pub(crate) fn render(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        match self {
            Self::Plain => digits(value),
            Self::PerSecond(word) => format!("{} {word}", digits(value)),
            Self::Part => format!("{}%", digits(value * 100.0)),
            Self::Seconds => seconds(value),
            Self::Bytes => bytes(value),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
        }
    }
}

fn digits(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        _ if size < 0.01 => format!("{value:.4}"),
        _ if size < 1.0 => format!("{value:.3}"),
        _ if size < 10.0 => format!("{value:.2}"),
        _ if size < 100.0 => format!("{value:.1}"),
        _ if size < 10_000.0 => format!("{value:.0}"),
        _ => return format!("{}k", digits(value / 1000.0)),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 0.001 => format!("{} µs", digits(value * 1e6)),
        size if size < 1.0 => format!("{} ms", digits(value * 1000.0)),
        size if size < 120.0 => format!("{} s", digits(value)),
        size if size < 7200.0 => format!("{} min", digits(value / 60.0)),
        _ => format!("{} h", digits(value / 3600.0)),
    }
}

fn bytes(value: f64) -> String {
    match value.abs() {
        size if size < 1024.0 => format!("{} B", digits(value)),
        size if size < 1024.0 * 1024.0 => format!("{} KiB", digits(value / 1024.0)),
        size if size < 1024.0_f64.powi(3) => format!("{} MiB", digits(value / 1024.0 / 1024.0)),
        _ => format!("{} GiB", digits(value / 1024.0_f64.powi(3))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_readable_units() {
        for (unit, value, said) in [
            ("none", 0.0, "0"),
            ("none", 12.0, "12"),
            ("none", 19_000.0, "19k"),
            ("reqps", 0.125, "0.125 req/s"),
            ("s", 0.000_25, "250 µs"),
            ("s", 0.25, "250 ms"),
            ("s", 90.0, "90 s"),
            ("dtdurations", 7200.0, "2 h"),
            ("percentunit", 0.5, "50%"),
            ("bytes", 1_048_576.0, "1 MiB"),
            ("Bps", 2048.0, "2 KiB/s"),
            ("s", f64::NAN, "-"),
        ] {
            assert_eq!(ValueUnit::named(unit).render(value), said);
        }
    }
}
