//! Reads the probe sites of a tracer from the kernel's description of the tracer's links.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use serde::Serialize;

/// Event at which a probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// A thread executes the probed instruction.
    Entry,
    /// The function returns.
    Return,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) event: Event,
    /// File offset of the probed instruction.
    pub(crate) offset: u64,
    /// Id of the probe's BPF program.
    pub(crate) program: u32,
}

/// Probe and its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProbeSite {
    pub(crate) function: &'static str,
    pub(crate) event: Event,
    /// Offset of the probed instruction from the start of the function.
    pub(crate) offset: u64,
    #[serde(skip)]
    pub(crate) probe: Probe,
}

/// Returns the probes of tracer `pid` in malloc of `library`, followed by its probes in free.
pub(crate) fn malloc_and_free(pid: u32, library: &Path) -> Result<Vec<ProbeSite>> {
    let functions = ["malloc", "free"].map(|name| in_function(pid, library, name));
    Ok(functions.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// Returns the probes of tracer `pid` in an exported function of the file `path`, ordered by offset.
pub(crate) fn in_function(pid: u32, path: &Path, function: &'static str) -> Result<Vec<ProbeSite>> {
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let range = function_range(&file, function);
    let (start, size) = range.with_context(|| format!("{function} is not in {}", path.display()))?;
    let mut probes = list(pid)?;
    probes.retain(|probe| (start..start + size).contains(&probe.offset));
    if probes.is_empty() {
        bail!("none of the probes of process {pid} is in {function}");
    }
    probes.sort_by_key(|probe| probe.offset);
    let site = |probe: Probe| ProbeSite { function, event: probe.event, offset: probe.offset - start, probe };
    Ok(probes.into_iter().map(site).collect())
}

/// Returns the probes of a process. The kernel describes them in fdinfo since Linux 6.16 (`bpf_perf_link_show_fdinfo`,
/// kernel/bpf/syscall.c, and `bpf_uprobe_multi_show_fdinfo`, kernel/trace/bpf_trace.c).
fn list(pid: u32) -> Result<Vec<Probe>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    // A descriptor that was closed since the listing is skipped.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let probes: Vec<Probe> = texts.flat_map(|text| parse(&text)).collect();
    if probes.is_empty() {
        bail!("the kernel does not describe probes: this benchmark needs Linux 6.16");
    }
    Ok(probes)
}

/// Parses the probes of one descriptor: one probe for a link to a perf event, several for a uprobe_multi link.
fn parse(fdinfo: &str) -> Vec<Probe> {
    let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let Some(program) = field("prog_id").and_then(|id| id.parse().ok()) else { return Vec::new() };
    let probe = |event, offset| Probe { event, offset, program };
    let kind = match field("link_type") {
        Some("perf") => field("event_type"),
        multi => multi.and_then(|multi| multi.strip_suffix("_multi")),
    };
    let event = match kind {
        Some("uprobe") => Event::Entry,
        Some("uretprobe") => Event::Return,
        _ => return Vec::new(),
    };
    if let Some(offset) = field("offset").and_then(number) {
        return vec![probe(event, offset)];
    }
    // The offsets are in a column of a table. The first row of the table has the names of the columns.
    let rows = fdinfo.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = rows.skip_while(|row| !row.contains(&"offset"));
    let column = rows.next().and_then(|header| header.iter().position(|&name| name == "offset"));
    let offsets = rows.filter_map(|row| number(row.get(column?)?));
    offsets.map(|offset| probe(event, offset)).collect()
}

/// Returns the file offset and the size of an exported function.
pub(crate) fn function_range(file: &[u8], name: &str) -> Option<(u64, u64)> {
    let elf = object::File::parse(file).ok()?;
    let symbol = elf
        .dynamic_symbols()
        .find(|symbol| symbol.is_definition() && symbol.name().is_ok_and(|other| other == name))?;
    let segment = elf
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&symbol.address()))?;
    Some((symbol.address() - segment.address() + segment.file_range().0, symbol.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_event_link_is_one_probe() {
        let text = "pos:\t0\nflags:\t02000000\nmnt_id:\t17\nino:\t1038\nlink_type:\tperf\nlink_id:\t9551\n\
                    prog_tag:\t7f2c215701c50374\nprog_id:\t7349\nname:\t/proc/self/fd/16\noffset:\t0x98930\n\
                    ref_ctr_offset:\t0x0\nevent_type:\turetprobe\ncookie:\t0\n";
        assert_eq!(parse(text), [Probe { event: Event::Return, offset: 0x98930, program: 7349 }]);
        let entry = text.replace("uretprobe", "uprobe");
        assert_eq!(parse(&entry), [Probe { event: Event::Entry, offset: 0x98930, program: 7349 }]);
        assert_eq!(parse(&text.replace("uretprobe", "kprobe")), []);
        assert_eq!(parse("pos:\t0\nflags:\t02\nlink_type:\traw_tracepoint\n"), []);
    }

    #[test]
    fn uprobe_multi_link_is_several_probes() {
        let text = "pos:\t0\nflags:\t02000000\nmnt_id:\t17\nino:\t1038\nlink_type:\turetprobe_multi\nlink_id:\t45708\n\
                    prog_tag:\t9b5c5c386b01a357\nprog_id:\t34641\nuprobe_cnt:\t2\npid:\t9382\npath:\t/usr/lib/libc.so.6\n\
                    cookie\t offset\t ref_ctr_offset\n0\t 0x65d088\t 0x0\n16\t 0x7\t 0x0\n";
        let probe = |event, offset| Probe { event, offset, program: 34641 };
        assert_eq!(parse(text), [probe(Event::Return, 0x65d088), probe(Event::Return, 7)]);
        let entries = text.replace("uretprobe", "uprobe");
        assert_eq!(parse(&entries), [probe(Event::Entry, 0x65d088), probe(Event::Entry, 7)]);
        assert_eq!(parse(&text.replace("uretprobe", "kprobe")), []);
    }
}
