//! Result sites of the functions of an object.

use memtrace_model::{Signature, VirtOffset};

use super::function_results::{FunctionResult, FunctionResults};
use super::jumps::{MAX_CODE, is_jump_into, near_jump_into};
use super::object_code::CachedCode;
use super::probed_function::ProbedFunction;
use crate::elf::{Elf, Source};
use crate::probe_site::{AnalysedCode, RequestedSize, ResultRefusal, ResultSiteFinder, ResultSites, Window, window};

/// Result sites of a function, or the reason why it has none; `None` for a function that returns no block.
pub(super) type Found = Option<Result<FunctionResults, ResultRefusal>>;

/// Finds the result sites of each function.
pub(super) fn find<S: Source>(elf: &Elf<S>, functions: &[ProbedFunction]) -> Vec<Found> {
    let sizes: Vec<_> = functions.iter().map(|function| function.signature.and_then(requested_size)).collect();
    if sizes.iter().all(Option::is_none) {
        return vec![None; functions.len()];
    }
    // Functions that an `operator new` calls after a failure neither allocate nor free.
    let hooked = functions.iter().filter(|function| function.signature != Some(Signature::AllocFailure));
    let code = CachedCode::with_entries(elf, hooked.map(|function| function.virt.0));
    let mut finder = ResultSiteFinder::new(&code);
    let throws = functions.iter().any(|function| function.throws);
    let found = functions.iter().zip(sizes).map(|(function, size)| {
        let found = finder.find(function.virt.0, size?);
        Some(found.and_then(|sites| if throws { without_pending_calls(sites) } else { Ok(sites) }))
    });
    let mut found: Vec<Option<Result<ResultSites, ResultRefusal>>> = found.collect();
    for (index, refusal) in jumped_into(elf, &found) {
        found[index] = Some(Err(refusal));
    }
    let in_file = |sites: ResultSites| in_file(elf, &sites).ok_or(ResultRefusal::Unreadable);
    found.into_iter().map(|found| found.map(|found| found.and_then(in_file))).collect()
}

fn requested_size(signature: Signature) -> Option<RequestedSize> {
    match signature {
        Signature::Alloc { size } => Some(RequestedSize::Argument(size)),
        Signature::AllocProduct { count, size } => Some(RequestedSize::Product(count, size)),
        _ => None,
    }
}

/// Refuses sites that leave a call pending until a later probe, because an exception may end the call before that probe. An
/// exception does not pass a return probe either. Functions that do not throw are included: they may share their slow path with
/// one that throws.
fn without_pending_calls(sites: ResultSites) -> Result<ResultSites, ResultRefusal> {
    let size_site = sites.sizes.iter().map(|site| site.address);
    match size_site.chain(sites.tails.iter().map(|site| site.address)).next() {
        Some(at) => Err(ResultRefusal::Throws(at)),
        None => Ok(sites),
    }
}

/// Returns the indices of the functions that other code may jump into, with the reasons for refusing their sites.
fn jumped_into<S: Source>(
    elf: &Elf<S>,
    found: &[Option<Result<ResultSites, ResultRefusal>>],
) -> Vec<(usize, ResultRefusal)> {
    let code = found.iter().enumerate().filter_map(|(index, found)| match found {
        Some(Ok(sites)) => Some((index, &sites.code)),
        _ => None,
    });
    let code: Vec<(usize, &AnalysedCode)> = code.collect();
    let windows =
        code.iter().flat_map(|(index, code)| code.windows().into_iter().map(|window| (*index, *code, window)));
    let windows: Vec<(usize, &AnalysedCode, Window)> = windows.collect();
    if windows.is_empty() {
        return Vec::new();
    }
    if elf.code_size() > MAX_CODE {
        return code.iter().map(|(index, _)| (*index, ResultRefusal::TooMuchCode)).collect();
    }
    let only_windows: Vec<Window> = windows.iter().map(|(_, _, window)| *window).collect();
    let mut jumps = Vec::new();
    let searched = elf.for_each_code_chunk(elf.machine().overlap(), |address, bytes| {
        window::far_jump_into(elf.machine(), bytes, address, &only_windows, |window, from| jumps.push((window, from)));
    });
    if searched.is_err() {
        return code.iter().map(|(index, _)| (*index, ResultRefusal::Unreadable)).collect();
    }
    let far = jumps.into_iter().filter_map(|(window, from)| {
        let (index, code, window) = windows.get(window)?;
        (!code.contains(from) && is_jump_into(elf, *window, from)).then_some((*index, ResultRefusal::JumpedInto(from)))
    });
    let near = windows.iter().filter_map(|(index, code, window)| {
        let is_other = |from| !code.contains(from);
        let refusal = match near_jump_into(elf, window.first, window.last + 1, *window, is_other) {
            Ok(from) => ResultRefusal::JumpedInto(from?),
            Err(_) => ResultRefusal::Unreadable,
        };
        Some((*index, refusal))
    });
    far.chain(near).collect()
}

/// Converts the addresses of the sites to file offsets. Returns `None` if an address is not in the code of the file.
fn in_file<S: Source>(elf: &Elf<S>, sites: &ResultSites) -> Option<FunctionResults> {
    let offset = |address| elf.code_offset(VirtOffset(address), 1);
    let lowered = |bytes: i64| u64::try_from(bytes).ok();
    let results = sites.results.iter().map(|site| {
        Some(FunctionResult {
            offset: offset(site.address)?,
            block: Some(site.block),
            size: site.size,
            lowered: lowered(site.lowered)?,
            saved: site.saved,
        })
    });
    let only_size = |address, size, bytes| {
        let (offset, lowered) = (offset(address)?, lowered(bytes)?);
        Some(FunctionResult { offset, block: None, size: Some(size), lowered, saved: [0; 6] })
    };
    let sizes = sites.sizes.iter().map(|site| only_size(site.address, site.size, site.lowered));
    let tails = sites.tails.iter().map(|site| only_size(site.address, site.size, 0));
    Some(FunctionResults {
        results: results.collect::<Option<_>>()?,
        sizes: sizes.chain(tails).collect::<Option<_>>()?,
        slow: sites.tails.iter().map(|site| offset(site.target)).collect::<Option<_>>()?,
    })
}
