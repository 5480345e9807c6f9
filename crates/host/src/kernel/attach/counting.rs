//! Attach points of the programs that count blocks and record nothing.

use memtrace_common::vocabulary::counting;
use memtrace_common::vocabulary::counting::SizeCookie;
use memtrace_model::{FileOffset, Signature};

use super::probe::{LoadedWordSite, Probe};
use crate::kernel::attach_point::AttachPoint;

/// Returns the programs and attach points for a function, with its returns first.
pub(super) fn points(probe: &Probe) -> Vec<(&'static str, AttachPoint)> {
    let point = |offset, cookie| AttachPoint { offset, cookie, semaphore: None };
    if probe.has_sizes && probe.signature == (Signature::Free { block: 0 }) {
        return vec![match probe.loaded_word {
            Some(LoadedWordSite { offset, register, lowered }) => {
                let cookie = SizeCookie::new(register, lowered);
                (counting::LOADED_FREE_PROGRAM, point(offset, Some(cookie.0)))
            }
            None => (counting::SIZED_FREE_PROGRAM, point(probe.offset, None)),
        }];
    }
    if probe.has_sizes && probe.is_leaf && probe.return_sites.is_empty() {
        return vec![(counting::SIZED_RETURN_PROGRAM, point(probe.offset, None))];
    }
    let mut points = Vec::new();
    if probe.signature.needs_return() {
        match probe.return_sites.as_slice() {
            [] => points.push((counting::RETURN_PROGRAM, point(probe.offset, None))),
            sites => {
                let site = |&offset: &FileOffset| (counting::RETURN_SITE_PROGRAM, point(offset, None));
                points.extend(sites.iter().map(site));
            }
        }
    }
    let program = probe.signature.counting_program();
    let cookie = program.cookie.map(|cookie| if probe.has_sizes { cookie.with_sizes() } else { cookie });
    points.push((program.name, point(probe.offset, cookie.map(|cookie| cookie.0))));
    points
}

#[cfg(test)]
mod tests {
    use memtrace_model::AllocatorId;

    use super::*;

    fn programs(signature: Signature, has_sizes: bool, is_leaf: bool) -> Vec<&'static str> {
        let probe = Probe {
            signature,
            offset: FileOffset(16),
            return_sites: Vec::new(),
            function: None,
            allocator: AllocatorId::UNKNOWN,
            has_sizes,
            is_leaf,
            loaded_word: None,
            results: None,
        };
        points(&probe).into_iter().map(|(program, _)| program).collect()
    }

    #[test]
    fn functions_that_call_no_other_have_one_probe() {
        let (malloc, free) = (Signature::Alloc { size: 0 }, Signature::Free { block: 0 });
        assert_eq!(programs(malloc, true, true), ["count_sized_return"]);
        assert_eq!(programs(free, true, true), ["count_sized_free"]);
        assert_eq!(programs(malloc, true, false), ["count_return", "count_alloc"]);
        assert_eq!(programs(malloc, false, true), ["count_return", "count_alloc"]);
        assert_eq!(programs(free, false, true), ["count_free"]);
        assert_eq!(programs(Signature::AllocFailure, true, false), ["count_alloc_failure"]);
    }
}
