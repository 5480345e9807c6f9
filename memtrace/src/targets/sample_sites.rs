//! Instructions at which objects report samples of their own allocations: functions of allocators, and USDT probes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memtrace_host::kernel::{SampleReport, SampledInterval, SampledSite, SampledSizes};
use memtrace_host::target_files::open_target_file;
use memtrace_model::{AllocatorId, Object, Pid, SampleSource, UserProbe, VirtOffset};
use memtrace_object::allocators::{
    AllocatorSampler, SamplerFunction, SamplerRefusal, SamplerReport, SamplerSizes, find_samplers,
};
use memtrace_object::symbolize::user_probes;

use crate::targets::track::ProcessTracker;

/// Providers of USDT probes that report samples: their names, and their sources in reports. The probes are
/// `alloc(address, size, weighted bytes)` and `free(address)`.
const PROVIDERS: [(&str, SampleSource); 2] =
    [("otel_memory", SampleSource::OtelMemory), ("ddheap", SampleSource::DdHeap)];

/// USDT probes of an object that report samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleProbes {
    pub(crate) source: SampleSource,
    /// Sites, with the frees first. The allocators are unknown.
    pub(crate) sites: Vec<SampledSite>,
    /// False if no probe reports frees, so that blocks count as live until the end of the process.
    pub(crate) reports_frees: bool,
}

/// Maximum number of USDT probes of one provider in a file. A hostile file can have a note for each byte of its code.
const MAX_SITES: usize = 32;

/// Finds the USDT probes of a file that report samples, each provider with its probes, or with the reason why they are not used.
pub(crate) fn find_probes(file: &File) -> Vec<Result<SampleProbes, String>> {
    let probes = |(provider, source)| sample_probes(source, &user_probes(file, provider).ok()?);
    PROVIDERS.into_iter().filter_map(probes).collect()
}

/// Returns true if this trace reads samples of the targets, and a process has mapped an object with USDT probes that report them.
pub(crate) fn publishes(pid: Pid, tracker: &ProcessTracker) -> bool {
    let Some(image) = tracker.image(pid).filter(|_| tracker.own_profiles.are_read()) else { return false };
    let mut handles: Vec<_> = image.objects().filter_map(|object| object.handle.as_deref()).collect();
    handles.dedup();
    handles.into_iter().any(has_probes)
}

/// Returns true if this trace reads samples of the targets, and one of the objects has USDT probes that report them.
pub(crate) fn any_publishes(objects: &[Arc<Object>], tracker: &ProcessTracker) -> bool {
    let mut handles = objects.iter().filter_map(|object| object.handle.as_deref());
    tracker.own_profiles.are_read() && handles.any(has_probes)
}

/// Returns true if the object at `path` has USDT probes that report samples.
fn has_probes(path: &Path) -> bool {
    open_target_file(path).is_ok_and(|file| find_probes(&file).iter().any(Result::is_ok))
}

/// Finds the samplers of the allocators in a file. An object without an allocator has none.
///
/// # Errors
///
/// An allocator could sample, but its samples cannot be used.
pub(crate) fn find_allocator_samplers(file: &File) -> Result<Vec<AllocatorSampler>, SamplerRefusal> {
    match find_samplers(file) {
        Err(refusal) if !refusal.is_of_allocator() => Ok(Vec::new()),
        result => result,
    }
}

/// Returns the sites of the functions of a sampler, with the frees first. `usable`: true if blocks count with their usable size.
pub(crate) fn sites_of_sampler(sampler: &AllocatorSampler, usable: bool, allocator: AllocatorId) -> Vec<SampledSite> {
    let site = |function: &SamplerFunction| SampledSite {
        offset: function.offset,
        semaphore: None,
        report: report(sampler, function, usable),
        allocator,
    };
    let mut sites: Vec<_> = sampler.functions.iter().map(site).collect();
    sort(&mut sites);
    sites
}

/// Returns the report of a function of a sampler.
fn report(sampler: &AllocatorSampler, function: &SamplerFunction, usable: bool) -> SampleReport {
    match function.report {
        SamplerReport::Free { block } => SampleReport::Free { block },
        SamplerReport::Draw { size } => SampleReport::Draw { size },
        SamplerReport::Alloc { block, sizes, list } => {
            let sizes = match sizes {
                Some(SamplerSizes { usable: drawn, .. }) if usable => SampledSizes::At { size: drawn, drawn },
                Some(SamplerSizes { requested, usable: drawn }) => SampledSizes::At { size: requested, drawn },
                None => SampledSizes::LastDraw { extra: sampler.extra },
            };
            let distance = distance(function, sampler.interval.virt);
            let interval = match sampler.interval.is_binary_logarithm {
                true => SampledInterval::BinaryLogarithm { distance },
                false => SampledInterval::Bytes { distance },
            };
            SampleReport::Alloc { block, sizes, interval, list: list.map(|list| self::distance(function, list)) }
        }
    }
}

/// Returns the bytes from the first instruction of a function to a variable of the same object.
const fn distance(function: &SamplerFunction, variable: VirtOffset) -> i64 {
    variable.0.wrapping_sub(function.virt.0).cast_signed()
}

/// Returns the probes of one provider, or the reason why they are not used; `None` if none of them reports allocations.
fn sample_probes(source: SampleSource, probes: &[UserProbe]) -> Option<Result<SampleProbes, String>> {
    let mut sites: Vec<_> = probes.iter().filter_map(probe_site).collect();
    if sites.len() > MAX_SITES {
        return Some(Err(format!("it has {} {} probes, and at most {MAX_SITES} are used", sites.len(), source.name())));
    }
    sort(&mut sites);
    let has = |is_kind: fn(&SampleReport) -> bool| sites.iter().any(|site| is_kind(&site.report));
    let reports_frees = has(|report| matches!(report, SampleReport::Free { .. }));
    let reports_allocations = has(|report| matches!(report, SampleReport::Alloc { .. }));
    reports_allocations.then_some(Ok(SampleProbes { source, sites, reports_frees }))
}

/// Returns the site of a USDT probe; `None` for another probe, or if an argument is at a place that cannot be read.
fn probe_site(probe: &UserProbe) -> Option<SampledSite> {
    let place = |number: usize| probe.places.get(number).copied().flatten();
    let report = match probe.name.as_str() {
        "alloc" => SampleReport::Alloc {
            block: place(0)?,
            sizes: SampledSizes::At { size: place(1)?, drawn: place(2)? },
            interval: SampledInterval::Weighted,
            list: None,
        },
        "free" => SampleReport::Free { block: place(0)? },
        _ => return None,
    };
    Some(SampledSite { offset: probe.offset, semaphore: probe.semaphore, report, allocator: AllocatorId::UNKNOWN })
}

/// Sorts sites: frees first, then draws, then allocations. So if the allocation of a block is seen, its draw and its
/// free are seen too.
fn sort(sites: &mut [SampledSite]) {
    sites.sort_by_key(|site| match site.report {
        SampleReport::Free { .. } | SampleReport::Tentative { .. } | SampleReport::Undo { .. } => 0,
        SampleReport::Draw { .. } => 1,
        SampleReport::Alloc { .. } | SampleReport::PatchedAlloc { .. } => 2,
    });
}

#[cfg(test)]
mod tests {
    use memtrace_model::{ArgumentLocation, ArgumentPlace, FileOffset};
    use memtrace_object::allocators::IntervalVariable;

    use super::*;

    const fn register(number: u8) -> ArgumentPlace {
        ArgumentPlace::word(ArgumentLocation::Register(number))
    }

    fn probe(name: &str, offset: u64, places: &[Option<ArgumentPlace>]) -> UserProbe {
        UserProbe {
            name: name.to_owned(),
            offset: FileOffset(offset),
            semaphore: Some(FileOffset(64)),
            arguments: Vec::new(),
            places: places.to_vec(),
        }
    }

    #[test]
    fn probes_with_readable_arguments_are_sites() {
        let places = [5, 4, 1].map(|number| Some(register(number)));
        let probes = [probe("alloc", 16, &places), probe("mmap", 32, &places), probe("free", 48, &places[..1])];
        let found = sample_probes(SampleSource::OtelMemory, &probes).unwrap().unwrap();
        let site = |offset, report| SampledSite {
            offset: FileOffset(offset),
            semaphore: Some(FileOffset(64)),
            report,
            allocator: AllocatorId::UNKNOWN,
        };
        let sizes = SampledSizes::At { size: register(4), drawn: register(1) };
        let alloc = SampleReport::Alloc { block: register(5), sizes, interval: SampledInterval::Weighted, list: None };
        let expected = vec![site(48, SampleReport::Free { block: register(5) }), site(16, alloc)];
        assert_eq!(found, SampleProbes { source: SampleSource::OtelMemory, sites: expected, reports_frees: true });
        let without_free = sample_probes(SampleSource::DdHeap, &probes[..2]).unwrap().unwrap();
        assert_eq!((without_free.sites.len(), without_free.reports_frees), (1, false));
    }

    #[test]
    fn probes_without_a_readable_allocation_are_no_source() {
        let unreadable = probe("alloc", 16, &[Some(register(5)), Some(register(4)), None]);
        let short = probe("alloc", 16, &[Some(register(5)), Some(register(4))]);
        let free = probe("free", 16, &[Some(register(5))]);
        assert_eq!(sample_probes(SampleSource::DdHeap, &[unreadable, short, free]), None);
        assert_eq!(sample_probes(SampleSource::DdHeap, &[]), None);
    }

    #[test]
    fn file_with_too_many_probes_is_refused() {
        let places = [5, 4, 1].map(|number| Some(register(number)));
        let probes = |count| (0..count).map(|offset| probe("alloc", offset, &places)).collect::<Vec<_>>();
        let sites =
            |count| sample_probes(SampleSource::OtelMemory, &probes(count)).unwrap().map(|found| found.sites.len());
        assert_eq!(sites(32), Ok(32));
        assert_eq!(sites(33), Err(String::from("it has 33 otel_memory probes, and at most 32 are used")));
    }

    fn sampler(report: SamplerReport) -> AllocatorSampler {
        AllocatorSampler {
            source: SampleSource::Jemalloc,
            functions: vec![SamplerFunction { virt: VirtOffset(0x2000), offset: FileOffset(0x1000), report }],
            extra: 1,
            interval: IntervalVariable { virt: VirtOffset(0x1800), is_binary_logarithm: true },
            enabled: None,
        }
    }

    #[test]
    fn variables_are_found_by_their_distance_from_the_function() {
        let sizes = Some(SamplerSizes { requested: register(1), usable: register(2) });
        let jemalloc = sampler(SamplerReport::Alloc { block: register(4), sizes, list: None });
        let sites = |usable| sites_of_sampler(&jemalloc, usable, AllocatorId(7));
        let expected = |size| SampledSite {
            offset: FileOffset(0x1000),
            semaphore: None,
            report: SampleReport::Alloc {
                block: register(4),
                sizes: SampledSizes::At { size: register(size), drawn: register(2) },
                interval: SampledInterval::BinaryLogarithm { distance: -0x800 },
                list: None,
            },
            allocator: AllocatorId(7),
        };
        assert_eq!((sites(false), sites(true)), (vec![expected(1)], vec![expected(2)]));
    }

    #[test]
    fn blocks_without_a_size_have_that_of_the_last_draw() {
        let alloc = SamplerReport::Alloc { block: register(4), sizes: None, list: Some(VirtOffset(0x3000)) };
        let tcmalloc = AllocatorSampler {
            interval: IntervalVariable { virt: VirtOffset(0x2008), is_binary_logarithm: false },
            ..sampler(alloc)
        };
        let report = sites_of_sampler(&tcmalloc, true, AllocatorId::UNKNOWN)[0].report;
        let expected = SampleReport::Alloc {
            block: register(4),
            sizes: SampledSizes::LastDraw { extra: 1 },
            interval: SampledInterval::Bytes { distance: 8 },
            list: Some(0x1000),
        };
        assert_eq!(report, expected);
    }
}
