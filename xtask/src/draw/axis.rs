//! The mapping of numbers to pixels, with round steps.

use crate::draw::unit::ValueUnit;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisScale {
    Even,
    /// Each step is twice the last: for counts of clients or upstreams.
    Doubling,
}

/// An axis from `least` to `most`.
#[derive(Clone, Debug)]
pub(crate) struct ChartAxis {
    least: f64,
    most: f64,
    step: f64,
    scale: AxisScale,
}

impl ChartAxis {
    /// An axis from 0 to at least `most`, in about so many round steps.
    pub(crate) fn upward(most: f64, unit: ValueUnit, steps: f64) -> Self {
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        let step = round_step(most / steps, unit);
        Self {
            least: 0.0,
            most: (most / step).ceil() * step,
            step,
            scale: AxisScale::Even,
        }
    }

    /// An axis from exactly `least` to exactly `most`.
    pub(crate) fn between(least: f64, most: f64, scale: AxisScale) -> Self {
        let most = if most > least { most } else { least + 1.0 };
        Self {
            least,
            most,
            step: most - least,
            scale,
        }
    }

    /// The position of a number, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            AxisScale::Even => (value - self.least) / (self.most - self.least),
            AxisScale::Doubling => {
                (value.max(1.0) / self.least.max(1.0)).ln() / (self.most / self.least.max(1.0)).ln()
            }
        };
        place.clamp(0.0, 1.0)
    }

    /// The numbers that label the axis.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut tick = self.least;
        while tick <= self.most + self.step / 2.0 && ticks.len() < 20 {
            ticks.push(tick);
            tick += self.step;
        }
        ticks
    }
}

/// Returns the next of 1, 2, 5, 10, ... above `rough`; for bytes the next power of two.
fn round_step(rough: f64, unit: ValueUnit) -> f64 {
    if unit.is_binary() {
        return 2.0_f64.powf(rough.max(1.0).log2().ceil());
    }
    // A time in milliseconds or minutes counts in ones of them.
    let base = 10.0_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|part| part * base)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_numbers() {
        for (most, unit, ticks) in [
            (9.0, ValueUnit::Plain, vec![0.0, 2.5, 5.0, 7.5, 10.0]),
            (1.0, ValueUnit::Plain, vec![0.0, 0.25, 0.5, 0.75, 1.0]),
            (0.0, ValueUnit::Plain, vec![0.0, 0.25, 0.5, 0.75, 1.0]),
            (3000.0, ValueUnit::Bytes, vec![0.0, 1024.0, 2048.0, 3072.0]),
        ] {
            assert_eq!(ChartAxis::upward(most, unit, 4.0).ticks(), ticks, "{most}");
        }
    }

    #[test]
    fn axis_position_of_a_value_is_within_the_chart() {
        let even = ChartAxis::between(10.0, 20.0, AxisScale::Even);
        assert_eq!(
            [10.0, 15.0, 20.0, 99.0].map(|value| even.place(value)),
            [0.0, 0.5, 1.0, 1.0]
        );
        let doubling = ChartAxis::between(1.0, 256.0, AxisScale::Doubling);
        assert!((doubling.place(16.0) - 0.5).abs() < 1e-9);
    }
}
