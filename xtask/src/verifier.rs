//! How much of the kernel half the verifier walks through, program by program, held against a committed baseline: a
//! program that suddenly takes far more is about to be refused by some kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, anyhow, bail};
use aya::Ebpf;
use aya::programs::{Program, ProgramError};
use bpf_artifact::{Machine, Variant};

use crate::ui;
use crate::workspace::Workspace;

/// What a verifier says of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It walks through so many instructions, where it tells (Linux 5.16).
    Accepted(Option<u64>),
    /// Its last words.
    Refused(String),
}

/// What the verifier says of the programs.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// Of the programs of the plain object, which are called as the others are.
pub(crate) const PLAIN: &str = "plain_";

/// The baseline: a program and its number of verified instructions a line.
const BASELINE: &str = "xtask/verified-instructions.txt";

/// Kernels differ a little in how they walk; more than this many hundredths above the baseline is too much.
const TOLERANCE: u64 = 25;

/// Prints what the running kernel's verifier says, and fails where it is far above the baseline. Without root it cannot
/// be asked, which is said.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        ui::note("as root, this would also print how many instructions the verifier walks through");
        return Ok(());
    }
    let mut counts = BTreeMap::new();
    for (name, verdict) in ask(workspace)? {
        let count = match verdict {
            Verdict::Accepted(count) => count.context("kernels before 5.16 do not say how much they verify")?,
            Verdict::Refused(words) => bail!("the verifier refuses {name}: {words}"),
        };
        counts.insert(name, count);
    }
    let path = workspace.join(BASELINE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let baseline = parse(&text)?;
    ui::step("Instructions that the verifier walks through, and the baseline");
    for (program, count) in &counts {
        let known = baseline.get(program).map_or_else(|| String::from("-"), u64::to_string);
        ui::note(&format!("{program:<30} {count:>8} {known:>8}"));
    }
    judge(&counts, &baseline).map_err(|reason| anyhow!("{reason}; where that is right, change {BASELINE}"))
}

/// Prints a program and what the verifier says of it a line, for `cargo xtask bpf --kernels`, which runs this in guests.
pub(crate) fn tell(workspace: &Workspace) -> Result<()> {
    for (program, verdict) in ask(workspace)? {
        ui::result(&match verdict {
            Verdict::Accepted(Some(count)) => format!("{program} {count}"),
            Verdict::Accepted(None) => format!("{program} {UNTOLD}"),
            Verdict::Refused(words) => format!("{program} {REFUSED} {words}"),
        });
    }
    Ok(())
}

/// Stands for a number that the kernel does not tell.
pub(crate) const UNTOLD: &str = "-";

/// Stands before the words of a refusal.
const REFUSED: &str = "refused:";

/// The lines that [`tell`] prints.
pub(crate) fn read(told: &str) -> Verdicts {
    let row = |line: &str| {
        let (program, verdict) = line.split_once(' ')?;
        let verdict = match (verdict.strip_prefix(REFUSED), verdict) {
            (Some(words), _) => Verdict::Refused(words.trim().to_owned()),
            (None, UNTOLD) => Verdict::Accepted(None),
            (None, count) => Verdict::Accepted(Some(count.parse().ok()?)),
        };
        Some((program.to_owned(), verdict))
    };
    told.lines().filter_map(row).collect()
}

/// Asks for all programs of both objects.
fn ask(workspace: &Workspace) -> Result<Verdicts> {
    let mut verdicts = BTreeMap::new();
    for (variant, beginning) in [(Variant::Usual, ""), (Variant::Plain, PLAIN)] {
        let object = workspace.bpf().object(Machine::OWN, variant);
        let object = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
        let mut ebpf = Ebpf::load(&object).context("the kernel does not take the object")?;
        let names: BTreeSet<String> = ebpf.programs().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let program = ebpf.program_mut(&name).context("a program is not there any more")?;
            let loaded = match program {
                Program::UProbe(program) => program.load(),
                Program::RawTracePoint(program) => program.load(),
                Program::PerfEvent(program) => program.load(),
                _ => bail!("{name} is of a kind that is not known here"),
            };
            let verdict = match loaded {
                Ok(()) => Verdict::Accepted(program.info()?.verified_instruction_count().map(u64::from)),
                Err(error) => Verdict::Refused(last_words(&error)),
            };
            let refused = matches!(verdict, Verdict::Refused(_));
            verdicts.insert(format!("{beginning}{name}"), verdict);
            // What one of its programs needs, memtrace asks for before it takes this object at all.
            if refused && variant == Variant::Usual {
                break;
            }
        }
    }
    Ok(verdicts)
}

/// The end of what a verifier says, in one line. Its account of its own work says nothing.
fn last_words(error: &ProgramError) -> String {
    const LINES: usize = 3;
    const ACCOUNT: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let text = error.to_string();
    let is_account = |line: &&str| line.is_empty() || ACCOUNT.iter().any(|beginning| line.starts_with(beginning));
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !is_account(line)).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

fn parse(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.split_once(char::is_whitespace).context("a line without a number")?;
            Ok((name.to_owned(), count.trim().parse().with_context(|| format!("{count} is no number"))?))
        })
        .collect()
}

fn judge(counts: &BTreeMap<String, u64>, baseline: &BTreeMap<String, u64>) -> Result<(), String> {
    for (program, &count) in counts {
        match baseline.get(program) {
            None => return Err(format!("{program} is not in the baseline")),
            Some(&known) if count * 100 > known * (100 + TOLERANCE) => {
                return Err(format!("{program} takes {count} instructions, and the baseline has {known}"));
            }
            Some(_) => {}
        }
    }
    match baseline.keys().find(|program| !counts.contains_key(*program)) {
        Some(program) => Err(format!("{program} is in the baseline and not in the object")),
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
    fn a_little_more_than_the_baseline_is_right_and_much_more_is_not() {
        let baseline = table("# on Linux 6.18\nfree 400\n");
        assert_eq!(judge(&table("free 400"), &baseline), Ok(()));
        assert_eq!(judge(&table("free 500"), &baseline), Ok(()));
        assert!(judge(&table("free 501"), &baseline).is_err());
    }

    #[test]
    fn what_is_told_is_read_again() {
        let told = read("==> nothing\nfree 400\nplain_free -\nmalloc refused: 7: (db) | no such thing");
        assert_eq!(told["free"], Verdict::Accepted(Some(400)));
        assert_eq!(told["plain_free"], Verdict::Accepted(None));
        assert_eq!(told["malloc"], Verdict::Refused(String::from("7: (db) | no such thing")));
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn programs_that_came_or_went_are_told() {
        let baseline = table("free 400\nmalloc 300");
        assert!(judge(&table("free 400"), &baseline).unwrap_err().contains("malloc"));
        assert!(judge(&table("free 400\nmalloc 300\nnew 1"), &baseline).unwrap_err().contains("new"));
        assert!(parse("free many").is_err());
    }
}
