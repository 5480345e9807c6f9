//! Sites without a stub, and files that are no stub.

use memtrace_model::VirtOffset;

use super::super::layout::{CODE_SIZE, EPOCH, INTERVAL_BASE, MAX_SITES, SALT, SHIFT, SiteRecord};
use super::super::site::{OverlaySite, Relative, SiteKind};
use super::super::stub::{self, SiteAt, StubError};
use super::sites::{self, BASE, BIAS, R10, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, at};
use crate::probe_site::GeneralRegister;

/// Returns the reason that no stub can be made for a site.
fn refusal(site: OverlaySite) -> String {
    match stub::build(BASE, &[at(site)]) {
        Err(StubError::Operand(reason)) => reason,
        other => panic!("{:?}", other.map(|image| image.header)),
    }
}

#[test]
fn contradictory_registers_are_refused() {
    let lowered = |lowered| OverlaySite { lowered, ..sites::alloc() };
    assert_eq!(refusal(lowered(36)), "malloc: the stack pointer is lowered by 36 bytes");
    assert_eq!(refusal(lowered(1032)), "malloc: the stack pointer is lowered by 1032 bytes");
    for (register, slot) in [(RBX, 0), (RBX, 12), (RBX, 104), (RAX, 8), (RDI, 16)] {
        let site = OverlaySite { saved: vec![(register, slot)], ..sites::alloc() };
        assert_eq!(refusal(site), format!("malloc: {register} is not saved {slot} bytes below the return address"));
    }
    for saved in [vec![(RBX, 8), (RBX, 16)], vec![(RBX, 8), (RBP, 8)]] {
        assert!(refusal(OverlaySite { saved, ..sites::alloc() }).contains("is not saved"));
    }
    let stack = OverlaySite { kind: SiteKind::Alloc { size: RSP }, ..sites::alloc() };
    assert_eq!(refusal(stack), "malloc: register 4 is no operand");
    let unknown = OverlaySite { kind: SiteKind::Alloc { size: GeneralRegister(16) }, ..sites::alloc() };
    assert_eq!(refusal(unknown), "malloc: register 16 is no operand");
    for arguments in [vec![(6, RDI)], vec![(0, RDI), (0, RBX)]] {
        assert!(refusal(OverlaySite { arguments, ..sites::alloc() }).ends_with("is in two registers, or in none"));
    }
}

#[test]
fn scratch_registers_must_be_dead_and_enough() {
    let free = |scratch: &[GeneralRegister]| OverlaySite { scratch: scratch.to_vec(), ..sites::free() };
    for scratch in [[RDI, RAX], [RAX, RAX], [RBX, RAX], [RBP, RCX]] {
        assert_eq!(refusal(free(&scratch)), "free: a scratch register has a value", "{scratch:?}");
    }
    assert_eq!(refusal(free(&[])), "free: there are too few scratch registers");
    assert_eq!(refusal(free(&[RAX])), "free: there are too few scratch registers");
    assert!(stub::build(BASE, &[at(free(&[RSI, R10, RDI]))]).is_ok());
    let argument = OverlaySite { arguments: vec![(0, RDI), (1, RDX)], ..free(&[RAX, RDX]) };
    assert_eq!(refusal(argument), "free: a scratch register has a value");
    let product = OverlaySite { scratch: vec![R10], ..sites::product() };
    assert_eq!(refusal(product), "calloc: a scratch register has a value");
    let product = OverlaySite { scratch: Vec::new(), ..sites::product() };
    assert_eq!(refusal(product), "calloc: there are too few scratch registers");
}

#[test]
fn descriptions_that_differ_from_the_instruction_are_refused() {
    let site = |original: &[u8], relative, is_jump| OverlaySite {
        original: original.to_vec(),
        relative,
        is_jump,
        ..sites::alloc()
    };
    let one = "malloc: the replaced bytes are not one instruction of 5 to 15 bytes";
    assert_eq!(refusal(site(&[], None, false)), one);
    assert_eq!(refusal(site(&[0x48, 0x89, 0xfb], None, false)), one);
    assert_eq!(refusal(site(&[0x90; 5], None, false)), one);
    assert_eq!(refusal(site(&[0x06, 0, 0, 0, 0], None, false)), one);
    let compare = sites::alloc().original;
    assert_eq!(refusal(site(&[&compare[..], &[0x90]].concat(), sites::alloc().relative, false)), one);
    let other = "malloc: the operand relative to rip is another one";
    let relative = |at, target| Some(Relative { at, target: VirtOffset(target) });
    assert_eq!(refusal(site(&compare, None, false)), other);
    assert_eq!(refusal(site(&compare, relative(2, 0x1d_a489), false)), other);
    assert_eq!(refusal(site(&compare, relative(3, 0x1d_a488), false)), other);
    assert_eq!(refusal(site(&[0xb8, 0, 0, 0, 0], relative(1, 0x9_8940), false)), other);
    // addr32 cmpb $0,0x141b46(%eip)
    assert_eq!(refusal(site(&[0x67, 0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0], relative(3, 0x1d_a489), false)), other);
    let fixed = "malloc: the replaced instruction cannot be executed in another place";
    // The target of each is 0x9893b + 5: call, xbegin with its prefix, and a jmp that the site does not describe as a jump.
    assert_eq!(refusal(site(&[0xe8, 0, 0, 0, 0], relative(1, 0x9_8940), false)), fixed);
    assert_eq!(refusal(site(&[0xc7, 0xf8, 0, 0, 0, 0], relative(2, 0x9_8941), false)), fixed);
    assert_eq!(refusal(site(&[0xe9, 0, 0, 0, 0], relative(1, 0x9_8940), false)), fixed);
    assert_eq!(refusal(site(&[0xb8, 0, 0, 0, 0], None, true)), fixed);
    // A short branch with prefixes, a branch with a prefix for the operand size, and an indirect jump.
    assert_eq!(refusal(site(&[0x2e, 0x2e, 0x2e, 0x74, 0], None, false)), fixed);
    assert_eq!(refusal(site(&[0x66, 0x0f, 0x84, 0, 0, 0, 0], relative(3, 0x9_8942), false)), fixed);
    assert_eq!(refusal(site(&[0xff, 0xa0, 0, 0, 0, 0], None, true)), fixed);
}

#[test]
fn flag_setters_that_cannot_be_repeated_are_refused() {
    let replay = |replay: &[u8]| OverlaySite { replay: replay.to_vec(), ..sites::replay() };
    for code in [
        &[0x48, 0x81, 0xff, 0, 0x10, 0][..],      // cut off
        &[0x48, 0x81, 0xff, 0, 0x10, 0, 0, 0x90], // two instructions
        &[0x48, 0x83, 0xef, 0x01],                // sub $1,%rdi
        &[0x80, 0x3d, 0, 0, 0, 0, 0],             // cmpb $0,(%rip)
    ] {
        assert_eq!(refusal(replay(code)), "malloc: the flags cannot be restored", "{code:x?}");
    }
    // The stub changes al and dl.
    let free = |code: &[u8]| OverlaySite { replay: code.to_vec(), ..sites::free() };
    assert_eq!(refusal(free(&[0x3c, 0])), "free: the flags cannot be restored");
    assert_eq!(refusal(free(&[0x84, 0xd1])), "free: the flags cannot be restored");
    assert!(stub::build(BASE, &[at(free(&[0x84, 0xc9]))]).is_ok());
}

#[test]
fn as_many_sites_fit_as_there_are_records() {
    let many = |site: &OverlaySite, count| vec![at(site.clone()); count];
    let image = stub::build(BASE, &many(&sites::alloc(), MAX_SITES)).unwrap();
    assert_eq!(stub::read(&image.bytes), Some((image.header, image.sites)));
    assert_eq!(stub::build(BASE, &many(&sites::alloc(), MAX_SITES + 1)), Err(StubError::TooManySites));
    assert_eq!(stub::build(BASE, &many(&sites::realloc(), MAX_SITES)), Err(StubError::CodeTooLong));
}

#[test]
fn objects_out_of_reach_are_refused() {
    let far = |bias| stub::build(BASE, &[SiteAt { bias, ..at(sites::alloc()) }]).map(|image| image.header.sites);
    let refused = Err(StubError::OutOfReach(String::from("malloc")));
    assert_eq!(far(BASE + 0x7ff0_0000 - 0x1d_a488), Ok(1));
    assert_eq!(far(BASE - 0x7ff0_0000), Ok(1));
    // The jump reaches the stub, but the stub does not reach the operand, 1.3 MB after the site.
    assert_eq!(far(BASE + 0x7fff_0000 - 0x9_893b), refused);
    assert_eq!(far(BASE + 0x9000_0000), refused);
    assert_eq!(far(BASE - 0x9000_0000), refused);
    assert_eq!(far(0), refused);
}

#[test]
fn records_describe_the_sites() {
    let long = OverlaySite { name: "é".repeat(40), ..sites::free() };
    let image = stub::build(BASE, &[at(sites::alloc()), at(long)]).unwrap();
    assert_eq!(image.bytes.len() as u64, CODE_SIZE);
    let [malloc, free]: [SiteRecord; 2] = image.sites.try_into().unwrap();
    let expected = SiteRecord {
        address: BIAS + 0x9_893b,
        file_offset: 0x9_793b,
        device: 0x0801,
        inode: 77,
        entry: BIAS + 0x9_8930,
        length: 7,
        is_alloc: 1,
        ..malloc
    };
    assert_eq!((malloc, malloc.name()), (expected, String::from("malloc")));
    assert_eq!(malloc.original[..8], [0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0, 0]);
    // The name is cut between two letters.
    assert_eq!((free.is_alloc, free.name()), (0, "é".repeat(32)));
}

#[test]
fn only_whole_files_are_read() {
    let image = stub::build(BASE, &[at(sites::alloc()), at(sites::free())]).unwrap();
    assert_eq!(stub::read(&image.bytes), Some((image.header, image.sites.clone())));
    let longer = [&image.bytes[..], &[0]].concat();
    assert_eq!(stub::read(&longer), Some((image.header, image.sites.clone())));
    assert_eq!(stub::read(&image.bytes[..image.bytes.len() - 1]), None);
    // Any byte after the header, and any byte of the header but its padding.
    for changed in (0..48).chain(64..400).chain((400..image.bytes.len()).step_by(97)) {
        let mut bytes = image.bytes.clone();
        bytes[changed] ^= 0x10;
        assert_eq!(stub::read(&bytes), None, "{changed}");
    }
}

#[test]
fn control_page_has_the_values_of_the_session() {
    let page = stub::initial_control(0x1_0000_0000, 3, 0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00);
    let word = |offset: u64| u64::from_le_bytes(page[offset as usize..][..8].try_into().unwrap());
    let words = [EPOCH, INTERVAL_BASE, SHIFT, SALT].map(word);
    assert_eq!(words, [0x1122_3344_5566_7788, 0x1_0000_0000, 3, 0x99aa_bbcc_ddee_ff00]);
    assert_eq!(page.iter().filter(|byte| **byte != 0).count(), 8 + 1 + 1 + 7);
}
