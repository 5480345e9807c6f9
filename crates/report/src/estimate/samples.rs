//! Samples of blocks, and the errors of their sums.

use std::ops::AddAssign;

use memtrace_model::{Amount, Bytes, Measure, Pid, ProcessProfile, Profile, Quantities, Quantity, Sampler, Variance};

use super::margin::Margin;
use super::uncertainty::Uncertainty;

/// Samples of a number. The samples of all parts of a sum add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    /// Number of samples.
    number: u64,
    /// Variance of the sum of the samples.
    variance: u128,
    /// Sum of the samples: bytes or blocks that they stand for.
    amount: u64,
}

/// Part of a sum over stacks that consists of samples. Its other part is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampledPart {
    /// True if the sum has samples, or if its processes have a sampler.
    is_sampled: bool,
    /// Largest interval of the samplers of its processes, if known.
    interval: Option<Bytes>,
    /// Sum over the stacks with samples.
    all: Quantities,
    /// Sum over the stacks with samples that have live blocks, or no blocks held at exit.
    live: Quantities,
    /// Sum over the stacks with samples that have blocks held at exit.
    exit: Quantities,
}

/// Sampled parts of the processes of a profile.
pub(crate) struct SampledProcesses(Vec<SampledPart>);

impl Samples {
    /// Returns the uncertainty of the sum; `None` without samples.
    pub(crate) fn uncertainty(self) -> Option<Uncertainty> {
        (self.number > 0).then(|| self.with_unit(self.unit()))
    }

    /// Returns the variance divided by the sum, but at most the standard deviation. This bound limits the unit if the sum is
    /// unknown.
    fn unit(self) -> f64 {
        let variance = self.variance as f64;
        (variance / self.amount.max(1) as f64).min(variance.sqrt())
    }

    /// Returns the uncertainty of an estimate without samples, such as the live bytes of a stack that does not occur.
    /// `interval`: interval of the sampler. Returns `None` if the interval is not known, or if `measure` is not bytes.
    pub(crate) fn without(interval: Option<Bytes>, measure: Measure) -> Option<Uncertainty> {
        unit_without_samples(interval, measure).map(|unit| Self::default().with_unit(unit))
    }

    fn with_unit(self, unit: f64) -> Uncertainty {
        Uncertainty { samples: self.number, margin: Margin::of_score(self.variance, unit) }
    }
}

impl AddAssign for Samples {
    fn add_assign(&mut self, other: Self) {
        self.number = self.number.saturating_add(other.number);
        self.variance = self.variance.saturating_add(other.variance);
        self.amount = self.amount.saturating_add(other.amount);
    }
}

impl AddAssign for SampledPart {
    fn add_assign(&mut self, other: Self) {
        self.is_sampled |= other.is_sampled;
        self.interval = self.interval.max(other.interval);
        self.all += other.all;
        self.live += other.live;
        self.exit += other.exit;
    }
}

impl SampledPart {
    /// Returns the part of a stack or of a site. Either all of its blocks are sampled, or all are exact.
    pub(crate) fn of_stack(usage: &Quantities) -> Self {
        let mut part = Self::default();
        part.add_stack(usage);
        part
    }

    /// Returns the part of all stacks of a profile.
    pub(crate) fn of_profile(profile: &Profile) -> Self {
        let interval = interval_of(profile, |_| true);
        let mut part = Self { is_sampled: has_sampler(profile), interval, ..Self::default() };
        profile.stacks.iter().for_each(|stack| part.add_stack(&stack.usage));
        part
    }

    /// Adds a stack, if it has samples.
    pub(crate) fn add_stack(&mut self, usage: &Quantities) {
        if !has_samples(usage) {
            return;
        }
        self.is_sampled = true;
        self.all += *usage;
        let has_exit = usage.exit() != Amount::default();
        if has_exit {
            self.exit += *usage;
        }
        if !has_exit || usage.live() != Amount::default() {
            self.live += *usage;
        }
    }

    /// Returns true if the sum has samples, or if its processes have a sampler.
    pub(crate) const fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns the sum over the stacks with samples.
    pub(crate) const fn sum(&self) -> &Quantities {
        &self.all
    }

    /// Returns the uncertainty of a quantity of the sum; `None` if the quantity is exact, or if nothing is known about its
    /// error. In a window of a recording, live memory is a change.
    pub(crate) fn uncertainty(&self, profile: &Profile, quantity: Quantity) -> Option<Uncertainty> {
        let samples = self.samples(profile, quantity)?;
        let uncertainty = self.uncertainty_of(profile, quantity.facts().measure, samples)?;
        let is_change = profile.run.window.is_some() && is_live(quantity);
        Some(if is_change { uncertainty.symmetric() } else { uncertainty })
    }

    /// Returns the uncertainty of the freed bytes or blocks; `None` in the same cases as [`Self::uncertainty`].
    pub(crate) fn freed_uncertainty(&self, profile: &Profile, measure: Measure) -> Option<Uncertainty> {
        self.uncertainty_of(profile, measure, freed(&self.all, measure))
    }

    fn uncertainty_of(&self, profile: &Profile, measure: Measure, samples: Samples) -> Option<Uncertainty> {
        let interval = || self.interval.or_else(|| largest(profile.run.samplers.all()));
        let without = || Some(samples.with_unit(unit_without_samples(interval(), measure)?));
        self.is_sampled.then(|| samples.uncertainty().or_else(without)).flatten()
    }

    /// Returns the samples of a quantity; `None` if the quantity has no variance.
    pub(crate) fn samples(&self, profile: &Profile, quantity: Quantity) -> Option<Samples> {
        use Quantity as Q;
        let measure = quantity.facts().measure;
        let held_in = match quantity {
            Q::LiveBytes | Q::LiveCount => &self.live,
            Q::ExitBytes | Q::ExitCount => &self.exit,
            // Blocks at the peak can have been freed, so only the variance of all allocated blocks is known.
            Q::AllocBytes | Q::AllocCount | Q::AtPeakBytes => return Some(allocated(&self.all, measure)),
            _ => return None,
        };
        Some(match profile.run.window {
            Some(_) => changed(held_in, measure),
            None => held(held_in, measure),
        })
    }
}

impl SampledProcesses {
    pub(crate) fn of(profile: &Profile) -> Self {
        if !has_sampler(profile) && !profile.stacks.iter().any(|stack| has_samples(&stack.usage)) {
            return Self(Vec::new());
        }
        let start = |process: &ProcessProfile| SampledPart {
            is_sampled: process.ended.is_none() && profile.run.samplers.of(process.pid).next().is_some(),
            interval: largest(profile.run.samplers.of(process.pid)),
            ..SampledPart::default()
        };
        let mut all: Vec<_> = profile.processes.iter().map(start).collect();
        for stack in &profile.stacks {
            if let Some(part) = all.get_mut(stack.process) {
                part.add_stack(&stack.usage);
            }
        }
        Self(all)
    }

    /// Returns the part of the process with this index.
    pub(crate) fn get(&self, process: usize) -> SampledPart {
        self.0.get(process).copied().unwrap_or_default()
    }
}

/// Returns true if a process of the profile has a sampler of blocks.
fn has_sampler(profile: &Profile) -> bool {
    Quantity::HeldSamples.is_of(profile.run.class) && profile.run.samplers.all().next().is_some()
}

/// Returns true if the blocks of a stack are sampled. A stack without samples is exact.
pub(crate) fn has_samples(usage: &Quantities) -> bool {
    usage[Quantity::HeldSamples] != 0 || usage[Quantity::AllocSamples] != 0
}

/// Returns an upper bound of the bytes of a stack without samples, which holds in 95 of 100 cases; `None` if no interval of
/// a sampler is known. A block of B bytes is missed with the probability e^(-B/interval), and several blocks with B bytes in
/// all are missed with the same probability.
pub(crate) fn most_without_samples(profile: &Profile) -> Option<u64> {
    #[expect(clippy::cast_sign_loss, reason = "an interval is not below zero")]
    let most = |interval: f64| (0.05_f64.ln().abs() * interval).round() as u64;
    unit_without_samples(interval_of(profile, |_| true), Measure::Bytes).map(most)
}

/// Returns the largest interval of the samplers of the processes that `is_of` accepts; `None` if they have no sampler, or if no
/// interval is known. A process chooses the interval of its sampler, so this interval does not apply to other processes.
pub(crate) fn interval_of(profile: &Profile, is_of: impl Fn(&ProcessProfile) -> bool) -> Option<Bytes> {
    if !has_sampler(profile) {
        return None;
    }
    let samplers = &profile.run.samplers;
    let own = || profile.processes.iter().filter(|process| is_of(process));
    let of_own = largest(own().flat_map(|process| samplers.of(process.pid)));
    // The samplers of ended processes and of members of groups may be known without their process, so all are used.
    let is_unknown = || own().any(|process| process.pid == Pid(0) || process.ended.is_some());
    of_own.or_else(|| largest(samplers.all()).filter(|_| is_unknown()))
}

/// Returns the largest interval of samplers, if known.
fn largest(samplers: impl Iterator<Item = Sampler>) -> Option<Bytes> {
    samplers.filter_map(|sampler| sampler.interval).max()
}

/// Returns the unit of an estimate without samples: the interval of the sampler. A number of blocks has no unit, because
/// small blocks are sampled less often.
fn unit_without_samples(interval: Option<Bytes>, measure: Measure) -> Option<f64> {
    interval.filter(|_| measure == Measure::Bytes).map(|interval| interval.0 as f64)
}

const fn is_live(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::LiveBytes | Quantity::LiveCount)
}

/// Returns the samples of the blocks that are live or held at exit. `usage`: totals.
fn held(usage: &Quantities, measure: Measure) -> Samples {
    Samples {
        number: usage[Quantity::HeldSamples],
        variance: usage.variance(variances(measure)[0]),
        amount: number(usage.live() + usage.exit() + usage.left_out(), measure),
    }
}

/// Returns the samples of the allocated blocks.
fn allocated(usage: &Quantities, measure: Measure) -> Samples {
    Samples {
        number: usage[Quantity::AllocSamples].cast_signed().max(0).cast_unsigned(),
        variance: usage.variance(variances(measure)[1]),
        amount: number(usage.alloc(), measure),
    }
}

/// Returns the samples of the freed blocks. Each sampled block is freed once.
fn freed(usage: &Quantities, measure: Measure) -> Samples {
    let [held, allocated] = variances(measure).map(|variance| signed(usage, variance));
    let number_of = usage[Quantity::AllocSamples].wrapping_sub(usage[Quantity::HeldSamples]);
    Samples {
        number: number_of.cast_signed().max(0).cast_unsigned(),
        variance: allocated.saturating_sub(held).max(0).cast_unsigned(),
        amount: number(usage.free(), measure),
    }
}

/// Returns the samples of a change of live memory, or of memory held at exit, in a window of a recording.
///
/// The change consists of the blocks that were allocated and the blocks that were freed. A block that was allocated and
/// freed adds nothing to the change, so the variance is too large rather than too small. If a process ended in the window,
/// its memory held at exit and the decrease of its live memory have no variance, because nothing was allocated or freed.
fn changed(usage: &Quantities, measure: Measure) -> Samples {
    let mut samples = allocated(usage, measure);
    samples += freed(usage, measure);
    samples
}

/// Returns the variances of the held and of the allocated bytes or blocks.
const fn variances(measure: Measure) -> [Variance; 2] {
    match measure {
        Measure::Bytes => [Variance::HeldBytes, Variance::AllocBytes],
        Measure::Count | Measure::Time => [Variance::HeldCount, Variance::AllocCount],
    }
}

/// Returns a variance, or the change of a variance.
fn signed(usage: &Quantities, variance: Variance) -> i128 {
    let mut negated = Quantities::ZERO;
    negated -= *usage;
    usage.variance(variance).cast_signed().saturating_sub(negated.variance(variance).cast_signed())
}

fn number(amount: Amount, measure: Measure) -> u64 {
    let Amount { bytes, count } = amount.increase();
    if measure == Measure::Bytes { bytes.0 } else { count }
}

#[cfg(test)]
mod tests;
