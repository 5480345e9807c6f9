//! Benchmarks of the cost of tracing. `cargo xtask bench overhead`, `bench real`, `bench unwind`, `bench spans`,
//! `bench go` and `bench sampled` build this package, and run it as root.
//!
//! Each round measures all variants in turn, so that other load on the machine affects all of them equally.
//!
//! Except in the measurement of page faults, targets do not run on the processor of the tracers, and they use copies of
//! the C library: a uprobe belongs to a file, and a uprobe in the system's C library would slow the whole machine.
//!
//! The result is written to standard output as JSON, and progress to standard error.

mod bpftrace;
mod children;
mod faults;
mod floor;
mod go;
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
mod sampled;
mod spans;
mod statistics;
mod unwind;
mod victim;

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use options::{Benchmark, Options};

/// memtrace's allocator: `bench go` reads profiles in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    let options = Options::parse(env::args_os().skip(1))?;
    let processors = processors::assign()?;
    let json = match options.benchmark {
        Benchmark::Go => serde_json::to_string_pretty(&go::run(&options)?)?,
        Benchmark::Overhead => serde_json::to_string_pretty(&overhead::run(&options, &processors)?)?,
        Benchmark::Real => serde_json::to_string_pretty(&real::run(&options, &processors)?)?,
        Benchmark::Sampled => serde_json::to_string_pretty(&sampled::run(&options, &processors)?)?,
        Benchmark::Spans => serde_json::to_string_pretty(&spans::run(&options, &processors)?)?,
        Benchmark::Unwind => serde_json::to_string_pretty(&unwind::run(&options, &processors)?)?,
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{json}")?;
    Ok(out.flush()?)
}
