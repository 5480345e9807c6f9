//! Cost of a loop that only calls malloc and free, with experiments that explain it.
//!
//! A sample makes the loop slower than the work of the sample: each one takes more time of the process in user space afterwards. The
//! experiments do other things at the rate of the samples: system calls, and a uprobe with an empty program in a function that the
//! loop calls. If these make the pairs slower by as much, the entries into the kernel are the reason, whose mitigations clear the
//! branch predictors. If only samples do, it is their probe in the stub.
//!
//! The victims differ in the address of their block. If the cost depends on it, the reason is 4 KiB aliasing: the counter of the filter that a free
//! reads has the same lower 12 bits of the address as the countdown that the next malloc changes.

use std::fs;
use std::process::Command;
use std::slice;
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::{Scratch, Victim};
use serde::{Deserialize, Serialize};

use crate::children::start_victim;
use crate::floor::{Floor, ReturnAction};
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::probes::{Event, Probe, ProbeSite, function_range};
use crate::processors::Processors;
use crate::statistics::Spread;
use crate::victim;

/// Size of a block, in bytes.
const SIZE: u64 = 64;

/// Interval of the sampler, and number of pairs for each sample on average.
const INTERVAL: &str = "512KiB";
const EVERY: u64 = (512 << 10) / SIZE;

/// Numbers of blocks that are allocated before the block of the loop. Their chunks have 80 bytes, and 16 bytes of an address share a
/// counter of the filter.
const SHIFTS: [u64; 4] = [0, 1, 13, 201];

/// Number of pairs in the first run, which estimates the number of pairs of a slice.
const WARM_UP: u64 = 5_000_000;

/// Largest accepted ratio at 1000 samples a second.
const LIMIT: f64 = 1.25;

/// Thing that the victim does between pairs (`victims/loop.c`).
#[derive(Clone, Copy, Debug)]
enum Action {
    Nothing = 0,
    SystemCall = 1,
    Scheduler = 2,
    Mark = 3,
}

/// Tracer of an experiment.
#[derive(Clone, Copy, Debug)]
enum Tracer {
    None,
    /// An empty BPF program at the first instruction of `mark`.
    Uprobe,
    Memtrace(&'static [&'static str]),
}

/// Experiments: name, tracer, and action of the victim.
const EXPERIMENTS: [(&str, Tracer, Action); 9] = [
    ("system-calls", Tracer::None, Action::SystemCall),
    ("scheduler-calls", Tracer::None, Action::Scheduler),
    ("marks", Tracer::None, Action::Mark),
    ("uprobes", Tracer::Uprobe, Action::Mark),
    ("patched", Tracer::Memtrace(&["--allow-patching", "--sample-interval", "4GiB"]), Action::Nothing),
    ("patched-system-calls", Tracer::Memtrace(&["--allow-patching", "--sample-interval", "4GiB"]), Action::SystemCall),
    ("samples", Tracer::Memtrace(&["--allow-patching", "--sample-interval", INTERVAL]), Action::Nothing),
    ("rate", Tracer::Memtrace(&["--allow-patching", "--samples-per-second", "1000"]), Action::Nothing),
    ("exact", Tracer::Memtrace(&["--ring-size", "64MiB"]), Action::Nothing),
];

#[derive(Debug, Serialize)]
pub(super) struct EmptyLoop {
    size: u64,
    /// Number of pairs for each action of the victim.
    every: u64,
    limit: f64,
    victims: Vec<OfVictim>,
}

/// Results of one victim.
#[derive(Debug, Serialize)]
struct OfVictim {
    shift: u64,
    /// Processor time of a pair without a tracer.
    ns: Spread,
    experiments: Vec<Experiment>,
}

#[derive(Debug, Serialize)]
struct Experiment {
    name: &'static str,
    /// Processor time of a pair, divided by the mean of those without a tracer before and after.
    ratio: Spread,
    /// Increase of the processor time of a pair, in nanoseconds.
    added_ns: Spread,
    /// Increase of the part in user space. The kernel counts it by the ticks of its timer.
    added_user_ns: Spread,
}

/// Processor time of a run, as the victim prints it.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Run {
    pairs: u64,
    ns: u64,
    user_ns: u64,
    system_ns: u64,
}

/// Processor time of a pair, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct PairTime {
    all: f64,
    user: f64,
}

impl Run {
    /// Returns the time of a pair. The thread clock is precise, and the ticks of the timer divide it.
    fn of_pair(self) -> PairTime {
        let all = self.ns as f64 / self.pairs as f64;
        let ticks = (self.user_ns + self.system_ns).max(1);
        PairTime { all, user: all * self.user_ns as f64 / ticks as f64 }
    }

    /// Returns the number of pairs that take `time`.
    fn pairs_in(self, time: Duration) -> u64 {
        let pairs = time.as_nanos() * u128::from(self.pairs) / u128::from(self.ns.max(1));
        u64::try_from(pairs).unwrap_or(u64::MAX)
    }
}

pub(super) fn measure(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<EmptyLoop> {
    let victims = SHIFTS.into_iter().map(|shift| of_victim(shift, options, processors, scratch));
    Ok(EmptyLoop { size: SIZE, every: EVERY, limit: LIMIT, victims: victims.collect::<Result<_>>()? })
}

fn of_victim(shift: u64, options: &Options, processors: &Processors, scratch: &Scratch) -> Result<OfVictim> {
    let words = [processors.one(), SIZE.to_string(), shift.to_string()];
    let mut victim = start_victim(Command::new(victim::path("loop")).args(words));
    // The first run is slower.
    run(&mut victim, Action::Nothing, WARM_UP);
    let pairs = run(&mut victim, Action::Nothing, WARM_UP).pairs_in(options.slice).max(EVERY);
    let mark = mark()?;
    let mut times: Vec<Vec<(PairTime, PairTime)>> = vec![Vec::new(); EXPERIMENTS.len()];
    let mut untraced = Vec::new();
    for round in 0..options.rounds {
        eprintln!("    empty loop with {shift} blocks before: round {} of {}", round + 1, options.rounds);
        let mut before = run(&mut victim, Action::Nothing, pairs).of_pair();
        untraced.push(before.all);
        for index in 0..EXPERIMENTS.len() {
            let place = (index + round) % EXPERIMENTS.len();
            let (_, tracer, action) = EXPERIMENTS[place];
            let measured = match tracer {
                Tracer::None => run(&mut victim, action, pairs),
                Tracer::Uprobe => {
                    let sites = slice::from_ref(&mark);
                    let (file, pid) = (victim::path("loop"), victim.pid());
                    let floor = Floor::attach(&options.floor, &file, pid, sites, ReturnAction::Nothing)?;
                    let measured = run(&mut victim, action, pairs);
                    drop(floor);
                    measured
                }
                Tracer::Memtrace(words) => {
                    let report = scratch.join("report.json");
                    let memtrace = Memtrace::attach(&options.memtrace, victim.pid(), words, report)?;
                    let measured = run(&mut victim, action, pairs);
                    memtrace.stop()?;
                    measured
                }
            };
            let after = run(&mut victim, Action::Nothing, pairs).of_pair();
            let plain =
                PairTime { all: f64::midpoint(before.all, after.all), user: f64::midpoint(before.user, after.user) };
            times[place].push((measured.of_pair(), plain));
            before = after;
        }
    }
    let experiments = EXPERIMENTS.iter().zip(&times).map(|(&(name, ..), times)| Experiment {
        name,
        ratio: Spread::new(times.iter().map(|(traced, plain)| traced.all / plain.all)),
        added_ns: Spread::new(times.iter().map(|(traced, plain)| traced.all - plain.all)),
        added_user_ns: Spread::new(times.iter().map(|(traced, plain)| traced.user - plain.user)),
    });
    Ok(OfVictim { shift, ns: Spread::new(untraced), experiments: experiments.collect() })
}

/// Runs `pairs` pairs, with an action after each [`EVERY`] pairs.
fn run(victim: &mut Victim, action: Action, pairs: u64) -> Run {
    let every = if matches!(action, Action::Nothing) { 0 } else { EVERY };
    for number in [action as u64, every, pairs] {
        victim.process().write_line(&number.to_string());
    }
    victim.read_json()
}

/// Returns the place of the first instruction of the function `mark` of the victim.
fn mark() -> Result<ProbeSite> {
    let file = fs::read(victim::path("loop")).context("cannot read the victim")?;
    let (start, _) = function_range(&file, "mark").context("the victim has no function mark")?;
    let probe = Probe { event: Event::Entry, offset: start, program: 0 };
    Ok(ProbeSite { function: "mark", event: Event::Entry, offset: 0, probe })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_divide_the_time_of_a_pair() {
        let pair = Run { pairs: 1000, ns: 8000, user_ns: 3_000_000, system_ns: 1_000_000 }.of_pair();
        assert!((pair.all - 8.0).abs() < f64::EPSILON && (pair.user - 6.0).abs() < f64::EPSILON, "{pair:?}");
        let short = Run { pairs: 10, ns: 100, user_ns: 0, system_ns: 0 }.of_pair();
        assert!((short.all - 10.0).abs() < f64::EPSILON, "{short:?}");
    }

    #[test]
    fn victim_has_a_function_to_probe() {
        assert_eq!(mark().unwrap().function, "mark");
        let mut victim = start_victim(Command::new(victim::path("loop")).args(["0", "64", "3"]));
        let run = run(&mut victim, Action::Mark, 3 * EVERY + 5);
        assert_eq!(run.pairs, 3 * EVERY + 5);
        assert!(run.ns > 0, "{run:?}");
    }
}
