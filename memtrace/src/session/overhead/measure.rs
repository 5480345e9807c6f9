//! Foretelling what tracing will cost a target, before it is traced.

use std::time::Duration;

use super::estimate::{self, Forecast, Prices};
use super::probe_cost;
use crate::kernel::{Calls, Kernel, Probes};
use crate::model::{Bytes, Pid, Signature, format};
use crate::probe_site::Cost as ProbeCost;
use crate::procfs;
use crate::session::config::Percent;
use crate::session::error::Error;
use crate::session::error::from_engines;
use crate::session::select::Site;
use crate::session::track::Followed;

/// For how long calls are counted.
const MOMENT: Duration = Duration::from_millis(100);

/// What the programs' own work takes, an allocation and its free together: without a stack, and what a stack adds.
/// Figures of `cargo xtask bench overhead`; the traps, which are most of the cost and differ most between machines, are
/// measured.
const RECORD: Duration = Duration::from_nanos(300);
const STACK: Duration = Duration::from_nanos(900);

/// Of what a trap at entry and one at return cost together, the part of the one at entry. See the README's table.
const ENTRY_PART: f64 = 0.6;

/// What was counted, and what a call costs.
pub(in crate::session) struct Overhead {
    calls: Calls,
    busy: Duration,
    prices: Prices,
}

impl Overhead {
    /// Counts, with the probes that come first anyhow, how often the processes of `sites` allocate: by all functions that hand
    /// out a block without taking one.
    pub(in crate::session) fn measure(
        kernel: &mut Kernel,
        probes: &mut Probes,
        sites: &[Site],
        pids: &[Pid],
        prices: Prices,
    ) -> Result<Self, Error> {
        for site in sites {
            for (probe, _) in site.probes.iter().filter(|(probe, _)| probe.signature.is_alloc()) {
                kernel
                    .place_entry(probes, site.scope, &site.object, probe)
                    .map_err(|error| from_engines::kernel(Some(site.pid), error))?;
            }
        }
        let processor_time = || pids.iter().filter_map(|&pid| procfs::processor_time(pid)).sum::<Duration>();
        let before = processor_time();
        let calls = kernel.count_calls(MOMENT).map_err(|error| from_engines::kernel(None, error))?;
        let busy = processor_time().saturating_sub(before);
        Ok(Self { calls, busy, prices })
    }

    /// What tracing allocations of at least `min_size` will cost.
    pub(in crate::session) fn foretell(&self, min_size: Bytes) -> Forecast {
        estimate::foretell(&self.calls, self.busy, self.prices, min_size)
    }

    /// The least size to trace, at least `min_size`, with which the target slows down by no more than `limit`.
    pub(in crate::session) fn within(&self, limit: Percent, min_size: Bytes) -> Result<Bytes, Error> {
        let narrowed = estimate::narrow(&self.calls, self.busy, self.prices, limit.share());
        let too_dear = || Error::TooDear {
            foretold: format::rough_percent(self.foretell(min_size).slowdown.unwrap_or_default()),
            allowed: format::rough_percent(limit.share()),
        };
        narrowed.map(|size| size.max(min_size)).ok_or_else(too_dear)
    }
}

/// A forecast in words.
pub(in crate::session) fn describe(forecast: Forecast) -> String {
    let calls = forecast.calls_per_second;
    let slower = match forecast.slowdown {
        Some(slowdown) => format!(", {} more than the target takes now", format::rough_percent(slowdown)),
        None => String::new(),
    };
    format!(
        "at {calls:.0} allocations a second, tracing takes about {} of one processor{slower}",
        format::rough_percent(forecast.processors)
    )
}

/// What a call costs on this machine, measured with probes in memtrace itself.
pub(in crate::session) fn prices(
    kernel: &mut Kernel,
    probes: &mut Probes,
    followed: &mut Followed,
    sites: &[Site],
    takes_stacks: bool,
) -> Result<Prices, Error> {
    let traps = probe_cost::measure(kernel, probes, followed.objects()).map_err(|error| match error {
        probe_cost::Error::Kernel(error) => from_engines::kernel(None, error),
        other => Error::Failed(format!("what a probe costs could not be measured: {other}")),
    })?;
    let cost_of = |wanted: fn(&Signature) -> bool| {
        let costs = sites.iter().flat_map(|site| &site.probes).filter(|(probe, _)| wanted(&probe.signature));
        traps.of(costs.map(|&(_, cost)| cost).next().unwrap_or(ProbeCost::Emulated))
    };
    let at_return = traps.emulated.mul_f64(1.0 - ENTRY_PART);
    let alloc = cost_of(|signature| matches!(signature, Signature::Alloc { .. }));
    let free = cost_of(|signature| matches!(signature, Signature::Free { .. })).saturating_sub(at_return);
    let record = if takes_stacks { RECORD + STACK } else { RECORD };
    Ok(Prices { count: alloc.saturating_sub(at_return), traps: alloc + free, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_reads_like_a_sentence() {
        let forecast = Forecast { calls_per_second: 12_345.6, processors: 0.025, slowdown: Some(0.137) };
        assert_eq!(
            describe(forecast),
            "at 12346 allocations a second, tracing takes about 2.5 % of one processor, 14 % more than the target takes now"
        );
        assert!(!describe(Forecast { slowdown: None, ..forecast }).contains("more than"));
    }
}
