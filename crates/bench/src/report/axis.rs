//! An axis on which every step to the next gridline is a factor of ten.

/// From values to pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// The powers of ten at both ends.
    low: f64,
    high: f64,
    /// The pixels at both ends.
    from: f64,
    to: f64,
}

impl Axis {
    /// Spans all positive values; `None` if there is none.
    pub(crate) fn over(values: impl Iterator<Item = f64>, from: i32, to: i32) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            low = low.min(value.log10().floor());
            high = high.max(value.log10().ceil());
        }
        let high = if high > low { high } else { low + 1.0 };
        low.is_finite().then(|| Self { low, high, from: f64::from(from), to: f64::from(to) })
    }

    /// The pixel of a value; what lies beyond an end is drawn at it.
    pub(crate) fn pixel(&self, value: f64) -> i32 {
        let power = if value > 0.0 { value.log10() } else { self.low };
        let share = ((power - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        (self.from + share * (self.to - self.from)).round() as i32
    }

    /// The values of the gridlines.
    pub(crate) fn gridlines(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, high) = (self.low as i32, self.high as i32);
        (low..=high).map(|power| 10_f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_reaches_from_the_power_below_to_the_power_above() {
        let axis = Axis::over([20.0, 0.0, 900.0].into_iter(), 100, 300).unwrap();
        assert_eq!(axis.gridlines().collect::<Vec<_>>(), [10.0, 100.0, 1000.0]);
        assert_eq!([10.0, 100.0, 1000.0].map(|value| axis.pixel(value)), [100, 200, 300]);
        assert_eq!((axis.pixel(0.0), axis.pixel(1e9)), (100, 300));
    }

    #[test]
    fn one_value_alone_has_an_axis_and_none_has_not() {
        let axis = Axis::over([10.0].into_iter(), 0, 10).unwrap();
        assert_eq!(axis.pixel(10.0), 0);
        assert!(Axis::over([0.0, f64::NAN].into_iter(), 0, 10).is_none());
    }
}
