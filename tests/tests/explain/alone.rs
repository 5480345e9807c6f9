//! Tests that use the whole machine: PSS depends on the other processes that map the C library.

use super::*;

#[test]
fn mapping_kinds_add_up_to_smaps() {
    let scratch = Scratch::new();
    let file = file_of_16_mib(&scratch);
    let victim = victim::start_with("ranges", &[file.to_str().expect("the path is UTF-8")]);
    victim.wait_until_reading_stdin();
    let page = explain::explain_pid(victim.pid());
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", victim.pid())).expect("the victim runs");
    let sum = |of: fn(&Sizes) -> u64| page.kinds.iter().map(|kind| of(&kind.sizes)).sum::<u64>();
    assert_eq!(sum(|usage| usage.reserved_bytes), sum_of(&smaps, &["Size"]));
    assert_eq!(sum(|usage| usage.resident_bytes), sum_of(&smaps, &["Rss"]));
    assert_eq!(sum(|usage| usage.swap_bytes), sum_of(&smaps, &["Swap"]));
    // The victim requests 8 MiB of huge pages; fragmentation decides how many it gets.
    let huge = sum_of(&smaps, &["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]);
    assert_eq!(sum(|usage| usage.huge_bytes), huge);
    // PSS changes when other processes map or unmap a shared library.
    assert!(page.pss_bytes.abs_diff(sum_of(&smaps, &["Pss"])) < MIB / 8, "{page:#?}");
    let kind = |name: &str| page.kinds.iter().find(|kind| kind.kind == name).map(|kind| kind.sizes.resident_bytes);
    assert_eq!(kind("shmem"), Some(14 * MIB));
    assert_eq!(kind("stack"), Some(page.main_stack.resident_bytes));
    assert_eq!(kind("file"), Some(page.files.iter().map(|file| file.sizes.resident_bytes).sum()));
    victim.finish();
}
