//! Options of traces with heap events.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use memtrace_host::kernel::ThreadFilter;
use memtrace_model::{Bytes, MAX_TAG_FUNCTIONS, Metric, Requirement, TagAction, TagFormat, format};
use memtrace_object::allocators::{NamedAllocator, UserHooks};

use super::target::{TargetArgs, thread};
use crate::options::ProbesOf;
use crate::options::conflict::{ArgConflict, first_given};
use crate::options::headings::{ACTIVITY, FILTERS, OUTPUT, TARGET, TUNING};
use crate::options::hooks::TaggedHooks;
use crate::options::possible_values;
use crate::options::source::{AllocationSource, sources};
use crate::options::tag_functions::TagFunction;
use crate::options::tag_functions::{TagFrom, tag_from};
use crate::options::tag_presets::{PresetOf, TagPreset};
use crate::options::units::Percent;
use crate::options::{hooks, units};
use crate::targets::select::ProbeSite;

/// Functions to trace as allocators, and functions and threads that distinguish their blocks.
#[derive(Debug, Default, Args)]
pub(crate) struct HookArgs {
    /// Count only blocks that threads with this name allocate
    ///
    /// The name at the allocation, of at most 15 bytes. May be given more than once. Other blocks count as filtered. Frees
    /// by any thread count.
    #[arg(long = "thread", value_name = "NAME", value_parser = thread, hide_short_help = true, help_heading = TARGET)]
    pub(crate) threads: Vec<String>,

    /// Also trace the allocator in this object, perhaps with prefixed functions
    ///
    /// May be given more than once. Allocators that define malloc and free are found without it; this is for others, as
    /// in libpool.so:pool_ for pool_malloc, pool_free and related functions. The object is a path, a file name or a
    /// soname.
    #[arg(long = "allocator", value_name = "OBJECT[:PREFIX]", value_parser = hooks::allocator, hide_short_help = true, help_heading = TARGET)]
    pub(crate) allocators: Vec<NamedAllocator>,

    /// Also trace these functions, as in 'alloc=take(size=arg0)->ret,free=give(arg0)'
    ///
    /// May be given more than once. For pools with functions of their own: allocations inside these functions are not
    /// counted. A size may be a product, size=arg0*arg1; an address may be stored through an argument, ->arg0; and a
    /// function may reallocate, realloc=grow(old=arg0,size=arg1)->ret. A block can have a tag, tag=arg1, or tagname=arg1 for a
    /// C string.
    #[arg(long = "hook", value_name = "FUNCTIONS", value_parser = hooks::hooks, hide_short_help = true, help_heading = TARGET)]
    pub(crate) hooks: Vec<TaggedHooks>,

    /// Tag blocks as these functions of the program say, as in 'set=set_module(id=arg0)'
    ///
    /// May be given more than once, and with several functions: set=FUNC(id=argN) sets the tag of the thread to an argument,
    /// during=FUNC(id=argN) does so until FUNC returns, enter=FUNC(id=argN),leave=FUNC nest, get=FUNC()->ret sets it to a
    /// result, and process=FUNC(id=argN) sets that of threads without one. name=argN is a C string, id=argN:32 a number of 32
    /// bits, and if=argN==VALUE a condition. name=*(argN+0x18) is a field of a structure. get=FUNC()->ret,within=FUNC2 tags
    /// the last block that FUNC2 has allocated when it calls FUNC. A file can precede the function, as in
    /// set=/usr/bin/server:set_module(id=arg0). `probes` takes the tags from the probes of memtrace.h in all objects of the
    /// targets, and FILE:probes from those of a file. A block keeps the tag with which it was allocated. The report states the
    /// calls of each function. Presets know the functions of a program: mariadb:class, mariadb:user, mariadb:host,
    /// mariadb:connection and skynet.
    #[arg(long, value_name = "FUNCTIONS", value_parser = tag_from, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) tag_from: Vec<TagFrom>,

    /// Write tags that are numbers in this format [default: dec up to 32 bits, hex for longer numbers]
    #[arg(long, value_name = "FORMAT", value_parser = possible_values::tag_formats(), hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) tag_format: Option<TagFormat>,
}

impl HookArgs {
    /// Returns an option that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--allocator", !self.allocators.is_empty()),
            ("--hook", !self.hooks.is_empty()),
            ("--thread", !self.threads.is_empty()),
            ("--tag-from", !self.tag_from.is_empty()),
            ("--tag-format", self.tag_format.is_some()),
        ])
    }

    /// Returns the format of tags that are numbers, if one is given.
    pub(crate) fn tag_format(&self) -> Result<Option<TagFormat>, ArgConflict> {
        if self.tag_format.is_some() && !self.has_program_tags() {
            return Err(ArgConflict::new(
                "--tag-format is given, but the program sets no tags",
                "remove it, or give the functions that set tags, as in --tag-from 'set=set_module(id=arg0)'",
            ));
        }
        Ok(self.tag_format)
    }

    /// Returns the filter of the threads that may allocate traced blocks.
    pub(crate) fn thread_filter(&mut self, target: &TargetArgs) -> ThreadFilter {
        ThreadFilter {
            excluded: target.excluded_threads().map(str::to_owned).collect(),
            included: std::mem::take(&mut self.threads),
        }
    }

    /// Returns true if blocks have tags that the traced process sets.
    pub(crate) fn has_program_tags(&self) -> bool {
        !self.tag_from.is_empty() || self.hooks.iter().any(|hooks| !hooks.tags.is_empty())
    }

    /// Takes the sources of tags: the arguments of `--tag-from`, and the functions of `--hook` with a tag.
    pub(crate) fn take_tags(&mut self, target: &TargetArgs) -> Result<TagSources, ArgConflict> {
        let (mut functions, mut probes, mut presets) = (Vec::new(), Vec::new(), Vec::new());
        for from in std::mem::take(&mut self.tag_from) {
            match from {
                TagFrom::Functions(of_threads) => functions.extend(of_threads),
                TagFrom::Probes(object) => probes.push(object),
                TagFrom::Preset(preset) => presets.push(preset),
            }
        }
        functions.extend(self.hooks.iter_mut().flat_map(|hooks| std::mem::take(&mut hooks.tags)));
        if functions.len() > MAX_TAG_FUNCTIONS {
            return Err(ArgConflict::new(
                format!("{} functions set tags, but {MAX_TAG_FUNCTIONS} are possible", functions.len()),
                "give fewer functions",
            ));
        }
        let has_target = target.names_processes();
        if let Some(function) = functions.iter().find(|function| function.object.is_none() && !has_target) {
            return Err(ArgConflict::new(
                format!("no file is given for the tags of {}, and no process", function.name),
                "give its file, as in --tag-from 'set=/usr/bin/server:set_module(id=arg0)'; for a tag of --hook, give --pid or a command",
            ));
        }
        if !has_target && probes.iter().any(|probes| probes.object.is_none()) {
            return Err(ArgConflict::new(
                "no file is given for the probes with tags, and no process",
                "give the file with the probes, as in --tag-from /usr/bin/server:probes",
            ));
        }
        let enters = |function: &TagFunction| function.effect.action == TagAction::Enter;
        let has_levels = !probes.is_empty() || functions.iter().any(enters);
        if has_levels && functions.iter().any(|function| function.until_return) {
            return Err(ArgConflict::new(
                "--tag-from has functions with during, and others with enter or with probes",
                "give them in separate runs: the end of a function with during would leave a tag that was entered",
            ));
        }
        let preset = preset_of(&presets, !functions.is_empty() || !probes.is_empty(), target)?;
        Ok(TagSources { functions, probes, preset })
    }

    /// Returns the allocators and functions to trace in addition to the allocators that memtrace recognizes.
    pub(crate) fn into_user_hooks(self) -> UserHooks {
        UserHooks { allocators: self.allocators, hooks: self.hooks.into_iter().map(|hooks| hooks.hooks).collect() }
    }
}

/// Sources of the tags that the program sets.
pub(crate) struct TagSources {
    /// Functions that change the current tag.
    pub(crate) functions: Vec<TagFunction>,
    /// Objects with probes that change the current tag.
    pub(crate) probes: Vec<ProbesOf>,
    /// Preset for the program of the target, if one is given.
    pub(crate) preset: Option<PresetOf>,
}

/// Returns the preset with its process, if one is given. `has_others`: true if other sources of tags are given.
fn preset_of(presets: &[TagPreset], has_others: bool, target: &TargetArgs) -> Result<Option<PresetOf>, ArgConflict> {
    let Some(&preset) = presets.first() else { return Ok(None) };
    let name = preset.name();
    if has_others || presets.len() > 1 {
        return Err(ArgConflict::new(
            format!("--tag-from {name} is given with other sources of tags"),
            "remove the others: a block has one tag",
        ));
    }
    match *target.pids {
        [pid] => Ok(Some(PresetOf { preset, pid })),
        _ => Err(ArgConflict::new(
            format!("--tag-from {name} needs one running process"),
            "start the program first, and give its pid: --pid PID",
        )),
    }
}

/// Allocations that are traced, and the size that is counted for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct HeapArgs {
    /// Take allocations from these sources
    ///
    /// Go programs keep a sampled heap profile, and some allocators sample. These numbers are estimates, and reading them costs
    /// the program nothing. The report names the source.
    #[arg(long, value_name = "SOURCE", value_parser = sources(), default_value = "auto", hide_short_help = true, help_heading = TARGET)]
    pub(crate) source: AllocationSource,

    /// Count the requested or the usable size of each block [default: requested]
    ///
    /// The usable size is that of malloc_usable_size. It is known for glibc; blocks of other allocators are counted with
    /// their requested size, and as lost events (size_requested).
    #[arg(long, value_name = "SIZES", value_parser = block_sizes(), hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) size: Option<BlockSizes>,

    /// Ignore allocations smaller than this, as in 4096, 64KiB or 1M
    ///
    /// Units are powers of 1024. Smaller allocations are filtered in the kernel, and the report shows their number.
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = FILTERS)]
    pub(crate) min_size: Option<Bytes>,

    /// Ignore allocations larger than this
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = FILTERS)]
    pub(crate) max_size: Option<Bytes>,

    /// Limit the additional processor time of the target, as in 10%
    ///
    /// At the start, memtrace estimates its overhead from the allocations of running targets. If the estimate exceeds
    /// the limit, only larger allocations are traced; if that is not enough, nothing is traced. During the trace, the
    /// overhead is measured every 5 s. After 15 s above the limit, --min-size is raised once. After 15 s more, the
    /// trace ends, and its report has the loss overhead_limit. With --all, the limit is a share of the processor time
    /// that the machine uses. A limit above 300% applies to the estimate only.
    #[arg(long, value_name = "PERCENT", value_parser = units::percent, hide_short_help = true, help_heading = TUNING)]
    pub(crate) max_overhead: Option<Percent>,

    /// Probe these instructions of each function
    ///
    /// The other values cost more; use them for comparisons.
    #[arg(long, value_name = "WHICH", value_parser = possible_values::probe_sites(), default_value = "best", hide_short_help = true, help_heading = TUNING)]
    pub(crate) probe_site: ProbeSite,
}

impl HeapArgs {
    /// Returns an option that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--min-size", self.min_size.is_some()),
            ("--max-size", self.max_size.is_some()),
            ("--size", self.size.is_some()),
            ("--max-overhead", self.max_overhead.is_some()),
            ("--probe-site", self.probe_site != ProbeSite::default()),
            ("--source", self.source != AllocationSource::default()),
        ])
    }

    pub(crate) fn check(&self) -> Result<(), ArgConflict> {
        match (self.min_size, self.max_size) {
            (Some(min), Some(max)) if min > max => Err(ArgConflict::new(
                format!(
                    "--min-size {} is more than --max-size {}, which matches no allocation",
                    format::size_argument(min.0),
                    format::size_argument(max.0)
                ),
                "swap them, or remove one",
            )),
            _ => Ok(()),
        }
    }
}

/// Options of the ages, lifetimes and calls of blocks that have stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct BlockArgs {
    /// Count as live only blocks that are at least this old
    ///
    /// Applies to blocks held at exit too. Only with the metrics live-bytes, live-count, exit-bytes and exit-count, and
    /// not longer than --duration.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, help_heading = FILTERS)]
    pub(crate) older: Option<Duration>,

    /// Count blocks by size, lifetime and age
    ///
    /// Histograms have buckets of powers of two, for all blocks and for each stack. The summary states the times below
    /// which 50% and 90% of the freed blocks of a site lived; the JSON contains all counts. Each stack usually takes
    /// 100 bytes more, and at most 1 KiB.
    #[arg(long, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) lifetimes: bool,

    /// Time the calls of allocators, and trace those of at least this duration, as in 100us
    ///
    /// The report has a histogram of the durations for each function. They contain a part of the cost of the probes,
    /// about 1 µs. Frees are probed at their return too, which makes them as expensive as allocations. Units are those
    /// of --min-wait.
    #[arg(long, value_name = "DURATION", value_parser = units::short_duration, hide_short_help = true, help_heading = ACTIVITY)]
    pub(crate) allocator_latency: Option<Duration>,
}

impl BlockArgs {
    /// Returns an option that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--older", self.older.is_some()),
            ("--lifetimes", self.lifetimes),
            ("--allocator-latency", self.allocator_latency.is_some()),
        ])
    }

    /// Checks that `--older` is not longer than the trace, and that the metric counts only live blocks or blocks held
    /// at exit.
    pub(crate) fn check(&self, metric: Option<Metric>, duration: Option<Duration>) -> Result<(), ArgConflict> {
        let Some(older) = self.older else { return Ok(()) };
        let shown = format::duration_argument(older);
        let applies = |metric: &Metric| metric.quantity().is_held() && metric.needs(Requirement::Events);
        match duration {
            _ if let Some(metric) = metric.filter(|metric| !applies(metric)) => Err(ArgConflict::new(
                format!("--older {shown} applies to live blocks, and --metric {} counts others too", metric.name()),
                "remove --older, or use --metric live-bytes, live-count, exit-bytes or exit-count",
            )),
            Some(duration) if older > duration => Err(ArgConflict::new(
                format!(
                    "--older {shown} is longer than --duration {}, but no block is older than the trace",
                    format::duration_argument(duration)
                ),
                "increase --duration, or reduce --older",
            )),
            _ => Ok(()),
        }
    }
}

/// Kind of size that is counted for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BlockSizes {
    /// The size that the caller requested.
    #[default]
    Requested,
    /// The usable size of the block, as `malloc_usable_size` returns it.
    Usable,
}

impl BlockSizes {
    /// All kinds, ordered as in the help.
    pub(crate) const ALL: &[Self] = &[Self::Requested, Self::Usable];

    /// Name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Usable => "usable",
        }
    }
}

fn block_sizes() -> impl TypedValueParser<Value = BlockSizes> {
    possible_values::one_of(BlockSizes::ALL, |sizes| {
        let help = match sizes {
            BlockSizes::Requested => "the size that the program has asked for",
            BlockSizes::Usable => "the size that the program can use, at least the requested one",
        };
        PossibleValue::new(sizes.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use memtrace_model::{GroupBy, PartKeys, Pid};

    use super::*;
    use crate::cli::{refusal_of_trace as refused, resolved_trace as resolved};

    #[test]
    fn options_of_allocations_can_be_set() {
        let heap = |line: &str| resolved(line).map(|config| config.heap);
        let given = HeapArgs {
            source: AllocationSource::Exact,
            size: Some(BlockSizes::Usable),
            min_size: Some(Bytes(1024)),
            max_size: Some(Bytes(1 << 20)),
            max_overhead: Some(Percent(10)),
            probe_site: ProbeSite::Entry,
        };
        let line =
            "-p 1 --source exact --size usable --min-size 1k --max-size 1M --max-overhead 10% --probe-site entry";
        assert_eq!(heap(line), Ok(given));
        let blocks = |line: &str| resolved(line).map(|config| config.blocks);
        let given = BlockArgs {
            older: Some(Duration::from_secs(60)),
            lifetimes: true,
            allocator_latency: Some(Duration::from_micros(100)),
        };
        assert_eq!(blocks("-p 1 --older 1m --lifetimes --allocator-latency 100us"), Ok(given));
    }

    #[test]
    fn conflicting_sizes_and_ages_are_refused() {
        assert_eq!(
            refused("-p 1 --min-size 2k --max-size 1000"),
            "--min-size 2KiB is more than --max-size 1000, which matches no allocation"
        );
        assert!(resolved("-p 1 --min-size 1k --max-size 1024").is_ok());
        assert!(refused("-p 1 --older 1m -d 59s").starts_with("--older 1m is longer than --duration 59s"));
        assert!(resolved("-p 1 --older 1m -d 1m").is_ok());
        assert!(resolved("-p 1 --older 1m").is_ok());
        assert_eq!(refused("-p 1 -d 0s"), "--duration 0s traces nothing");
        for metric in ["alloc-bytes", "alloc-count", "peak-bytes"] {
            let message = refused(&format!("-p 1 --older 5s -m {metric}"));
            assert!(message.starts_with("--older 5s applies to live blocks"), "{message}");
            assert!(message.contains(metric), "{message}");
        }
    }

    #[test]
    fn functions_imply_the_key() {
        let resolved = |words: &[&str]| {
            let config = resolved(&words.join(" "))?;
            Ok::<_, String>((config.grouping.by, config.parts(), config.tag_functions.len()))
        };
        let set = "set=/bin/a:f(id=arg0)";
        assert_eq!(resolved(&["--all", "--tag-from", set]), Ok((GroupBy::Tag, PartKeys::TAG, 1)));
        let hook = "alloc=take(size=arg0,tag=arg1)->ret,free=give(arg0)";
        let both = ["--pid", "7", "--hook", hook, "--by", "tag", "--tag-from", "get=g->ret"];
        assert_eq!(resolved(&both), Ok((GroupBy::Tag, PartKeys::TAG, 2)));
        let refused = |line: &[&str]| resolved(line).expect_err("a conflict");
        assert!(refused(&["--all", "--hook", hook]).contains("no file is given for the tags of take"));
        assert!(refused(&["--all", "--tag-from", set, "--by", "user"]).contains("given with --by user"));
        let recorded = ["--all", "--tag-from", set, "--by", "thread", "--record", "a.memtrace"];
        let both = PartKeys::THREAD.union(PartKeys::TAG);
        assert_eq!(resolved(&recorded), Ok((GroupBy::Thread, both, 1)), "a recording has the tags too");
        assert!(refused(&["--pid", "7", "--tag-format", "hex"]).contains("the program sets no tags"));
        assert!(refused(&["--pid", "7", "--tag-from", &[set; 65].join(",")]).contains("65 functions set tags"));
        assert!(refused(&["--pid", "7", "--by", "tag"]).contains("needs rules for tags, or functions"));
        assert!(refused(&["--pid", "7", "--tag-from", set, "--events", "fault"]).contains("--tag-from"));
        let during = "--tag-from has functions with during, and others with enter or with probes";
        for other in ["enter=g(id=arg0),leave=h", "probes"] {
            let given = ["--pid", "7", "--tag-from", "during=f(id=arg0)", "--tag-from", other];
            assert_eq!(refused(&given), during);
        }
    }

    #[test]
    fn presets_are_for_one_process_without_other_tags() {
        let preset = |words: &str| resolved(words).map(|config| (config.tag_preset, config.grouping.by));
        let expected = PresetOf { preset: TagPreset::Skynet, pid: Pid(7) };
        assert_eq!(preset("--pid 7 --tag-from skynet"), Ok((Some(expected), GroupBy::Tag)));
        for target in ["--all", "--pid 7 --pid 8", "--comm skynet"] {
            let message = refused(&format!("{target} --tag-from skynet"));
            assert_eq!(message, "--tag-from skynet needs one running process");
        }
        assert!(refused("--tag-from skynet -- skynet config").contains("needs one running process"));
        for other in ["mariadb:user", "probes", "set=f(id=arg0)"] {
            let message = refused(&format!("--pid 7 --tag-from mariadb:class --tag-from {other}"));
            assert_eq!(message, "--tag-from mariadb:class is given with other sources of tags");
        }
    }
}
