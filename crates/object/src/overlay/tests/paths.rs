//! All paths through the machine code: where the stack pointer is, what is written, and how a path ends.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::super::layout::{
    AT_BLOCK, AT_INTERVAL, AT_SIZE, CODE_SIZE, COUNTDOWN, DATA_SIZE, IN_COLD, ROUTINES, THREAD_INTERVAL,
};
use super::super::site::OverlaySite;
use super::super::stub;
use super::decode::instructions;
use super::sites::{self, BASE, BIAS};

/// Size of the largest frame of the cold path: red zone, registers and local words.
const MAX_FRAME: i64 = 128 + 72 + 64;

/// Point of a path. `depth`: stack pointer minus stack pointer at the site. `in_cold`: what the path has added to the number of
/// threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    ip: u64,
    depth: i64,
    in_cold: i64,
}

/// End of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The function continues after the site.
    Resumed,
    /// The function returns.
    Returned,
    /// The function returns through the probe.
    Sampled,
}

struct SiteCode {
    instructions: BTreeMap<u64, Instruction>,
    start: u64,
    alloc_probe: u64,
    entry: u64,
    back: u64,
    lowered: i64,
}

impl SiteCode {
    fn of(site: OverlaySite) -> Self {
        let (function, virt, length) = (site.function.0, site.virt.0, site.original.len() as u64);
        let lowered = i64::from(site.lowered);
        let image = stub::build(BASE, &[sites::at(site)]).unwrap();
        let start = u64::from(image.sites[0].stub);
        let code = instructions(&image.bytes, start, image.header.code_end.into());
        Self {
            instructions: code.into_iter().map(|instruction| (instruction.ip(), instruction)).collect(),
            start: BASE + start,
            alloc_probe: BASE + u64::from(image.header.alloc_probe),
            entry: BIAS + function,
            back: BIAS + virt + length,
            lowered,
        }
    }

    /// Follows all paths. Returns how they end.
    fn ends(&self) -> BTreeSet<End> {
        let mut ends = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut to_visit = vec![Point { ip: self.start, depth: 0, in_cold: 0 }];
        while let Some(point) = to_visit.pop() {
            if !seen.insert(point) {
                continue;
            }
            assert!((-MAX_FRAME..=self.lowered).contains(&point.depth), "{point:x?}");
            if point.ip == self.back {
                assert_eq!((point.depth, point.in_cold), (0, 0), "{point:x?}");
                ends.insert(End::Resumed);
                continue;
            }
            if point.ip == self.alloc_probe {
                assert_eq!((point.depth, point.in_cold), (self.lowered, 0), "{point:x?}");
                ends.insert(End::Sampled);
                continue;
            }
            // A branch into the middle of an instruction, or out of the code, ends here.
            let instruction = self.instructions.get(&point.ip).unwrap();
            self.check_writes(instruction, point.depth);
            let next = Point {
                ip: instruction.next_ip(),
                depth: point.depth + stack_change(instruction),
                in_cold: point.in_cold + in_cold_change(instruction),
            };
            let target = Point { ip: instruction.near_branch_target(), ..next };
            match instruction.flow_control() {
                FlowControl::Next => to_visit.push(next),
                FlowControl::ConditionalBranch => to_visit.extend([next, target]),
                FlowControl::UnconditionalBranch => to_visit.push(target),
                FlowControl::Call => {
                    if target.ip == self.entry {
                        // The return address of the interrupted call is at a multiple of 16 plus 8.
                        assert_eq!((8 - self.lowered + point.depth).rem_euclid(16), 0, "{point:x?}");
                        assert_eq!(point.in_cold, 1, "{point:x?}");
                    } else {
                        assert!((BASE + ROUTINES..self.start).contains(&target.ip), "{point:x?}");
                    }
                    to_visit.push(next);
                }
                FlowControl::Return => {
                    assert_eq!((point.depth, point.in_cold), (self.lowered, 0), "{point:x?}");
                    ends.insert(End::Returned);
                }
                other => panic!("{other:?} at {point:x?}"),
            }
        }
        let reached: BTreeSet<u64> = seen.into_iter().map(|point| point.ip).collect();
        assert!(self.instructions.keys().all(|ip| reached.contains(ip)), "some code is never reached");
        ends
    }

    /// Checks that an instruction writes to no memory but the frame, the words for the probe, the countdown and the stub's data.
    fn check_writes(&self, instruction: &Instruction, depth: i64) {
        let lowest = depth + i64::from(instruction.stack_pointer_increment().min(0));
        for (segment, base, distance) in writes(instruction) {
            let at = depth + distance;
            let is_in_frame = at >= lowest && at + 8 <= -128;
            let is_for_probe = [AT_BLOCK, AT_SIZE, AT_INTERVAL].contains(&(at - self.lowered));
            let is_permitted = match (segment, base) {
                (Register::FS, Register::None) => distance == i64::from(COUNTDOWN),
                (_, Register::RSP) => is_in_frame || is_for_probe,
                (_, Register::None) => is_data(distance.cast_unsigned()),
                _ => false,
            };
            assert!(is_permitted, "{:x}: {segment:?} {base:?} {distance:x} at depth {depth}", instruction.ip());
        }
    }
}

/// Returns segment, base and displacement of the memory that an instruction writes.
fn writes(instruction: &Instruction) -> Vec<(Register, Register, i64)> {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory();
    let is_written = |access: OpAccess| {
        matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    let written = used.iter().filter(|memory| is_written(memory.access()));
    written.map(|memory| (memory.segment(), memory.base(), memory.displacement().cast_signed())).collect()
}

fn is_data(address: u64) -> bool {
    (BASE + CODE_SIZE..BASE + CODE_SIZE + DATA_SIZE).contains(&address)
}

/// Returns the change of the stack pointer. A call and its return together change nothing.
fn stack_change(instruction: &Instruction) -> i64 {
    let is_of_rsp = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop => i64::from(instruction.stack_pointer_increment()),
        Mnemonic::Lea if is_of_rsp => {
            assert_eq!((instruction.memory_base(), instruction.memory_index()), (Register::RSP, Register::None));
            instruction.memory_displacement64().cast_signed()
        }
        Mnemonic::Add if is_of_rsp => instruction.immediate(1).cast_signed(),
        Mnemonic::Sub if is_of_rsp => -instruction.immediate(1).cast_signed(),
        _ => {
            assert!(!is_of_rsp, "{:x}", instruction.ip());
            0
        }
    }
}

fn in_cold_change(instruction: &Instruction) -> i64 {
    let counts = instruction.is_ip_rel_memory_operand()
        && instruction.ip_rel_memory_address() == BASE + CODE_SIZE + IN_COLD
        && instruction.has_lock_prefix();
    match instruction.mnemonic() {
        Mnemonic::Inc if counts => 1,
        Mnemonic::Dec if counts => -1,
        _ => 0,
    }
}

/// Returns a site with `lowered`, and with an instruction that does not move the stack pointer.
fn lowered(site: OverlaySite, lowered: u32) -> OverlaySite {
    let other = sites::alloc_out();
    OverlaySite { original: other.original, relative: None, replay: Vec::new(), lowered, ..site }
}

#[test]
fn stack_is_balanced_and_aligned_for_each_frame_size() {
    use End::{Resumed, Returned, Sampled};
    let all = BTreeSet::from([Resumed, Returned, Sampled]);
    for bytes in (0..=1024).step_by(8) {
        for site in [sites::alloc(), sites::replay(), sites::product(), sites::alloc_out(), sites::realloc()] {
            assert_eq!(SiteCode::of(lowered(site, bytes)).ends(), all, "{bytes}");
        }
        assert_eq!(SiteCode::of(lowered(sites::free(), bytes)).ends(), BTreeSet::from([Resumed]), "{bytes}");
    }
}

#[test]
fn routines_write_only_their_own_words() {
    let image = stub::build(BASE, &[]).unwrap();
    let code = instructions(&image.bytes, ROUTINES, image.header.code_end.into());
    for instruction in &code {
        let is_plain = !matches!(instruction.flow_control(), FlowControl::Call | FlowControl::Return);
        if is_plain {
            assert_eq!(stack_change(instruction), 0, "{:x}", instruction.ip());
            assert_eq!(instruction.stack_pointer_increment(), 0, "{:x}", instruction.ip());
        }
        for (segment, base, distance) in writes(instruction).into_iter().filter(|_| is_plain) {
            let is_permitted = match (segment, base) {
                (Register::FS, Register::None) => {
                    (i64::from(COUNTDOWN)..=i64::from(THREAD_INTERVAL)).contains(&distance)
                }
                (_, Register::None) => is_data(distance.cast_unsigned()),
                // The table and the filter, with an index in rsi that is masked before.
                (_, Register::RDI | Register::RDX | Register::R8) => {
                    (instruction.memory_index(), distance) == (Register::RSI, 0)
                }
                _ => false,
            };
            assert!(is_permitted, "{:x}: {segment:?} {base:?} {distance:x}", instruction.ip());
        }
    }
}
