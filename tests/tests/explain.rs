//! Compares the output of `memtrace explain` with mallinfo, the kernel and other tools.

mod alone;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::explain::explain;
use memtrace_tests::process::run;
use memtrace_tests::report::{HeapBlocks, SelectionExplanation, Sizes};
use memtrace_tests::{Explanation, Scratch, Victim, explain, tracer, victim};
use serde::Deserialize;

const MIB: u64 = 1 << 20;

/// Output of glibc's mallinfo2 (mallinfo(3)).
#[derive(Debug, Deserialize)]
struct Mallinfo {
    uordblks: u64,
    fsmblks: u64,
    fordblks: u64,
    hblks: u64,
    hblkhd: u64,
    arena: u64,
}

fn heaps(threads: &str) -> (Victim, Mallinfo) {
    heaps_of("heaps", threads)
}

fn heaps_of(name: &str, threads: &str) -> (Victim, Mallinfo) {
    let mut victim = victim::start_with(name, &[threads]);
    let line = victim.process().read_line();
    let info = serde_json::from_str(&line).expect("the victim prints mallinfo2");
    victim.wait_until_reading_stdin();
    (victim, info)
}

/// Asserts that used, free and mapped bytes equal mallinfo.
fn assert_matches_mallinfo(blocks: HeapBlocks, info: &Mallinfo) {
    let in_arenas = blocks.in_use_bytes - blocks.mapped_bytes;
    assert_eq!(in_arenas + blocks.own_bytes, info.uordblks + info.fsmblks, "{blocks:#?} {info:#?}");
    assert_eq!(blocks.free_bytes, info.fordblks - info.fsmblks, "{blocks:#?} {info:#?}");
    assert_eq!((blocks.mapped_count, blocks.mapped_bytes), (info.hblks, info.hblkhd), "{blocks:#?} {info:#?}");
    assert_eq!(in_arenas + blocks.own_bytes + blocks.free_bytes, info.arena, "{blocks:#?} {info:#?}");
    assert_eq!(blocks.untold_resident_bytes, 0);
}

#[test]
fn main_arena_blocks_match_mallinfo() {
    let (victim, info) = heaps("0");
    let page = explain::explain_pid(victim.pid());
    assert_matches_mallinfo(page.blocks(), &info);
    assert_eq!(page.blocks().arenas, 1);
    // The victim allocates six large blocks and leaves free blocks between others.
    assert_eq!(info.hblks, 6);
    assert!(info.fordblks > 0 && info.fsmblks > 0, "{info:?}");
    victim.finish();
}

#[test]
fn blocks_in_several_arenas_and_heaps_match_mallinfo() {
    let (victim, info) = heaps("5");
    let page = explain::explain_pid(victim.pid());
    assert_matches_mallinfo(page.blocks(), &info);
    assert_eq!((page.blocks().arenas, page.threads, page.thread_stacks.count), (6, 6, 5));
    // The arena of the last thread needs more than one heap of 64 MiB.
    assert!(info.arena > 128 * MIB, "{info:?}");
    victim.finish();
}

/// In a static executable, the TLS block of the main thread is in the brk heap, before the first block of malloc.
#[test]
fn blocks_in_a_static_executable_match_mallinfo() {
    for threads in ["0", "3"] {
        let (victim, info) = heaps_of("heaps.static", threads);
        let page = explain::explain_pid(victim.pid());
        let blocks = page.blocks();
        assert_eq!(blocks.free_bytes, info.fordblks - info.fsmblks, "{blocks:#?} {info:#?}");
        assert_eq!((blocks.mapped_count, blocks.mapped_bytes), (info.hblks, info.hblkhd), "{blocks:#?} {info:#?}");
        // The TLS block is not from malloc. It is smaller than a page.
        let ours = blocks.in_use_bytes - blocks.mapped_bytes + blocks.own_bytes;
        let others = ours - (info.uordblks + info.fsmblks);
        assert!(others > 0 && others < 4096, "{others} {blocks:#?} {info:#?}");
        victim.finish();
    }
}

#[test]
fn unparsed_allocators_are_named_and_have_one_total() {
    for (name, allocator) in [
        ("family.jemalloc", "jemalloc"),
        ("family.jemalloc_static", "jemalloc"),
        ("family.tcmalloc", "tcmalloc"),
        ("family.tcmalloc_in", "tcmalloc"),
        ("family.musl_static", "musl"),
    ] {
        let victim = Victim::start(Command::new(victim::path(name)).arg("1"));
        victim.wait_until_reading_stdin();
        let page = explain::explain_pid(victim.pid());
        page.assert_adds_up();
        assert_eq!((page.heap.allocator.as_deref(), page.heap.blocks.is_some()), (Some(allocator), false), "{name}");
        assert!(page.heap.not_told.as_ref().is_some_and(|why| why.contains(allocator)), "{name}");
    }
    // Without symbols, the allocator is unknown, but glibc's heap structures are recognized.
    let victim = Victim::start(Command::new(victim::path("family.stripped")).arg("1"));
    victim.wait_until_reading_stdin();
    assert_eq!(explain::explain_pid(victim.pid()).blocks().arenas, 1);
}

/// The test covers the versions of glibc that `cargo xtask setup` fetches and that the victim can
/// run with.
#[test]
fn blocks_of_other_glibc_versions_match_mallinfo() {
    for release in ["trixie", "sid"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/libc").join(release);
        let libraries = folder.join("usr/lib/x86_64-linux-gnu");
        for threads in ["0", "5"] {
            let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
            command.arg("--library-path").arg(&libraries).arg(victim::path("heaps")).arg(threads);
            let mut victim = Victim::start(&mut command);
            let line = victim.process().read_line();
            victim.wait_until_reading_stdin();
            let page = explain::explain_pid(victim.pid());
            assert_matches_mallinfo(page.blocks(), &serde_json::from_str(&line).expect("the victim prints mallinfo2"));
            assert_eq!(page.thread_stacks.count.to_string(), threads, "{release}: {page:#?}");
            victim.finish();
        }
    }
}

/// Returns a number of `smaps_rollup` of a process, in bytes.
fn rollup(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the victim runs");
    sum_of(&text, &[name])
}

#[test]
fn trimmable_pages_are_those_that_malloc_trim_returns() {
    let mut victim = victim::start("trim");
    victim.wait_until_reading_stdin();
    let page = explain::explain_pid(victim.pid());
    let blocks = page.blocks();
    assert_eq!((blocks.arenas, blocks.untold_resident_bytes), (2, 0));
    assert!(blocks.trimmable_bytes > 10 * MIB, "{blocks:#?}");
    assert_eq!(page.heap.sizes.returnable_bytes, blocks.trimmable_bytes);
    let before = rollup(victim.pid(), "Anonymous");
    victim.process().write_line("");
    assert_eq!(victim.process().read_line(), "trimmed");
    victim.wait_until_reading_stdin();
    let returned = before - rollup(victim.pid(), "Anonymous");
    // The call writes to a few pages of the stack and of the C library.
    assert!(returned.abs_diff(blocks.trimmable_bytes) <= 16 * 4096, "{returned} {blocks:#?}");
    assert!(explain::explain_pid(victim.pid()).blocks().trimmable_bytes < MIB / 8);
    victim.finish();
}

#[test]
fn processes_without_permission_are_named_and_counted() {
    let scratch = Scratch::new();
    let copy = scratch.copy(tracer::binary(), "memtrace");
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let (others, _) = heaps("0");
    let program = scratch.copy(victim::path("heaps"), "heaps");
    let mut own = Victim::start(Command::new("setpriv").args(user).arg(program).arg("0"));
    own.process().read_line();
    own.wait_until_reading_stdin();
    let explain_as_nobody = |pids: &[u32]| {
        let pids = pids.iter().map(|pid| format!("--pid={pid}"));
        let mut command = Command::new("setpriv");
        command.args(user).arg(&copy).args(["explain", "--children", "--format", "json"]).args(pids);
        command.output().expect("memtrace starts")
    };
    // A process that the user names is an error; its child processes are not.
    let output = explain_as_nobody(&[others.pid(), own.pid()]);
    assert_eq!(output.status.code(), Some(NOT_PERMITTED), "{}", String::from_utf8_lossy(&output.stderr));
    let output = explain_as_nobody(&[own.pid()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = Command::new("setpriv");
    let name = fs::read_to_string(format!("/proc/{}/comm", others.pid())).expect("the victim runs");
    command.args(user).arg(&copy).args(["explain", "--format", "json", "--comm", name.trim()]);
    let output = command.output().expect("memtrace starts");
    assert_eq!(output.status.code(), Some(INCOMPLETE), "{}", String::from_utf8_lossy(&output.stderr));
    let page: SelectionExplanation = serde_json::from_slice(&output.stdout).expect("explain writes its own JSON");
    assert!(page.processes.iter().any(|process| process.pid == own.pid()), "{page:#?}");
    assert!(page.unread.not_permitted >= 1 && page.unread.rss_bytes > 0, "{page:#?}");
    let mut named = page.unread.named.iter().filter(|process| process.reason == "not_permitted");
    assert!(named.any(|process| process.comm == name.trim() && process.rss_bytes.is_some()), "{page:#?}");
    others.finish();
    own.finish();
}

#[test]
fn selections_without_a_process_are_refused() {
    let refused = |arguments: &[&str], code: i32, part: &str| {
        let output = explain(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{text}");
        assert!(text.contains(part) && text.contains("tip: "), "{text}");
    };
    refused(&["--comm", "no-such-name"], NO_SUCH_PROCESS, "the processes of command no-such-name do not run");
    refused(&["--cgroup", "no-such.slice"], NO_SUCH_PROCESS, "there is no control group no-such.slice");
    refused(&["--pid", "2", "--children"], UNTRACEABLE, "kernel thread");
    refused(&["--children"], 2, "no process is given");
}

/// Returns a file of 16 MiB that is entirely in the page cache.
fn file_of_16_mib(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("data");
    fs::write(&path, vec![7; 16 << 20]).expect("the scratch directory is writable");
    path
}

#[test]
fn each_kind_of_memory_matches_the_touched_pages() {
    let scratch = Scratch::new();
    let file = file_of_16_mib(&scratch);
    let path = file.to_str().expect("the path is UTF-8");
    let victim = victim::start_with("ranges", &[path]);
    victim.wait_until_reading_stdin();
    let page = explain::explain_pid(victim.pid());
    // Without CONFIG_ANON_VMA_NAME, the unnamed memory also contains the victim's huge pages and a few pages of the C
    // library.
    let (reserve, resident, reserved) = match page.anonymous("reserve") {
        Some(named) => (named, 0, 0),
        None => (page.anonymous("without a name").unwrap_or_else(|| panic!("{page:#?}")), 8 * MIB, 16 * MIB),
    };
    let slack = resident.min(MIB / 8);
    assert!((64 * MIB + resident..=64 * MIB + resident + slack).contains(&reserve.resident_bytes), "{reserve:?}");
    assert!((1024 * MIB + reserved..=1024 * MIB + reserved + slack).contains(&reserve.reserved_bytes), "{reserve:?}");

    let data = page.files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{page:#?}"));
    assert_eq!((data.copied_bytes, data.sizes.reserved_bytes), (3 * MIB, 24 * MIB));
    // A fault also maps up to 64 KiB of page cache around it (`do_fault_around`, mm/memory.c).
    let touched = 8 * MIB + 6 * MIB;
    assert!((touched..=touched + MIB / 8).contains(&data.sizes.resident_bytes), "{data:?}");

    let pool = page.shmem.iter().find(|named| named.name == "/memfd:pool").unwrap_or_else(|| panic!("{page:#?}"));
    assert_eq!((pool.sizes.resident_bytes, pool.sizes.reserved_bytes), (10 * MIB, 16 * MIB));
    let zero = page.shmem.iter().find(|named| named.name == "/dev/zero").unwrap_or_else(|| panic!("{page:#?}"));
    assert_eq!((zero.sizes.resident_bytes, zero.sizes.reserved_bytes), (4 * MIB, 8 * MIB));

    let stacks = &page.thread_stacks;
    assert_eq!((stacks.count, page.threads), (1, 2));
    // The stack of the thread also contains the rest of its frame, and data of the C library.
    assert!((20 * MIB..21 * MIB).contains(&stacks.sizes.resident_bytes), "{stacks:?}");
    // The reserved size includes the guard page.
    assert_eq!(stacks.sizes.reserved_bytes, 32 * MIB + 4096);
    assert_eq!(stacks.largest_resident_bytes, Some(stacks.sizes.resident_bytes));
    assert_ne!(stacks.largest_thread, Some(victim.pid()));

    page.assert_adds_up();
    assert_eq!(page.unexplained_bytes, 0);
    victim.finish();
}

#[test]
fn rss_matches_ps_and_smaps_rollup() {
    let (victim, _) = heaps("2");
    let page = explain::explain_pid(victim.pid());
    let rss = run(Command::new("ps").args(["-o", "rss=", "-p", &victim.pid().to_string()]));
    assert_eq!(page.rss_bytes, rss.trim().parse::<u64>().expect("a number") * 1024);
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", victim.pid())).expect("the victim runs");
    let sum = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("smaps_rollup has an Rss line");
    assert_eq!(sum.trim(), format!("{} kB", page.rss_bytes / 1024));
    victim.finish();
}

/// Returns the sum of the fields of `smaps` with one of these names, in bytes.
fn sum_of(smaps: &str, names: &[&str]) -> u64 {
    let fields = smaps.lines().filter_map(|line| line.split_once(':'));
    let ours = fields.filter(|(name, _)| names.contains(name));
    ours.map(|(_, value)| value.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024).sum()
}

#[test]
fn explain_does_not_disturb_the_process() {
    let (victim, _) = heaps("2");
    let state = || {
        let status = fs::read_to_string(format!("/proc/{}/status", victim.pid())).expect("the victim runs");
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", victim.pid())).expect("the victim runs");
        let faults = fs::read_to_string(format!("/proc/{}/stat", victim.pid())).expect("the victim runs");
        // Minor and major faults are fields 10 and 12. Field 2 is the name of the process, which has no space here.
        let fields: Vec<_> = faults.split(' ').map(str::to_owned).collect();
        let smaps = smaps.lines().filter(|line| !line.starts_with("Pss") && !line.starts_with("Referenced:"));
        (
            status
                .lines()
                .filter(|line| line.starts_with("Vm") || line.starts_with("Rss"))
                .map(str::to_owned)
                .collect::<Vec<_>>(),
            smaps
                .filter(|line| !line.starts_with("Shared_") && !line.starts_with("Private_"))
                .map(str::to_owned)
                .collect::<Vec<_>>(),
            [fields[9].clone(), fields[11].clone()],
        )
    };
    let before = state();
    let page = explain::explain_pid(victim.pid());
    assert!(page.blocks().in_use_count > 0);
    assert_eq!(state(), before);
    victim.finish();
}

const NO_SUCH_PROCESS: i32 = 3;
const NOT_PERMITTED: i32 = 4;
const UNTRACEABLE: i32 = 8;
const INCOMPLETE: i32 = 20;

/// Returns the exit code and standard error of `explain` for a process that it refuses.
fn refused(pid: u32) -> (Option<i32>, String) {
    let output = explain(["--pid", &pid.to_string()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn kernel_threads_tids_and_dead_pids_are_refused() {
    let (code, text) = refused(2);
    assert_eq!(code, Some(UNTRACEABLE), "{text}");
    assert!(text.contains("kernel thread"), "{text}");
    let (victim, _) = heaps("1");
    let tasks = fs::read_dir(format!("/proc/{}/task", victim.pid())).expect("the victim runs");
    let ids = tasks.map(|task| task.expect("a task").file_name().to_string_lossy().parse().expect("a number"));
    let thread = ids.into_iter().find(|id: &u32| *id != victim.pid()).expect("the victim has another thread");
    let (code, text) = refused(thread);
    assert_eq!(code, Some(UNTRACEABLE), "{text}");
    assert!(text.contains(&format!("tip: give --pid {}", victim.pid())), "{text}");
    let pid = victim.pid();
    victim.finish();
    let (code, text) = refused(pid);
    assert_eq!(code, Some(NO_SUCH_PROCESS), "{text}");
}

/// If ptrace is restricted, a process of the same user is explained without its heap.
#[test]
fn unprivileged_user_can_explain_only_own_processes() {
    let scratch = Scratch::new();
    let copy = scratch.copy(tracer::binary(), "memtrace");
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let as_nobody = |pid: u32| {
        let mut command = Command::new("setpriv");
        command.args(user).arg(&copy).args(["explain", "--format", "json", "--pid", &pid.to_string()]);
        command.output().expect("memtrace starts")
    };
    let (others, _) = heaps("0");
    let output = as_nobody(others.pid());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(NOT_PERMITTED), "{text}");
    assert!(text.contains("CAP_SYS_PTRACE"), "{text}");
    others.finish();

    let program = scratch.copy(victim::path("heaps"), "heaps");
    let mut own = Victim::start(Command::new("setpriv").args(user).arg(program).arg("0"));
    let info: Mallinfo = serde_json::from_str(&own.process().read_line()).expect("the victim prints mallinfo2");
    own.wait_until_reading_stdin();
    let output = as_nobody(own.pid());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page: Explanation = serde_json::from_slice(&output.stdout).expect("explain writes its own JSON");
    page.assert_adds_up();
    assert_eq!(page.unexplained_bytes, 0);
    match page.heap.blocks {
        Some(blocks) => assert_matches_mallinfo(blocks, &info),
        // Yama may forbid ptrace access.
        None => assert!(page.heap.not_told.as_ref().is_some_and(|why| why.contains("CAP_SYS_PTRACE")), "{page:#?}"),
    }
    own.finish();
}

#[test]
fn text_output_has_the_figures_of_the_json_output() {
    let (victim, _) = heaps("0");
    let page = explain::explain_pid(victim.pid());
    let output = explain(["--pid", &victim.pid().to_string()]);
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    let line = |start: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {text}")).to_owned()
    };
    let shown = |bytes: u64| format!("{:.2} MiB", bytes as f64 / MIB as f64);
    assert!(line("RSS ").contains(&shown(page.rss_bytes)), "{text}");
    assert!(line("heap of glibc").contains(&shown(page.heap.sizes.resident_bytes)), "{text}");
    assert!(line("in use").contains(&shown(page.blocks().in_use_resident_bytes)), "{text}");
    assert!(line("unexplained").contains("0 B"), "{text}");
    assert!(!text.contains('\x1b'), "colours are for terminals");
    victim.finish();
}
