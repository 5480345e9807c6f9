//! Verified instruction counts of the BPF programs, compared with a committed baseline. A sudden increase means that
//! some kernel will soon refuse the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, anyhow, bail};
use aya::programs::{Program, ProgramError};
use aya::{Btf, EbpfLoader};
use bpf_artifact::Machine;

use crate::ui;
use crate::workspace::Workspace;

/// Verdict of a verifier on a BPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Number of verified instructions.
    Accepted(u64),
    /// End of the verifier's log.
    Refused(String),
    /// The kernel permits no programs at kernel functions, so the verifier did not see the program.
    NotPermitted,
}

/// Verdicts by name of the BPF program.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// File with the name of a BPF program, and its number of verified instructions, on each line.
const BASELINE: &str = "xtask/verified-instructions.txt";

/// Permitted increase over the baseline, in percent. The counts of different kernels differ a little.
const TOLERANCE: u64 = 25;

/// Kernel function that the fentry and fexit programs are loaded for. In a run, they are loaded for further functions with the
/// same argument.
const HUGE_PAGE_FAULT: &str = "do_huge_pmd_anonymous_page";

/// Prints the instruction counts of the running kernel's verifier. Fails if a count is more than [`TOLERANCE`] above
/// the baseline. Without root, it only prints a note.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        ui::note("not root: the verified instruction counts are not checked");
        return Ok(());
    }
    let (mut counts, mut not_permitted) = (BTreeMap::new(), BTreeSet::new());
    for (name, verdict) in verify(workspace)? {
        let count = match verdict {
            Verdict::Accepted(count) => count,
            Verdict::Refused(log) => bail!("the verifier refuses {name}: {log}"),
            Verdict::NotPermitted => {
                ui::note(&format!("{name} is not verified: this kernel permits no programs at its functions"));
                not_permitted.insert(name);
                continue;
            }
        };
        counts.insert(name, count);
    }
    let path = workspace.join(BASELINE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut baseline = parse(&text)?;
    baseline.retain(|program, _| !not_permitted.contains(program));
    ui::step("Verified instructions, and the baseline");
    for (program, count) in &counts {
        let expected = baseline.get(program).map_or_else(|| String::from("-"), u64::to_string);
        ui::note(&format!("{program:<30} {count:>8} {expected:>8}"));
    }
    compare(&counts, &baseline).map_err(|reason| anyhow!("{reason}; if this is intended, update {BASELINE}"))
}

/// Prints the name and the verdict of each BPF program. `cargo xtask bpf --kernels` runs this in guests.
pub(crate) fn print_verdicts(workspace: &Workspace) -> Result<()> {
    for (program, verdict) in verify(workspace)? {
        ui::result(&match verdict {
            Verdict::Accepted(count) => format!("{program} {count}"),
            Verdict::Refused(log) => format!("{program} {REFUSED} {log}"),
            Verdict::NotPermitted => format!("{program} {NOT_PERMITTED}"),
        });
    }
    Ok(())
}

/// Name of the verdict on the maps of the object. If the kernel refuses a map, no program is loaded.
const MAPS: &str = "maps";

/// Text in place of a count, if the kernel permits no programs at kernel functions.
const NOT_PERMITTED: &str = "not-permitted";

/// Text before the log of a refusal.
const REFUSED: &str = "refused:";

/// Parses the lines of [`print_verdicts`].
pub(crate) fn parse_verdicts(text: &str) -> Verdicts {
    let row = |line: &str| {
        let (program, verdict) = line.split_once(' ')?;
        let verdict = match verdict.strip_prefix(REFUSED) {
            Some(log) => Verdict::Refused(log.trim().to_owned()),
            None if verdict == NOT_PERMITTED => Verdict::NotPermitted,
            None => Verdict::Accepted(verdict.parse().ok()?),
        };
        Some((program.to_owned(), verdict))
    };
    text.lines().filter_map(row).collect()
}

/// Loads all BPF programs, and returns the verifier's verdicts.
fn verify(workspace: &Workspace) -> Result<Verdicts> {
    let mut verdicts = BTreeMap::new();
    let object = workspace.bpf().object(Machine::OWN);
    let object = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
    // aya has no type for `BPF_MAP_TYPE_TASK_STORAGE`.
    let mut ebpf = match EbpfLoader::new().allow_unsupported_maps().load(&object) {
        Ok(ebpf) => ebpf,
        Err(error) => return Ok([(String::from(MAPS), Verdict::Refused(error.to_string()))].into()),
    };
    let names: BTreeSet<String> = ebpf.programs().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let program = ebpf.program_mut(&name).context("a program has disappeared")?;
        let is_at_function = matches!(program, Program::FEntry(_) | Program::FExit(_));
        let loaded = match program {
            Program::UProbe(program) => program.load(),
            Program::RawTracePoint(program) => program.load(),
            Program::TracePoint(program) => program.load(),
            Program::PerfEvent(program) => program.load(),
            Program::Iter(program) => program.load("task", &Btf::from_sys_fs()?),
            Program::FEntry(program) => program.load(HUGE_PAGE_FAULT, &Btf::from_sys_fs()?),
            Program::FExit(program) => program.load(HUGE_PAGE_FAULT, &Btf::from_sys_fs()?),
            _ => bail!("{name} has an unknown program type"),
        };
        let verdict = match loaded {
            Ok(()) => {
                let count = program.info()?.verified_instruction_count();
                Verdict::Accepted(count.context("the kernel does not report verified instructions")?.into())
            }
            Err(error) if is_at_function && is_not_permitted(&error) => Verdict::NotPermitted,
            Err(error) => Verdict::Refused(log_end(&error)),
        };
        verdicts.insert(name, verdict);
    }
    Ok(verdicts)
}

/// Returns true if the kernel refuses a program before its verifier sees it.
fn is_not_permitted(error: &ProgramError) -> bool {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return false };
    io_error.kind() == io::ErrorKind::PermissionDenied && verifier_log.to_string().trim().is_empty()
}

/// Returns the end of the verifier's log in one line, without its statistics.
fn log_end(error: &ProgramError) -> String {
    const LINES: usize = 3;
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let text = error.to_string();
    let is_statistics = |line: &&str| line.is_empty() || STATISTICS.iter().any(|prefix| line.starts_with(prefix));
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !is_statistics(line)).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

fn parse(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.split_once(char::is_whitespace).context("a line without a count")?;
            Ok((name.to_owned(), count.trim().parse().with_context(|| format!("{count} is not a number"))?))
        })
        .collect()
}

fn compare(counts: &BTreeMap<String, u64>, baseline: &BTreeMap<String, u64>) -> Result<(), String> {
    for (program, &count) in counts {
        match baseline.get(program) {
            None => return Err(format!("{program} is not in the baseline")),
            Some(&expected) if count * 100 > expected * (100 + TOLERANCE) => {
                return Err(format!("{program} has {count} verified instructions, and the baseline has {expected}"));
            }
            Some(_) => {}
        }
    }
    match baseline.keys().find(|program| !counts.contains_key(*program)) {
        Some(program) => Err(format!("{program} is in the baseline but not in the object")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> BTreeMap<String, u64> {
        parse(text).unwrap()
    }

    #[test]
    fn small_increase_over_the_baseline_is_accepted() {
        let baseline = table("# on Linux 6.18\nfree 400\n");
        assert_eq!(compare(&table("free 400"), &baseline), Ok(()));
        assert_eq!(compare(&table("free 500"), &baseline), Ok(()));
        assert!(compare(&table("free 501"), &baseline).is_err());
    }

    #[test]
    fn printed_verdicts_are_parsed() {
        let text = "==> nothing\nfree 400\nhuge not-permitted\nmalloc refused: 7: (db) | no such thing";
        let verdicts = parse_verdicts(text);
        assert_eq!(verdicts["huge"], Verdict::NotPermitted);
        assert_eq!(verdicts["free"], Verdict::Accepted(400));
        assert_eq!(verdicts["malloc"], Verdict::Refused(String::from("7: (db) | no such thing")));
        assert_eq!(verdicts.len(), 3);
    }

    #[test]
    fn added_and_removed_programs_are_reported() {
        let baseline = table("free 400\nmalloc 300");
        assert!(compare(&table("free 400"), &baseline).unwrap_err().contains("malloc"));
        assert!(compare(&table("free 400\nmalloc 300\nnew 1"), &baseline).unwrap_err().contains("new"));
        assert!(parse("free many").is_err());
    }
}
