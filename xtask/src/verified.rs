//! How much of the kernel half the verifier walks through, program by program, held against a committed baseline: a
//! program that suddenly takes far more is about to be refused by some kernel.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, anyhow, bail};
use aya::Ebpf;
use aya::programs::Program;

use crate::say;
use crate::workspace::Workspace;

/// What the verifier says of the programs: how many instructions it walks through, where it tells.
pub(crate) type Counts = BTreeMap<String, Option<u64>>;

/// The baseline: a program and its number of verified instructions a line.
const BASELINE: &str = "xtask/verified-instructions.txt";

/// Kernels differ a little in how they walk; more than this many hundredths above the baseline is too much.
const TOLERANCE: u64 = 25;

/// Prints what the running kernel's verifier says, and fails where it is far above the baseline. Without root it cannot
/// be asked, which is said.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        say::note("as root, this would also print how many instructions the verifier walks through");
        return Ok(());
    }
    let untold = "kernels before 5.16 do not say how much they verify";
    let told = count(workspace)?.into_iter().map(|(name, count)| Ok((name, count.context(untold)?)));
    let counts = told.collect::<Result<BTreeMap<_, _>>>()?;
    let path = workspace.join(BASELINE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let baseline = parse(&text)?;
    say::step("Instructions that the verifier walks through, and the baseline");
    for (program, count) in &counts {
        let known = baseline.get(program).map_or_else(|| String::from("-"), u64::to_string);
        say::note(&format!("{program:<24} {count:>8} {known:>8}"));
    }
    judge(&counts, &baseline).map_err(|reason| anyhow!("{reason}; where that is right, change {BASELINE}"))
}

/// Prints a program and its number a line, for `cargo xtask bpf --kernels`, which runs this in guests. What the verifier
/// says of a program that it refuses is in the error.
pub(crate) fn tell(workspace: &Workspace) -> Result<()> {
    for (program, count) in count(workspace)? {
        let count = count.map_or_else(|| String::from(UNTOLD), |count| count.to_string());
        say::result(&format!("{program} {count}"));
    }
    Ok(())
}

/// Stands for a number that the kernel does not tell.
pub(crate) const UNTOLD: &str = "-";

/// The lines that [`tell`] prints.
pub(crate) fn read(told: &str) -> Counts {
    let row = |line: &str| {
        let (program, count) = line.split_once(' ')?;
        let count = if count == UNTOLD { None } else { Some(count.parse().ok()?) };
        Some((program.to_owned(), count))
    };
    told.lines().filter_map(row).collect()
}

fn count(workspace: &Workspace) -> Result<Counts> {
    let object = workspace.bpf().object();
    let object = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
    let mut ebpf = Ebpf::load(&object).context("the kernel does not take the object")?;
    let mut counts = BTreeMap::new();
    for (name, program) in ebpf.programs_mut() {
        match program {
            Program::UProbe(program) => program.load(),
            Program::RawTracePoint(program) => program.load(),
            Program::PerfEvent(program) => program.load(),
            _ => bail!("{name} is of a kind that is not known here"),
        }
        .with_context(|| format!("the verifier refuses {name}"))?;
        let verified = program.info()?.verified_instruction_count();
        counts.insert(name.to_owned(), verified.map(u64::from));
    }
    Ok(counts)
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
    fn programs_that_came_or_went_are_told() {
        let baseline = table("free 400\nmalloc 300");
        assert!(judge(&table("free 400"), &baseline).unwrap_err().contains("malloc"));
        assert!(judge(&table("free 400\nmalloc 300\nnew 1"), &baseline).unwrap_err().contains("new"));
        assert!(parse("free many").is_err());
    }
}
