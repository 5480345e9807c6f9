//! The located counters equal the results of `mallctl` in running programs.

#![cfg(target_arch = "x86_64")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::Process;
use harness::Scratch;
use harness::fixtures::GLIBC;
use memtrace_host::procfs::{self, RemoteCounters};
use memtrace_model::{AbsAddr, Pid, VirtOffset};
use object::elf::{DT_RELA, DT_RELASZ};

use super::handlers::Handlers;
use super::*;
use crate::elf::{ElfError, dynamic_symbols};

/// Library of Debian's package `libjemalloc2`. The library is stripped.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const VICTIM: &str = include_str!("tests/victim.c");
/// Number of the victim's threads that allocate.
const THREADS: usize = 9;
const STATIC: [&str; 3] = ["-l:libjemalloc.a", "-lstdc++", "-lm"];

/// A thread of a victim: its thread pointer, and the counters that `mallctl` has returned in it.
struct Thread {
    pointer: u64,
    counters: [u64; 2],
}

/// Starts a victim, and reads the lines of its threads.
fn start(command: &mut Command) -> (Process, Vec<Thread>) {
    let mut process = Process::start(command);
    let threads = (0..THREADS).map(|_| {
        let line = process.read_line();
        let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Thread { pointer: numbers[0], counters: [numbers[1], numbers[2]] }
    });
    let threads = threads.collect();
    (process, threads)
}

/// Asserts that the counters of each thread, read from its memory, equal the results of `mallctl`.
fn assert_counters(object: &Path, command: &mut Command) {
    let found = JemallocCounters::find(&File::open(object).unwrap());
    let found = found.unwrap_or_else(|refusal| panic!("{}: {refusal}", object.display()));
    let (mut process, threads) = start(command);
    let pid = Pid(process.pid());
    let content = found.location.slot().map_or(0, |slot| read(pid, &[AbsAddr(load_base(pid, object) + slot.0)])[0]);
    let offset = found.location.resolve(content).unwrap();
    let places: Vec<_> = threads.iter().flat_map(|thread| found.addresses(thread.pointer, offset)).collect();
    let expected: Vec<_> = threads.iter().flat_map(|thread| thread.counters).collect();
    assert!(expected.iter().all(|bytes| *bytes > 1_000_000), "{expected:?}");
    assert_eq!(read(pid, &places), expected, "{}", object.display());
    assert!(process.wait().success());
}

fn read(pid: Pid, places: &[AbsAddr]) -> Vec<u64> {
    let mut counters = RemoteCounters::start(pid).unwrap();
    counters.request(places.iter().copied());
    let reading = counters.wait(Instant::now() + Duration::from_secs(60));
    assert!(!reading.is_stale && reading.error.is_none(), "{:?}", reading.error);
    reading.values().map(|(_, value)| value.unwrap()).collect()
}

/// Returns the load address of the object. Its first segment begins at 0.
fn load_base(pid: Pid, object: &Path) -> u64 {
    let object = fs::canonicalize(object).unwrap();
    let maps = fs::read_to_string(procfs::proc_path(pid, "maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with(object.to_str().unwrap())).unwrap();
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

fn compile(scratch: &Scratch, name: &str, options: &[&str]) -> PathBuf {
    scratch.compile("gcc", name, VICTIM, &[&["-O1", "-pthread"], options].concat())
}

#[test]
fn counters_of_the_shared_library_equal_mallctl() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "shared", &["-ljemalloc"]);
    assert_counters(Path::new(LIBRARY), &mut Command::new(program));
}

#[test]
fn counters_of_executables_equal_mallctl() {
    let scratch = Scratch::new();
    let builds: &[(&str, &[&str])] = &[
        ("pie", &[]),
        ("fixed", &["-no-pie"]),
        ("static", &["-static"]),
        ("static-pie", &["-static-pie"]),
        ("exported", &["-rdynamic", "-s"]),
        ("exported-fixed", &["-rdynamic", "-s", "-no-pie"]),
        ("exported-compact", &["-rdynamic", "-s", "-Wl,-z,pack-relative-relocs"]),
    ];
    for (name, options) in builds {
        let program = compile(&scratch, name, &[*options, &STATIC].concat());
        assert_counters(&program, &mut Command::new(&program));
    }
}

/// Bytes of the library, with its functions of `mallctl`.
struct Parts {
    bytes: Vec<u8>,
    handlers: [Handlers; 2],
}

impl Parts {
    fn read() -> Self {
        let bytes = fs::read(LIBRARY).unwrap();
        let handlers = handlers::find(&Elf::parse(bytes.as_slice()).unwrap()).unwrap();
        Self { handlers: [handlers.allocated, handlers.deallocated], bytes }
    }

    fn find(&self) -> Result<JemallocCounters, CountersRefusal> {
        JemallocCounters::find_in(self.bytes.as_slice())
    }

    fn offset(&self, virt: u64) -> usize {
        let elf = Elf::parse(self.bytes.as_slice()).unwrap();
        usize::try_from(elf.locate(virt).unwrap().0).unwrap()
    }

    /// Replaces the offset of a field in the first 96 bytes of a function's code.
    fn move_field(&mut self, function: u64, from: u32, to: u32) {
        let start = self.offset(function);
        let code = &mut self.bytes[start..start + 96];
        let at = code.windows(4).position(|bytes| bytes == from.to_le_bytes()).unwrap();
        code[at..at + 4].copy_from_slice(&to.to_le_bytes());
    }
}

#[test]
fn functions_that_disagree_about_a_field_are_refused() {
    let sound = Parts::read().find().unwrap();
    let fields = [(sound.allocated, "allocated"), (sound.deallocated, "deallocated")];
    for (number, (field, name)) in fields.into_iter().enumerate() {
        for is_pointer in [false, true] {
            let mut parts = Parts::read();
            let Handlers { value, pointer } = parts.handlers[number];
            parts.move_field(if is_pointer { pointer } else { value }, field, field + 64);
            assert!(matches!(parts.find(), Err(CountersRefusal::Field(found)) if found == name), "{name}");
        }
        // Both functions have the same wrong offset: no function of malloc writes there.
        let mut parts = Parts::read();
        let Handlers { value, pointer } = parts.handlers[number];
        parts.move_field(value, field, field + 1024);
        parts.move_field(pointer, field, field + 1024);
        assert!(matches!(parts.find(), Err(CountersRefusal::NoState)));
    }
}

#[test]
fn equal_fields_are_refused() {
    let sound = Parts::read().find().unwrap();
    let mut parts = Parts::read();
    let Handlers { value, pointer } = parts.handlers[1];
    for function in [value, pointer] {
        parts.move_field(function, sound.deallocated, sound.allocated);
    }
    assert!(matches!(parts.find(), Err(CountersRefusal::Field("deallocated"))));
}

#[test]
fn a_mallctl_without_the_state_is_refused() {
    let mut parts = Parts::read();
    let mallctl =
        dynamic_symbols::definitions(&Elf::parse(parts.bytes.as_slice()).unwrap(), "mallctl").unwrap()[0].virt.0;
    let at = parts.offset(mallctl);
    parts.bytes[at] = 0xc3;
    assert!(matches!(parts.find(), Err(CountersRefusal::NoState)));
}

#[test]
fn thread_local_storage_on_demand_is_refused() {
    let mut parts = Parts::read();
    let elf = Elf::parse(parts.bytes.as_slice()).unwrap();
    let (table, size) = (elf.dynamic_value(DT_RELA).unwrap(), elf.dynamic_value(DT_RELASZ).unwrap());
    let at = parts.offset(table);
    let entries = parts.bytes[at..at + usize::try_from(size).unwrap()].as_chunks_mut::<24>().0;
    for entry in entries.iter_mut().filter(|entry| entry[8..12] == 18u32.to_le_bytes()) {
        entry[8] = 0;
    }
    assert!(matches!(parts.find(), Err(CountersRefusal::DynamicTls)));
}

#[test]
fn objects_without_jemalloc_are_refused() {
    let refusal = |path: &str| JemallocCounters::find(&File::open(path).unwrap()).unwrap_err();
    assert!(matches!(refusal(GLIBC), CountersRefusal::NoTable));
    assert!(matches!(refusal("/etc/passwd"), CountersRefusal::Elf(ElfError::NotElf)));
}

#[test]
fn truncated_libraries_are_refused_or_read_as_whole() {
    let parts = Parts::read();
    let whole = parts.find().unwrap();
    let mut refused = 0;
    for length in (0..parts.bytes.len()).step_by(parts.bytes.len() / 40) {
        match JemallocCounters::find_in(&parts.bytes[..length]) {
            Ok(found) => assert_eq!(found, whole, "cut at {length}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn slots_that_are_not_filled_yet_have_no_distance() {
    let slot = TpOffset::GotSlot { slot: VirtOffset(8), addend: 16 };
    assert_eq!(slot.resolve(4096u64.wrapping_neg()), Some(-4080));
    for content in [0, 16, u64::MAX, 1 << 63, i64::MAX as u64] {
        assert_eq!(slot.resolve(content), None, "{content:x}");
    }
    assert_eq!(TpOffset::GotSlot { slot: VirtOffset(8), addend: -16 }.resolve(0), None);
    assert_eq!(TpOffset::Fixed(-64).resolve(0), Some(-64));
    assert_eq!(TpOffset::Fixed(64).resolve(0), None);
}
