//! Values over time. A value is stored only if it differs from the previous one.

/// A step function over numbered moments. A value holds from its moment until the next value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(Vec<(usize, u64)>);

impl Steps {
    /// Sets the value from `moment` on. `moment` must not be less than in an earlier call.
    pub fn set(&mut self, moment: usize, value: u64) {
        match self.0.last_mut() {
            Some((last, known)) if *last == moment => *known = value,
            Some((_, known)) if *known == value => {}
            _ => self.0.push((moment, value)),
        }
    }

    /// Adds `change` to the last value, from `moment` on. If there is no last value, the value is `change`. The sum wraps.
    pub fn add(&mut self, moment: usize, change: u64) {
        self.set(moment, self.last().unwrap_or_default().wrapping_add(change));
    }

    /// Returns the last value.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|(_, value)| *value)
    }

    /// Returns the greatest value; 0 if there is no value, or if all values are negative. A sum of changes can be
    /// negative for a moment.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.0.iter().map(|(_, value)| value.cast_signed()).max().unwrap_or_default().max(0).cast_unsigned()
    }

    /// Multiplies all values by `factor`.
    pub fn scale(&mut self, factor: u64) {
        self.0.iter_mut().for_each(|(_, value)| *value = value.wrapping_mul(factor));
    }

    /// Forgets all values but the last one.
    pub fn forget_all_but_last(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(1));
    }

    /// Returns the value at a moment; `None` before the first value.
    #[must_use]
    pub fn at(&self, moment: usize) -> Option<u64> {
        let after = self.0.partition_point(|(first, _)| *first <= moment);
        after.checked_sub(1).map(|index| self.0[index].1)
    }

    /// Iterates over the moments with a new value, and these values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Renumbers the moments: `number` returns the new index of a moment, and must not decrease. If several values get
    /// the same moment, the last one remains.
    pub fn renumber(&mut self, number: impl Fn(usize) -> usize) {
        for (moment, value) in std::mem::take(&mut self.0) {
            self.set(number(moment), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_until_the_next_one() {
        let mut steps = Steps::default();
        steps.set(2, 5);
        steps.set(3, 5);
        steps.add(5, 2);
        steps.add(5, 1);
        assert_eq!(steps.iter().collect::<Vec<_>>(), [(2, 5), (5, 8)]);
        assert_eq!([0, 1, 2, 4, 5, 9].map(|moment| steps.at(moment)), [None, None, Some(5), Some(5), Some(8), Some(8)]);
        assert_eq!((steps.last(), steps.greatest()), (Some(8), 8));
        steps.set(6, 1);
        steps.renumber(|moment| moment / 2);
        assert_eq!(steps.iter().collect::<Vec<_>>(), [(1, 5), (2, 8), (3, 1)]);
        steps.renumber(|moment| moment / 4);
        assert_eq!(steps.iter().collect::<Vec<_>>(), [(0, 1)]);
    }
}
