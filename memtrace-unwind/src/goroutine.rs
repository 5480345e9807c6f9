//! Stack pointer of a goroutine that calls C.

/// Offset of the end of the stack in a goroutine: `stack.hi` in `struct g` (src/runtime/runtime2.go of Go).
const STACK_END: u64 = 8;

/// Returns the stack pointer that `runtime.asmcgocall` had before it changed to the stack of the thread
/// (src/runtime/asm_amd64.s of Go). The function stores two words on the stack of the thread. The word at `goroutine` is the
/// goroutine's address. The word at `distance` is the distance from the goroutine's stack pointer to the end of its stack.
/// It is not an address, because a goroutine's stack can move during the call. `word` reads a word of memory.
#[inline(always)]
pub fn goroutine_sp(goroutine: u64, distance: u64, mut word: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let goroutine = word(goroutine)?;
    let distance = word(distance)?;
    // Without a goroutine, the caller was on the stack of the thread, and the second word is the stack pointer itself.
    if goroutine == 0 {
        return Some(distance);
    }
    Some(word(goroutine.wrapping_add(STACK_END))?.wrapping_sub(distance))
}
