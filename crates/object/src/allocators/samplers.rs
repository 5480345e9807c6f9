//! Samplers of allocators: the functions that an allocator calls for the blocks that it samples.
//!
//! The functions are internal, so they are found by the symbol table only. Their arguments are taken from the
//! allocator's sources. docs/internals/samplers.md has the versions.

mod refusal;

use memtrace_model::{ArgumentLocation, ArgumentPlace, FileOffset, SampleSource, VirtOffset};

use crate::elf::{Elf, ElfError, Machine, Source, Symbol, SymbolKind, dynamic_symbols, symbol_table};

pub use refusal::SamplerRefusal;

/// Sampler of an allocator in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorSampler {
    /// Source of the samples, for reports.
    pub source: SampleSource,
    /// Functions to probe. Functions that free come first, and functions that allocate come last.
    pub functions: Vec<SamplerFunction>,
    /// Number of bytes that the sampler adds to the drawn size of each block.
    pub extra: u32,
    /// Variable with the sampling interval, which the program can change.
    pub interval: IntervalVariable,
    /// Variable of one byte that is 0 if the sampler was not enabled when the process started; `None` if it is always enabled.
    pub enabled: Option<VirtOffset>,
}

/// Variable with a sampling interval, of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalVariable {
    /// Address in the object.
    pub virt: VirtOffset,
    /// True if the variable has the binary logarithm of the interval, false if it has the interval in bytes.
    pub is_binary_logarithm: bool,
}

/// Function of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerFunction {
    /// Address in the object.
    pub virt: VirtOffset,
    /// File offset of the first instruction.
    pub offset: FileOffset,
    /// Report by a call of the function.
    pub report: SamplerReport,
}

/// What a call of a sampler's function reports. It is read at the first instruction of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerReport {
    /// Frees a block, which may be sampled.
    Free {
        /// Address of the block, or of the structure that stands for it.
        block: ArgumentPlace,
    },
    /// Decides whether a block is sampled.
    Draw {
        /// Size of the block.
        size: ArgumentPlace,
    },
    /// Reports a sampled block.
    Alloc {
        /// Address of the block, or of the structure that stands for it.
        block: ArgumentPlace,
        /// Sizes of the block; `None` if the block has the size of the thread's last draw.
        sizes: Option<SamplerSizes>,
        /// List of sampled blocks. A call whose first argument is another list reports no block. `None` if every call reports a
        /// block.
        list: Option<VirtOffset>,
    },
}

/// Sizes of a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerSizes {
    /// Requested size.
    pub requested: ArgumentPlace,
    /// Usable size, for which the sampler draws.
    pub usable: ArgumentPlace,
}

/// Smallest size in bytes of a function that reports samples. If an allocator is built without its sampler, the compiler reduces
/// such a function to a jump or to nothing.
const SMALLEST_CODE: u64 = 64;

/// Function of jemalloc that reports a sampled block (src/prof.c): `(tsd, ptr, size, usize, tctx)` since jemalloc 5.3.
const JEMALLOC_ALLOC: &str = "prof_malloc_sample_object";
/// Function that jemalloc calls before it frees a sampled block (src/prof_recent.c, since jemalloc 5.3): `(tsd, edata)`.
const JEMALLOC_FREE: &str = "prof_recent_alloc_reset";
/// Offset of the block's address in jemalloc's `edata_t` (include/jemalloc/internal/edata.h).
const EDATA_ADDRESS: i64 = 8;
/// Binary logarithm of jemalloc's sampling interval, and the option `prof`.
const JEMALLOC_INTERVAL: &str = "lg_prof_sample";
const JEMALLOC_ENABLED: &str = "opt_prof";

/// `Sampler::RecordAllocationSlow(size_t)` of Google's tcmalloc, and of gperftools and the first releases of tcmalloc.
const DRAWS: [&str; 2] =
    ["_ZN8tcmalloc17tcmalloc_internal7Sampler20RecordAllocationSlowEm", "_ZN8tcmalloc7Sampler20RecordAllocationSlowEm"];
/// Start of `Span::Sample(…)` of Google's tcmalloc (tcmalloc/span.cc). The type of its argument has changed.
const SPAN_SAMPLE: [&str; 2] = ["_ZN8tcmalloc17tcmalloc_internal4Span6SampleE", "_ZN8tcmalloc4Span6SampleE"];
/// `Span::Unsample()`, and since 2026 the part of it that is not inlined.
const SPAN_UNSAMPLE: [&str; 3] = [
    "_ZN8tcmalloc17tcmalloc_internal4Span12UnsampleSlowEv",
    "_ZN8tcmalloc17tcmalloc_internal4Span8UnsampleEv",
    "_ZN8tcmalloc4Span8UnsampleEv",
];
/// `Parameters::profile_sampling_interval_`, which was called a rate before 2025.
const TCMALLOC_INTERVALS: [&str; 3] = [
    "_ZN8tcmalloc17tcmalloc_internal10Parameters26profile_sampling_interval_E",
    "_ZN8tcmalloc17tcmalloc_internal10Parameters22profile_sampling_rate_E",
    "_ZN8tcmalloc10Parameters22profile_sampling_rate_E",
];

/// `DoSampledAllocation(size_t)` of gperftools (src/tcmalloc.cc).
const GPERFTOOLS_SAMPLE: &str = "_ZL19DoSampledAllocationm";
/// `DLL_Prepend(Span* list, Span* span)` of gperftools (src/span.cc).
const GPERFTOOLS_PREPEND: &str = "_ZN8tcmalloc11DLL_PrependEPNS_4SpanES1_";
/// Part of the name of `do_free_pages(Span* span, void* ptr)` of gperftools. Compilers leave out its second argument, which is
/// not used, and add a suffix then.
const GPERFTOOLS_FREE: &str = "13do_free_pagesEPN8tcmalloc4SpanEPv";
/// List of sampled spans of gperftools.
const GPERFTOOLS_LIST: &str = "_ZN8tcmalloc6Static16sampled_objects_E";
/// `FLAGS_tcmalloc_sample_parameter` of gperftools.
const GPERFTOOLS_INTERVAL: &str =
    "_ZN61FLAG__namespace_do_not_use_directly_use_DECLARE_int64_instead31FLAGS_tcmalloc_sample_parameterE";

/// Maximum number of copies of jemalloc in an object that are examined.
const MAX_JEMALLOCS: usize = 8;

/// Finds the samplers in the file `source`. An executable can have several.
///
/// # Errors
///
/// The object has no sampler, or only allocators whose samplers cannot be used.
pub fn find_samplers<S: Source>(source: S) -> Result<Vec<AllocatorSampler>, SamplerRefusal> {
    let elf = Elf::parse(source)?;
    let Some(symbols) = Symbols::read(&elf)? else { return Err(stripped(&elf)?) };
    let prefixes = symbols.functions.iter().filter_map(|(name, _)| name.strip_suffix(JEMALLOC_ALLOC));
    let mut found: Vec<_> = prefixes.take(MAX_JEMALLOCS).map(|prefix| jemalloc(&elf, &symbols, prefix)).collect();
    if symbols.has(is_span_sample) {
        found.push(tcmalloc(&elf, &symbols));
    } else if symbols.has(|name| name == GPERFTOOLS_PREPEND) {
        found.push(gperftools(&elf, &symbols));
    }
    // A refusal counts only if no sampler is found: a bundled library can contain a further allocator, which does not sample.
    let (mut samplers, mut refusal) = (Vec::new(), None);
    for result in found {
        match result {
            Ok(sampler) => samplers.push(sampler),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    if samplers.is_empty() { Err(refusal.unwrap_or(SamplerRefusal::NoSampler)) } else { Ok(samplers) }
}

/// Returns the reason why a stripped object has no sampler.
fn stripped<S: Source>(elf: &Elf<S>) -> Result<SamplerRefusal, ElfError> {
    for name in ["mallocx", "je_mallocx", "_rjem_mallocx"] {
        if dynamic_symbols::defines(elf, name)? {
            return Ok(SamplerRefusal::Stripped("jemalloc"));
        }
    }
    let is_tcmalloc = dynamic_symbols::defines(elf, "tc_malloc")?;
    Ok(if is_tcmalloc { SamplerRefusal::Stripped("tcmalloc") } else { SamplerRefusal::NoSampler })
}

/// Returns the sampler of the jemalloc whose internal functions have this prefix.
fn jemalloc<S: Source>(elf: &Elf<S>, symbols: &Symbols, prefix: &str) -> Result<AllocatorSampler, SamplerRefusal> {
    let is = |function: &'static str| move |name: &str| name.strip_prefix(prefix) == Some(function);
    let alloc = symbols.function(is(JEMALLOC_ALLOC)).ok_or(SamplerRefusal::Missing(JEMALLOC_ALLOC))?;
    if alloc.size < SMALLEST_CODE {
        return Err(SamplerRefusal::NotBuilt("jemalloc was built without profiling (--enable-prof)"));
    }
    let free = symbols.function(is(JEMALLOC_FREE)).ok_or(SamplerRefusal::OldJemalloc)?;
    let variable = |name: &'static str| {
        let virt = symbols.variable(&format!("{prefix}{name}"));
        virt.ok_or(SamplerRefusal::Missing(name))
    };
    let address = ArgumentLocation::Memory { register: register(elf, 1), offset: EDATA_ADDRESS };
    let sizes = Some(SamplerSizes { requested: argument(elf, 2), usable: argument(elf, 3) });
    let reports = [
        SamplerReport::Free { block: ArgumentPlace::word(address) },
        SamplerReport::Alloc { block: argument(elf, 1), sizes, list: None },
    ];
    Ok(AllocatorSampler {
        source: SampleSource::Jemalloc,
        functions: vec![
            function(elf, free, JEMALLOC_FREE, reports[0])?,
            function(elf, alloc, JEMALLOC_ALLOC, reports[1])?,
        ],
        extra: 0,
        interval: IntervalVariable { virt: variable(JEMALLOC_INTERVAL)?, is_binary_logarithm: true },
        enabled: Some(variable(JEMALLOC_ENABLED)?),
    })
}

/// Returns the sampler of Google's tcmalloc. A span belongs to one sampled block, so its address stands for the block.
fn tcmalloc<S: Source>(elf: &Elf<S>, symbols: &Symbols) -> Result<AllocatorSampler, SamplerRefusal> {
    let find = |is_named: &dyn Fn(&str) -> bool, name, report| {
        let symbol = symbols.function(is_named).ok_or(SamplerRefusal::Missing(name))?;
        function(elf, symbol, name, report)
    };
    let sample = SamplerReport::Alloc { block: argument(elf, 0), sizes: None, list: None };
    let interval = TCMALLOC_INTERVALS.iter().find_map(|name| symbols.variable(name));
    let interval = interval.ok_or(SamplerRefusal::Missing("Parameters::profile_sampling_interval_"))?;
    let unsample = SPAN_UNSAMPLE.iter().find(|name| symbols.has(|other| other == **name));
    let unsample = unsample.ok_or(SamplerRefusal::Missing("Span::Unsample"))?;
    Ok(AllocatorSampler {
        source: SampleSource::Tcmalloc,
        functions: vec![
            find(&|name| name == *unsample, "Span::Unsample", SamplerReport::Free { block: argument(elf, 0) })?,
            find(&is_draw, "Sampler::RecordAllocationSlow", SamplerReport::Draw { size: argument(elf, 1) })?,
            find(&is_span_sample, "Span::Sample", sample)?,
        ],
        // The sampler adds a byte to each block, so that it samples empty blocks too (`TryRecordAllocationFast`, sampler.h).
        extra: 1,
        interval: IntervalVariable { virt: interval, is_binary_logarithm: false },
        enabled: None,
    })
}

/// Returns the sampler of gperftools. As in [`tcmalloc`], the address of a span stands for its block.
fn gperftools<S: Source>(elf: &Elf<S>, symbols: &Symbols) -> Result<AllocatorSampler, SamplerRefusal> {
    let sample = symbols.function(|name| name == GPERFTOOLS_SAMPLE);
    if sample.is_none_or(|symbol| symbol.size < SMALLEST_CODE) {
        return Err(SamplerRefusal::NotBuilt("libtcmalloc_minimal is built without a sampler"));
    }
    let find = |is_named: &dyn Fn(&str) -> bool, name, report| {
        let symbol = symbols.function(is_named).ok_or(SamplerRefusal::Missing(name))?;
        function(elf, symbol, name, report)
    };
    let variable = |symbol, name| symbols.variable(symbol).ok_or(SamplerRefusal::Missing(name));
    let list = Some(variable(GPERFTOOLS_LIST, "Static::sampled_objects_")?);
    let prepend = |name: &str| name == GPERFTOOLS_PREPEND;
    Ok(AllocatorSampler {
        source: SampleSource::Tcmalloc,
        functions: vec![
            find(&is_gperftools_free, "do_free_pages", SamplerReport::Free { block: argument(elf, 0) })?,
            find(&is_draw, "Sampler::RecordAllocationSlow", SamplerReport::Draw { size: argument(elf, 1) })?,
            find(&prepend, "DLL_Prepend", SamplerReport::Alloc { block: argument(elf, 1), sizes: None, list })?,
        ],
        extra: 0,
        interval: IntervalVariable {
            virt: variable(GPERFTOOLS_INTERVAL, "FLAGS_tcmalloc_sample_parameter")?,
            is_binary_logarithm: false,
        },
        enabled: None,
    })
}

fn function<S: Source>(
    elf: &Elf<S>,
    symbol: &Symbol,
    name: &'static str,
    report: SamplerReport,
) -> Result<SamplerFunction, SamplerRefusal> {
    let offset = elf.code_offset(symbol.virt, symbol.size).ok_or(SamplerRefusal::Missing(name))?;
    // The file can be shorter than its headers state, so the first byte of the function is read.
    elf.code(symbol.virt.0, symbol.virt.0.saturating_add(1)).map_err(|_| SamplerRefusal::Missing(name))?;
    Ok(SamplerFunction { virt: symbol.virt, offset, report })
}

/// Returns the place of the argument `number` of a call. Arguments are counted from 0.
fn argument<S: Source>(elf: &Elf<S>, number: usize) -> ArgumentPlace {
    ArgumentPlace::word(ArgumentLocation::Register(register(elf, number)))
}

/// Returns the DWARF number of the register with an argument of a call.
fn register<S: Source>(elf: &Elf<S>, argument: usize) -> u8 {
    const X86_64: [u8; 6] = [5, 4, 1, 2, 8, 9];
    const AARCH64: [u8; 6] = [0, 1, 2, 3, 4, 5];
    match elf.machine() {
        Machine::X86_64 => X86_64[argument],
        Machine::Aarch64 => AARCH64[argument],
    }
}

fn is_draw(name: &str) -> bool {
    DRAWS.contains(&name)
}

fn is_span_sample(name: &str) -> bool {
    SPAN_SAMPLE.iter().any(|start| name.starts_with(start)) && !name.contains('.')
}

/// Returns true for `do_free_pages`, also if the compiler has removed its second argument. Rejects names with the suffixes
/// `.cold` and `.part`, which are parts of functions, and with `.isra`, whose arguments can be different.
fn is_gperftools_free(name: &str) -> bool {
    name.split_once(GPERFTOOLS_FREE).is_some_and(|(_, suffix)| match suffix.strip_prefix(".constprop.") {
        Some(number) => number.bytes().all(|digit| digit.is_ascii_digit()),
        None => suffix.is_empty(),
    })
}

/// Functions and variables of samplers in an object.
struct Symbols {
    functions: Vec<(String, Symbol)>,
    variables: Vec<(String, u64)>,
}

impl Symbols {
    /// Reads the symbol table; `None` if it is stripped.
    fn read<S: Source>(elf: &Elf<S>) -> Result<Option<Self>, ElfError> {
        let is_known = |name: &[u8]| std::str::from_utf8(name).is_ok_and(is_function);
        let functions = symbol_table::find_functions(elf, is_known)?;
        let Some(mut functions) = functions else { return Ok(None) };
        functions.retain(|(_, symbol)| symbol.kind == SymbolKind::Function);
        // Most objects have no sampler, so their variables are not searched.
        if functions.is_empty() {
            return Ok(Some(Self { functions, variables: Vec::new() }));
        }
        let is_known = |name: &[u8]| std::str::from_utf8(name).is_ok_and(is_variable);
        Ok(Some(Self { functions, variables: symbol_table::find_variables_by_name(elf, is_known)? }))
    }

    fn has(&self, is_named: impl Fn(&str) -> bool) -> bool {
        self.function(is_named).is_some()
    }

    fn function(&self, is_named: impl Fn(&str) -> bool) -> Option<&Symbol> {
        self.functions.iter().find(|(name, _)| is_named(name)).map(|(_, symbol)| symbol)
    }

    fn variable(&self, name: &str) -> Option<VirtOffset> {
        self.variables.iter().find(|(other, _)| other == name).map(|(_, virt)| VirtOffset(*virt))
    }
}

fn is_function(name: &str) -> bool {
    name.ends_with(JEMALLOC_ALLOC)
        || name.ends_with(JEMALLOC_FREE)
        || is_draw(name)
        || is_span_sample(name)
        || SPAN_UNSAMPLE.contains(&name)
        || [GPERFTOOLS_SAMPLE, GPERFTOOLS_PREPEND].contains(&name)
        || is_gperftools_free(name)
}

fn is_variable(name: &str) -> bool {
    name.ends_with(JEMALLOC_INTERVAL)
        || name.ends_with(JEMALLOC_ENABLED)
        || TCMALLOC_INTERVALS.contains(&name)
        || [GPERFTOOLS_LIST, GPERFTOOLS_INTERVAL].contains(&name)
}

#[cfg(test)]
mod tests;
