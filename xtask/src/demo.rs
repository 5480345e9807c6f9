//! `cargo xtask demo`: traces a leaking service and writes its flame graph.

mod report;
mod service;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use harness::Report;
use service::Service;

use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{bpf, command, setup, ui};

/// Duration of the trace.
const DURATION: &str = "10s";

const LEAKING_FUNCTION: &str = "session_table_remember";

const PICTURE: &str = "memtrace-demo.svg";
const NUMBERS: &str = "memtrace-demo.json";

/// Sets up, builds, traces the service, and prints the sites with the most live bytes.
///
/// # Errors
///
/// If a step fails, or if the site with the most live bytes is not the leaking function.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let root = Root::obtain().context("memtrace traces as root")?;
    setup::for_demo()?;
    bpf::run(workspace)?;

    let memtrace = command::build_release(workspace)?;
    let service = build_service(workspace)?;

    ui::step("Starting the demo service");
    let service = Service::start(&service)?;
    ui::note(&format!("its PID is {}", service.pid()));

    ui::step(&format!("Attaching memtrace to process {} for {DURATION}", service.pid()));
    command::run(
        root.command(memtrace)
            .current_dir(workspace.root())
            .args(["--pid", &service.pid().to_string(), "--duration", DURATION])
            .args(["-o", PICTURE, "-o", NUMBERS]),
    )?;
    drop(service);

    let numbers = workspace.join(NUMBERS);
    let text = fs::read_to_string(&numbers).with_context(|| format!("cannot read {}", numbers.display()))?;
    let report = Report::read(&text).context("memtrace's report cannot be read")?;
    let summary = report::summarize(&report, LEAKING_FUNCTION)?;
    ui::result(&format!("\n{summary}\n\nThe flame graph: {}", workspace.join(PICTURE).display()));
    Ok(())
}

/// Builds the demo service, and returns its path.
pub(crate) fn build_service(workspace: &Workspace) -> Result<PathBuf> {
    ui::step("Building the demo service");
    let target = workspace.join("target/frame-pointers");
    command::run(
        command::cargo()
            .current_dir(workspace.root())
            .args(["build", "--release", "--package", "memtrace-demo", "--target-dir"])
            .arg(&target)
            // The flag needs a separate target folder: in a shared one, Cargo would rebuild everything else.
            .env("RUSTFLAGS", "-Cforce-frame-pointers=yes"),
    )?;
    Ok(target.join("release/demo-service"))
}
