//! `cargo xtask soak`: traces the whole machine while a loop of a compiler, python and `ls` runs on each processor.
//! Compares memory, cost and completeness of the trace with limits.

mod limits;
mod memory;
mod options;
mod recording;
mod report;
mod trace;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use options::Options;
pub(crate) use recording::compare as compare_recording;
use trace::{Measured, Trace};
use workload::Workload;

use crate::privilege::Root;
use crate::tier::Tier;
use crate::workspace::{self, Workspace};
use crate::{bpf, command, setup, ui};

/// Traces the machine, prints a table and compares it with the limits.
///
/// # Errors
///
/// A step fails, or a measured value is beyond its limit.
pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Result<()> {
    let options = Options::parse(words)?;
    let root = Root::obtain().context("memtrace traces as root")?;
    setup::for_soak()?;
    if options.memtrace.is_none() {
        bpf::run(workspace)?;
    }
    measure(workspace, root, &options)
}

/// Traces the machine with the options of a tier of the tests. `memtrace`: path of the memtrace that was built with the
/// tests; only the short tier runs it. The BPF objects must be current.
///
/// # Errors
///
/// A step fails, or a measured value is beyond its limit.
pub(crate) fn run_in_tests(workspace: &Workspace, root: Root, tier: Tier, memtrace: PathBuf) -> Result<()> {
    setup::for_soak()?;
    measure(workspace, root, &Options::of_tier(tier, memtrace))
}

fn measure(workspace: &Workspace, root: Root, options: &Options) -> Result<()> {
    let memtrace = options.memtrace.clone().map_or_else(|| command::build_release(workspace), Ok)?;
    let folder = workspace.join("target/soak");
    workspace::create_empty(&folder)?;
    ui::step(&format!("Tracing the machine for {} s", options.duration.as_secs()));
    let mut trace = Trace::start(root, &memtrace, &folder, &options.arguments)?;
    let workload = Workload::start(&folder)?;
    let start = Instant::now();
    let samples = trace.sample(start + options.duration)?;
    ui::step("Ending the programs, then the trace");
    let turns = workload.stop()?;
    // The report has the allocations up to this moment.
    let (cpu, traced) = (trace.processor_time()?, start.elapsed());
    let report_time = trace.stop()?;
    fs::write(folder.join("rss.csv"), memory::csv(&samples)).context("cannot write the samples")?;
    let measured = Measured { samples, cpu, traced, report_time, report: report::read(&folder)?, turns };
    let rows = limits::compare(&measured, options);
    ui::result(&format!("\n{}\n\nSamples and reports: {}", limits::table(&rows), folder.display()));
    let missed: Vec<&str> = rows.iter().filter(|row| !row.is_met()).map(|row| row.name).collect();
    if !missed.is_empty() {
        bail!("beyond the limit: {}", missed.join(", "));
    }
    Ok(())
}
