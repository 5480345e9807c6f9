//! `cargo xtask fuzz`: runs the fuzz targets with libFuzzer, each from its corpus in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{bpf, command, parallel, setup, ui};

/// Time of each target in the long tier.
const IN_TESTS: Duration = Duration::from_secs(60);

/// Flags of the compiler that make a stable compiler emit what libFuzzer reads: counters of edges, and the operands of
/// comparisons (clang's SanitizerCoverage).
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Memory limit of one input, in MiB.
const MEMORY: u32 = 2048;
/// Time limit of one input, in seconds.
const TIMEOUT: u32 = 10;

/// Runs the targets that `options` names, or all targets: each for a minute, or for `--minutes`.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let (time, chosen) = parse(options)?;
    setup::for_building()?;
    bpf::run(workspace)?;
    let all = names(workspace)?;
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(name)) {
        bail!("there is no fuzz target {unknown}; there are {}", all.join(", "));
    }
    let targets = if chosen.is_empty() { all } else { chosen };
    let failures = run_targets(workspace, &targets, time)?;
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

/// Returns the target of the build. Because the target is explicit, the programs that run during the build are not instrumented.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Runs all targets in the long tier. Returns a line for each that has failed.
pub(crate) fn run_in_tests(workspace: &Workspace) -> Result<Vec<String>> {
    let targets = names(workspace)?;
    run_targets(workspace, &targets, IN_TESTS)
}

fn parse(options: &[String]) -> Result<(Duration, Vec<String>)> {
    let (mut time, mut targets) = (IN_TESTS, Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        if word == "--minutes" {
            let minutes: u64 = words.next().and_then(|word| word.parse().ok()).context("--minutes needs a number")?;
            time = Duration::from_secs(minutes * 60);
        } else {
            targets.push(word.clone());
        }
    }
    Ok((time, targets))
}

/// Returns the names of the targets. Each target is a file.
fn names(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut names: Vec<_> =
        paths.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

/// Builds and runs targets, as many at once as there are processors. Returns a line for each that has failed.
fn run_targets(workspace: &Workspace, targets: &[String], time: Duration) -> Result<Vec<String>> {
    ui::step("Building the fuzz targets");
    let output = workspace.join("target/fuzz");
    let mut build = command::cargo();
    build.current_dir(workspace.join("fuzz")).args(["build", "--release", "--target", &target()]);
    build.arg("--target-dir").arg(&output).env("RUSTFLAGS", INSTRUMENTATION);
    command::run(&mut build)?;
    ui::step(&format!("Running {} fuzz targets for {} s each", targets.len(), time.as_secs()));
    let results = parallel::map(parallel::processors(), targets, |_, name| run_target(workspace, &output, name, time));
    results.into_iter().filter_map(Result::transpose).collect()
}

/// Runs a target. Returns a line if it has failed.
fn run_target(workspace: &Workspace, output: &Path, name: &str, time: Duration) -> Result<Option<String>> {
    let create = |folder: &str| -> Result<PathBuf> {
        let path = output.join(folder).join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    };
    let (found, failed) = (create("corpus")?, create("failed")?);
    let log = output.join(format!("{name}.log"));
    let file = fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(output.join(target()).join("release").join(name));
    command.arg(format!("-max_total_time={}", time.as_secs())).arg(format!("-rss_limit_mb={MEMORY}"));
    command.arg(format!("-timeout={TIMEOUT}")).arg(format!("-artifact_prefix={}/", failed.display()));
    command.arg("-print_final_stats=1").arg(&found).arg(workspace.join("fuzz/corpus").join(name));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let status = command.status().with_context(|| format!("cannot run {}", command::shown(&command)))?;
    let text = fs::read_to_string(&log).unwrap_or_default();
    let runs = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match (status.success(), runs) {
        (true, Some(runs)) => {
            ui::note(&format!("{name}: {} inputs", runs.trim()));
            Ok(None)
        }
        _ => Ok(Some(format!("fuzz target {name} failed ({status}); see {} and {}", log.display(), failed.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_time_and_targets() {
        let parse = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), (IN_TESTS, Vec::new()));
        let expected = (Duration::from_secs(3600), vec!["elf".to_owned(), "json".to_owned()]);
        assert_eq!(parse(&["elf", "--minutes", "60", "json"]).unwrap(), expected);
        assert!(parse(&["--minutes"]).is_err());
        assert!(parse(&["--minutes", "x"]).is_err());
    }

    #[test]
    fn every_target_has_a_corpus_and_is_built() {
        let workspace = Workspace::find().unwrap();
        let names = names(&workspace).unwrap();
        let manifest = fs::read_to_string(workspace.join("fuzz/Cargo.toml")).unwrap();
        assert!(!names.is_empty());
        for name in names {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(fs::read_dir(workspace.join("fuzz/corpus").join(&name)).unwrap().next().is_some(), "{name}");
        }
    }
}
