//! What tracing costs its target: `cargo xtask bench overhead`, `cargo xtask bench real` and `cargo xtask bench unwind` build
//! this and run it as root.
//!
//! Everything is measured in one run, round by round in turn, so that whatever else the machine does meets all alike. The
//! targets have processors of their own, and C libraries of their own too: a probe belongs to a file, and one on the
//! system's C library would slow the whole machine. The result goes to standard output as JSON, and what happens
//! meanwhile to standard error.

mod bpftrace;
mod child;
mod faults;
mod floor;
mod heaptrack;
mod libc_copy;
mod machine;
mod memtrace;
mod options;
mod overhead;
mod probes;
mod processor_time;
mod processors;
mod programs;
mod real;
mod scratch;
mod statistics;
mod unwind;
mod victim;

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use options::{Benchmark, Options};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let options = Options::read(env::args_os().skip(1))?;
    let processors = processors::divide()?;
    let json = match options.benchmark {
        Benchmark::Overhead => serde_json::to_string_pretty(&overhead::run(&options, &processors)?)?,
        Benchmark::Real => serde_json::to_string_pretty(&real::run(&options, &processors)?)?,
        Benchmark::Unwind => serde_json::to_string_pretty(&unwind::run(&options, &processors)?)?,
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{json}")?;
    Ok(out.flush()?)
}
