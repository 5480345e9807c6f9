//! `cargo xtask bench`: runs the microbenchmarks, and measures the tracing overhead.

mod format;
mod go;
mod overhead;
mod readme;
mod real;
mod sampled;
mod spans;
mod unwind;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{bpf, command, setup, ui};

/// Time limit of a measurement. It matters only if a target hangs.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Measurement of the tracing overhead.
struct Measurement {
    /// Name of the `memtrace-bench` command, of the result file and of the section of the document.
    name: &'static str,
    /// Formats the result as a table.
    table: fn(&Value) -> Result<String>,
}

const GO: Measurement = Measurement { name: "go", table: go::table };
const OVERHEAD: Measurement = Measurement { name: "overhead", table: overhead::table };
const REAL: Measurement = Measurement { name: "real", table: real::table };
const SAMPLED: Measurement = Measurement { name: "sampled", table: sampled::table };
const SPANS: Measurement = Measurement { name: "spans", table: spans::table };
const UNWIND: Measurement = Measurement { name: "unwind", table: unwind::table };

/// Crates with microbenchmarks.
const CRATES: [&str; 4] = ["memtrace-history", "memtrace-host", "memtrace-object", "memtrace-report"];

/// Builds and runs the microbenchmarks.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    bpf::run(workspace)?;
    ui::step("Running the microbenchmarks");
    let packages = CRATES.iter().flat_map(|package| ["--package", package]);
    command::run(command::cargo().current_dir(workspace.root()).arg("bench").args(packages).args(["--bench", "*"]))
}

/// Measures the time of a pair of malloc and free, untraced and under several tracers.
pub(crate) fn overhead(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_benchmarks()?;
    OVERHEAD.run(workspace, options)
}

/// Measures the slowdown of real programs.
pub(crate) fn real(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_real_programs()?;
    REAL.run(workspace, options)
}

/// Measures the time of a stack walk by depth.
pub(crate) fn unwind(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_benchmarks()?;
    UNWIND.run(workspace, options)
}

/// Measures the time to read the heap profile of a Go program.
pub(crate) fn go(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_benchmarks()?;
    GO.run(workspace, options)
}

/// Measures the cost of sampled traces of running programs.
pub(crate) fn sampled(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_sampled_programs()?;
    SAMPLED.run(workspace, options)
}

/// Measures the time of each kind of span, with and without tracing.
pub(crate) fn spans(workspace: &Workspace, options: &[String]) -> Result<()> {
    setup::for_benchmarks()?;
    SPANS.run(workspace, options)
}

/// Writes the last results into the guide.
pub(crate) fn readme(workspace: &Workspace) -> Result<()> {
    ui::step("Writing the last results into docs/guide/overhead.md");
    let path = workspace.join("docs/guide/overhead.md");
    let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let all = [OVERHEAD, SPANS, REAL];
    let (measured, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|measurement| measurement.result(workspace).exists());
    if measured.is_empty() {
        bail!("no result; run first: cargo xtask bench overhead, bench spans or bench real");
    }
    for Measurement { name, .. } in others {
        ui::note(&format!("{name} stays as it is; no result of `cargo xtask bench {name}`"));
    }
    for measurement in measured {
        let result = measurement.result(workspace);
        let json = fs::read_to_string(&result).with_context(|| format!("cannot read {}", result.display()))?;
        let table = measurement.show(&json)?;
        text = readme::with_section(&text, measurement.name, &table)?;
        ui::note(&format!("{} from {}", measurement.name, result.display()));
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Measurement {
    fn result(&self, workspace: &Workspace) -> PathBuf {
        workspace.join(&format!("target/bench/{}.json", self.name))
    }

    fn show(&self, json: &str) -> Result<String> {
        let result = serde_json::from_str(json).context("the result is not JSON")?;
        (self.table)(&result)
    }

    fn run(&self, workspace: &Workspace, options: &[String]) -> Result<()> {
        let root = Root::obtain().context("memtrace traces as root")?;
        bpf::run(workspace)?;
        ui::step("Building memtrace and the benchmarks");
        command::run(command::cargo().current_dir(workspace.root()).args([
            "build",
            "--release",
            "--package",
            "memtrace",
            "--package",
            "memtrace-bench",
        ]))?;
        ui::step("Measuring; the machine should be idle otherwise");
        let json = self.measure(workspace, root, options)?;
        let result = self.result(workspace);
        if let Some(folder) = result.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&result, &json).with_context(|| format!("cannot write {}", result.display()))?;
        ui::result(&format!("\n{}\n\nAs JSON: {}", self.show(&json)?, result.display()));
        Ok(())
    }

    /// Runs the measurement as root, and returns its output. The caller writes the result file as the user.
    fn measure(&self, workspace: &Workspace, root: Root, options: &[String]) -> Result<String> {
        let mut command = root.command("timeout");
        // In the foreground, Ctrl-C reaches all processes. Processes that remain at the end exit by themselves, because
        // their input is closed or their target has exited.
        command.args(["--foreground", "--kill-after=10", &DEADLINE.as_secs().to_string()]);
        command.arg(workspace.join("target/release/memtrace-bench")).arg(self.name);
        command.args([OsStr::new("--memtrace"), workspace.join("target/release/memtrace").as_os_str()]);
        command.args([OsStr::new("--floor"), workspace.bpf().floor().as_os_str()]).args(options);
        let shown = command::shown(&command);
        ui::note(&shown);
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {shown}"))?;
        if !output.status.success() {
            bail!("failed with {}: {shown}", output.status);
        }
        String::from_utf8(output.stdout).context("the result is not UTF-8")
    }
}
