//! Profiles as `go tool pprof` reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::go_profile::{self, Chain};
use crate::process;

/// In-use memory of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub objects: u64,
    pub bytes: u64,
    /// Number of samples of the profile with this stack.
    pub samples: u64,
}

/// Returns the in-use memory by stack, as `go tool pprof -raw` prints it. [`go_profile::chain`] makes the keys.
/// `program`: executable of the profile, if the profile has no names.
///
/// # Panics
///
/// If pprof cannot read the profile.
#[must_use]
pub fn in_use_by_stack(profile: &Path, program: Option<&Path>) -> BTreeMap<Chain, InUse> {
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-raw"]).args(program).arg(profile);
    let text = process::run(&mut pprof);
    let functions = functions_by_location(&section(&text, "Locations\n", "\nMappings"));
    let samples = section(&text, "Samples:\n", "\nLocations");
    let mut lines = samples.lines();
    // `inuse_space/bytes[dflt] inuse_objects/count`, in any order.
    let types: Vec<&str> = lines.next().expect("the types of the values").split_whitespace().collect();
    let column = |name: &str| types.iter().position(|of| of.split('/').next() == Some(name));
    let columns = column("inuse_objects").zip(column("inuse_space"));
    let (objects, bytes) = columns.expect("the profile has the in-use memory");
    let mut stacks: BTreeMap<Chain, InUse> = BTreeMap::new();
    // `       118     966656: 1 2 3 `: values and locations from leaf to root. A line with labels follows.
    for line in lines {
        let Some((values, locations)) = line.split_once(": ") else { continue };
        let values: Vec<u64> = values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if values.len() != types.len() {
            continue;
        }
        let locations = locations.split_whitespace().filter_map(|number| functions.get(&number.parse().ok()?));
        let mut names: Vec<&str> = locations.flatten().map(String::as_str).collect();
        names.reverse();
        let in_use = stacks.entry(go_profile::chain(names)).or_default();
        in_use.objects += values[objects];
        in_use.bytes += values[bytes];
        in_use.samples += 1;
    }
    stacks
}

/// Returns the functions of each location, from an inlined function to the function that contains it.
fn functions_by_location(section: &str) -> BTreeMap<u64, Vec<String>> {
    // `     1: 0x46b5b9 M=1 main.small /src/go_heap.go:37 s=36`, and further lines for the callers of inlined calls.
    let mut functions: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut number = 0;
    for line in section.lines() {
        let mut words = line.split_whitespace().peekable();
        let first: Option<u64> =
            words.peek().and_then(|word| word.strip_suffix(':')).and_then(|word| word.parse().ok());
        if let Some(first) = first {
            number = first;
            // The number and the address.
            words.nth(1);
        }
        if let Some(name) = words.find(|word| !word.starts_with("M=") && *word != "[F]") {
            functions.entry(number).or_default().push(name.to_owned());
        }
    }
    functions
}

/// Returns the text from the line `start` to the line `end`, or to the end of the text.
fn section(text: &str, start: &str, end: &str) -> String {
    let (_, after) = text.split_once(start).unwrap_or_else(|| panic!("there is no {start:?} in {text}"));
    after.split_once(end).map_or(after, |(section, _)| section).to_owned()
}

/// Returns the in-use bytes by allocating function, as `go tool pprof -top` prints them.
///
/// # Panics
///
/// If pprof cannot read the profile.
#[must_use]
pub fn in_use_by_function(profile: &Path) -> BTreeMap<String, f64> {
    let options = ["-top", "-nodecount=10000", "-nodefraction=0", "-sample_index=inuse_space", "-unit=b"];
    let text = process::run(Command::new("go").args(["tool", "pprof"]).args(options).arg(profile));
    let mut functions = BTreeMap::new();
    // `  4195712B 20.82% 41.73%   4195712B 20.82%  bufio.NewWriterSize (inline)`
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [flat, share, sum, _, total, name @ ..] = words.as_slice() else { continue };
        let flat = flat.strip_suffix('B').unwrap_or(flat).parse::<f64>();
        let (Ok(flat), true) = (flat, [share, sum, total].iter().all(|word| word.ends_with('%'))) else { continue };
        let name = name.join(" ");
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)");
        *functions.entry(name.to_owned()).or_default() += flat;
    }
    functions
}
