//! Code at the sites of a patched process.

use std::io;
use std::rc::Rc;

use memtrace_host::procfs::PatchedStub;
use memtrace_model::{AbsAddr, Pid};
use memtrace_object::overlay::layout::SiteRecord;

/// A breakpoint instruction.
const BREAKPOINT: u8 = 0xcc;

/// Code that a jump has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckedSite {
    name: Box<str>,
    address: AbsAddr,
    original: [u8; 5],
    jump: [u8; 5],
}

/// State of the code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CodeState {
    /// All sites jump to the stub.
    Patched,
    /// Another tool has restored this function, or has changed it.
    Changed(String),
    /// A probe of another tool was removed from the site of this function, and has left a damaged instruction.
    Damaged(String),
}

impl CheckedSite {
    /// Returns the sites of a stub.
    pub(super) fn all(sites: &[SiteRecord]) -> Rc<[Self]> {
        let site = |record: &SiteRecord| Self {
            name: record.name().into_boxed_str(),
            address: AbsAddr(record.address),
            original: record.original.first_chunk().copied().unwrap_or_default(),
            jump: record.jump,
        };
        sites.iter().map(site).collect()
    }

    /// Returns true if this code jumps to the stub. Another tool can have replaced its first byte by a breakpoint.
    fn is_jump(&self, code: [u8; 5]) -> bool {
        code != self.original && code[1..] == self.jump[1..]
    }
}

/// Reads the code of a process with a stub at `base`.
fn code_of(pid: Pid, base: AbsAddr, sites: &[CheckedSite]) -> io::Result<Vec<Option<[u8; 5]>>> {
    PatchedStub::code_at(pid, base, sites.iter().map(|site| site.address).collect())
}

/// Compares the code of a process with the jumps to its stub at `base`.
///
/// # Errors
///
/// The process cannot be read, or runs another program.
pub(super) fn state(pid: Pid, base: AbsAddr, sites: &[CheckedSite]) -> io::Result<CodeState> {
    let code = code_of(pid, base, sites)?;
    Ok(state_of(sites.iter().zip(code)))
}

/// Returns true if the code of a process jumps to the stub at `base`.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory. Another error if it has exited, or runs another program.
pub(super) fn has_jumps(pid: Pid, base: AbsAddr, sites: &[CheckedSite]) -> io::Result<bool> {
    let code = code_of(pid, base, sites)?;
    Ok(sites.iter().zip(code).any(|(site, code)| code.is_some_and(|code| site.is_jump(code))))
}

/// Returns the state of code by the bytes at each site; `None` for bytes that cannot be read.
fn state_of<'a>(sites: impl Iterator<Item = (&'a CheckedSite, Option<[u8; 5]>)>) -> CodeState {
    let mut state = CodeState::Patched;
    for (site, code) in sites {
        let Some(code) = code.filter(|code| *code != site.jump) else { continue };
        let has_tail_of_jump = code[1..] == site.jump[1..];
        if has_tail_of_jump && code[0] == site.original[0] && code[0] != BREAKPOINT {
            return CodeState::Damaged(site.name.to_string());
        }
        state = CodeState::Changed(site.name.to_string());
    }
    state
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Anonymous;
    use memtrace_object::overlay::layout;

    use super::*;

    fn site(name: &str, original: [u8; 5]) -> CheckedSite {
        CheckedSite { name: name.into(), address: AbsAddr(0x1000), original, jump: [0xe9, 1, 2, 3, 4] }
    }

    #[test]
    fn code_of_a_site_is_compared() {
        let (malloc, free) = (site("malloc", [0x80, 0x3d, 5, 6, 7]), site("free", [0x48, 8, 9, 10, 11]));
        let state = |of_malloc, of_free| state_of([(&malloc, of_malloc), (&free, of_free)].into_iter());
        let jump = Some([0xe9, 1, 2, 3, 4]);
        assert_eq!(state(jump, jump), CodeState::Patched);
        assert_eq!(state(None, jump), CodeState::Patched, "not readable");
        let changed = |name: &str| CodeState::Changed(name.into());
        assert_eq!(state(jump, Some(free.original)), changed("free"));
        assert_eq!(state(Some([0xcc, 1, 2, 3, 4]), jump), changed("malloc"), "a breakpoint executes the original");
        assert_eq!(state(Some([0x80, 1, 2, 3, 4]), jump), CodeState::Damaged("malloc".into()));
        assert_eq!(state(Some(malloc.original), Some([0x48, 1, 2, 3, 4])), CodeState::Damaged("free".into()));
    }

    #[test]
    fn jump_that_is_replaced_by_a_jump_is_not_damaged() {
        let rallocx = site("rallocx", [0xe9, 9, 9, 9, 9]);
        let state = |code| state_of([(&rallocx, Some(code))].into_iter());
        assert_eq!(state([0xe9, 1, 2, 3, 4]), CodeState::Patched);
        assert_eq!(state([0xe9, 9, 9, 9, 9]), CodeState::Changed("rallocx".into()));
    }

    #[test]
    fn process_with_restored_code_has_no_jumps() {
        let pages = Anonymous::new(8192);
        let (own, base) = (Pid(std::process::id()), pages.start());
        let at = |name, offset: u64, original| CheckedSite {
            address: AbsAddr(base.0 + 4096 + offset),
            ..site(name, original)
        };
        let sites = [at("malloc", 0, [0x80, 0x3d, 5, 6, 7]), at("free", 64, [0x48, 8, 9, 10, 11])];
        let code = |offset: u64, bytes: [u8; 5]| {
            let [a, b, c, d, e] = bytes;
            pages.write(4096 + offset, u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]));
        };
        sites.iter().zip([0, 64]).for_each(|(site, offset)| code(offset, site.original));
        code(64, sites[1].jump);
        assert!(has_jumps(own, base, &sites).is_err(), "another program without a stub");
        pages.write(0, u64::from_le_bytes(layout::MAGIC));
        let has_jumps = || has_jumps(own, base, &sites).unwrap();
        assert!(has_jumps());
        code(64, [BREAKPOINT, 1, 2, 3, 4]);
        assert!(has_jumps(), "the jump comes back with the end of the other tool");
        code(64, sites[1].original);
        assert!(!has_jumps());
        assert!(super::has_jumps(Pid(u32::MAX), base, &sites).is_err());
    }
}
