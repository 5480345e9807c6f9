//! Tests that use the whole machine.

use super::*;

#[test]
fn swapped_in_pages_are_resident_again() {
    let scratch = Scratch::new();
    let _swap = Swap::create_in(&scratch, 32 << 20);
    // Pages that are still in the swap cache cause no major fault.
    let _ = assert_major_faults("swaps");
}
