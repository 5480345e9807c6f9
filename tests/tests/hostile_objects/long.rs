//! Programs of a user without privileges, damaged at random. The loaded parts stay intact, so the programs run.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::random::Random;
use memtrace_tests::opens::Opens;
use memtrace_tests::tracer::binary;
use memtrace_tests::{MemoryCgroup, Report, Scratch, Trace, Tracer, Victim, VictimTotals, victim};

use super::{USER, add_section, debug_link};

/// Number of damaged programs.
const PROGRAMS: usize = 1000;
/// Number of programs that run at the same time.
const TOGETHER: usize = 20;
/// Maximum time from SIGINT to the end of memtrace.
const END: Duration = Duration::from_secs(10);
/// Maximum RSS of memtrace while it traces, in KiB.
const MEMORY: u64 = 256 << 10;
/// Memory limit of the cgroup of memtrace and its workers in bytes, even for reports. The systemd unit in the guide has the
/// same limit.
const GROUP: u64 = 1 << 30;

/// Prefix of the names of the damaged programs.
const NAME: &str = "mt-hostile-";

/// Directories and files that memtrace opens for any program.
const SYSTEM: [&str; 5] = ["/usr/", "/lib", "/etc/ld.so.cache", "/etc/passwd", "/dev/null"];

/// Files that no trace may open, below `directory`.
struct Forbidden {
    directory: PathBuf,
    secret: PathBuf,
    fifo: PathBuf,
    opens: Opens,
}

impl Forbidden {
    fn new(scratch: &Scratch) -> Self {
        let secret = scratch.write("secret", b"a line of a file of root\n");
        let directory = scratch.path("");
        let opens = Opens::observe(&binary(), &[&directory, Path::new("/dev")]);
        Self { secret, fifo: scratch.pipe("fifo"), directory, opens }
    }

    fn assert_not_opened(self) {
        let opened = self.opens.end();
        let is_program = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            path.starts_with(&self.directory) && name.starts_with(NAME.as_bytes())
        };
        let is_known = |path: &&PathBuf| {
            let text = path.to_string_lossy();
            // Files that memtrace writes: the cache of unwind tables, and reports, which have no name at first (O_TMPFILE).
            let is_own =
                text.contains("/.cache/memtrace/") || text.contains("/memtrace-scratch-") && text.contains("/#");
            // Executables of programs that run at the same time as the test.
            let is_executable = fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0);
            is_own
                || is_executable
                || text.starts_with("/tmp/perf-")
                || SYSTEM.iter().any(|system| text.starts_with(system))
        };
        assert!(opened.by_program.iter().any(|path| is_program(&path)), "the opens were not observed: {opened:?}");
        let others: Vec<_> = opened.by_program.iter().filter(|path| !is_program(path) && !is_known(path)).collect();
        assert!(others.is_empty(), "memtrace has opened {others:?}");
        // Other processes do not open these files.
        let forbidden = [self.secret.as_path(), self.fifo.as_path(), Path::new("/dev/zero")];
        let forbidden = opened.by_ended.iter().find(|path| forbidden.contains(&path.as_path()));
        assert_eq!(forbidden, None, "a process has opened it, perhaps one of memtrace");
    }

    /// Returns a path that leads to a forbidden file, or to an endless device.
    fn path(&self, random: &mut Random) -> Vec<u8> {
        let absolute = |path: &Path| path.as_os_str().as_bytes().to_vec();
        match random.below(5) {
            0 => absolute(&self.secret),
            1 => absolute(&self.fifo),
            2 => [b"../../../../../..".as_slice(), &absolute(&self.secret)].concat(),
            3 => b"/dev/zero".to_vec(),
            _ => b"fifo".to_vec(),
        }
    }
}

/// Reads the little-endian number of `N` bytes at `offset`.
fn number<const N: usize>(file: &[u8], offset: usize) -> usize {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&file[offset..offset + N]);
    usize::try_from(u64::from_le_bytes(bytes)).expect("an offset in the file")
}

/// Returns the end of the loaded parts of an ELF file of 64 bits.
fn end_of_loaded(file: &[u8]) -> usize {
    const PT_LOAD: usize = 1;
    let (table, count) = (number::<8>(file, 32), number::<2>(file, 56));
    let headers = (0..count).map(|index| table + 56 * index);
    let loaded = headers.filter(|&header| number::<4>(file, header) == PT_LOAD);
    loaded.map(|header| number::<8>(file, header + 8) + number::<8>(file, header + 32)).max().expect("a loaded part")
}

/// Damages the parts of a program that are not loaded.
fn damage(file: &mut Vec<u8>, random: &mut Random) {
    const EXTREMES: [u64; 6] = [0, 1, 0xff, 1 << 31, 1 << 63, u64::MAX];
    let (loaded, sections) = (end_of_loaded(file), number::<8>(file, 40));
    match random.below(4) {
        0 => {
            for _ in 0..=random.below(64) {
                let at = loaded + random.below(file.len() - loaded);
                file[at] = random.number() as u8;
            }
        }
        1 => {
            for _ in 0..=random.below(16) {
                let at = sections + 8 * random.below((file.len() - sections) / 8);
                let value = if random.below(2) == 0 { EXTREMES[random.below(EXTREMES.len())] } else { random.number() };
                file[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        2 => file.truncate(loaded + random.below(file.len() - loaded)),
        // Offset, size and number of the section headers, and the index of their names.
        _ => {
            let fields: [(usize, usize); 4] = [(40, 8), (58, 2), (60, 2), (62, 2)];
            let (at, length) = fields[random.below(fields.len())];
            file[at..at + length].copy_from_slice(&random.number().to_le_bytes()[..length]);
        }
    }
}

/// Creates a damaged copy of a program.
fn damaged(scratch: &Scratch, forbidden: &Forbidden, random: &mut Random, nth: usize) -> PathBuf {
    let path = scratch.copy(victim::path("steady"), &format!("{NAME}{nth}"));
    match random.below(4) {
        0 => add_section(&path, ".gnu_debugaltlink", &[forbidden.path(random), vec![0], vec![7; 20]].concat()),
        1 => {
            let sections = ["--strip-debug", "--remove-section=.note.gnu.build-id"];
            memtrace_tests::process::run(Command::new("objcopy").args(sections).arg(&path));
            add_section(&path, ".gnu_debuglink", &debug_link(&forbidden.path(random)));
        }
        _ => {}
    }
    let mut file = fs::read(&path).expect("it was copied");
    damage(&mut file, random);
    fs::write(&path, file).expect("the scratch directory is writable");
    chown(&path, Some(USER), None).expect("the test runs as root");
    path
}

/// A running program, its perf map and its executable.
struct Hostile {
    victim: Victim,
    map: Left,
    program: Left,
}

/// A file that is removed when this value is dropped, even if a test fails: another process can get the same pid.
struct Left(PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Counts of a program that has ended.
struct Ended {
    pid: u32,
    totals: VictimTotals,
    program: Left,
}

impl Hostile {
    /// Starts a damaged program. At random, gives the program its own mount namespace, creates a perf map for it, and removes
    /// its executable or replaces the executable with a symbolic link.
    fn start(program: &Path, forbidden: &Forbidden, random: &mut Random) -> Self {
        const IN_MOUNTS: &str =
            "mount -t tmpfs none /usr/lib/debug && mkfifo /usr/lib/debug/mt-hostile && exec \"$0\" 40";
        let mut command = match random.below(4) {
            0 => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--mount", "sh", "-c", IN_MOUNTS]).arg(program);
                command
            }
            _ => {
                let mut command = Command::new(program);
                command.arg("40");
                command
            }
        };
        let victim = Victim::start(command.uid(USER).gid(USER));
        let map = PathBuf::from(format!("/tmp/perf-{}.map", victim.pid()));
        match random.below(6) {
            0 => symlink(&forbidden.secret, &map).expect("the name is new"),
            1 => symlink(&forbidden.fifo, &map).expect("the name is new"),
            2 => fs::write(&map, vec![b'f'; 1 << random.below(20)]).expect("the name is new"),
            3 => fs::File::create(&map).and_then(|file| file.set_len(1 << 40)).expect("the name is new"),
            _ => {}
        }
        // A perf map must belong to the user of its process. Some programs have no perf map.
        let _ = lchown(&map, Some(USER), Some(USER));
        match random.below(4) {
            0 => fs::remove_file(program).expect("the program exists"),
            // The search for libraries follows links in the root directory of the program, as the dynamic loader does. So it
            // would open a link to the forbidden file there.
            1 => {
                fs::remove_file(program).expect("the program exists");
                symlink(&forbidden.fifo, program).expect("the name is free");
            }
            _ => {}
        }
        Self { victim, map: Left(map), program: Left(program.to_owned()) }
    }

    /// Lets the program do its work and end.
    fn finish(mut self) -> Ended {
        let (pid, totals) = (self.victim.pid(), self.victim.work());
        // A line would start a further step; the end of its input ends the victim.
        assert!(self.victim.process().wait().success());
        drop(self.map);
        Ended { pid, totals, program: self.program }
    }
}

/// Sets a flag when it is dropped, even if a test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `work` while a thread changes the lengths of the executables of ended programs at random.
fn while_truncating<T>(ended: &[Ended], work: impl FnOnce() -> T) -> T {
    let lengths = fs::metadata(victim::path("steady")).expect("it exists").len() as usize;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(42);
            while !is_done.load(Ordering::Relaxed) {
                let Left(program) = &ended[random.below(ended.len())].program;
                // Some executables were removed, and some are links to a pipe.
                let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(program);
                let _ = file.and_then(|file| file.set_len(random.below(lengths) as u64));
                // Let memtrace run.
                thread::sleep(Duration::from_micros(200));
            }
        });
        let _done = Done(&is_done);
        work()
    })
}

/// Ends the trace. Asserts that memtrace has kept its limits, and that the totals of the ended programs are exact.
fn end(mut tracer: Tracer, ended: &[Ended]) {
    let status = fs::read_to_string(format!("/proc/{}/status", tracer.process().pid())).expect("memtrace runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a field");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak <= MEMORY, "memtrace had {peak} KiB");
    let start = Instant::now();
    let report = while_truncating(ended, || tracer.stop().report());
    let time = start.elapsed();
    assert!(time < END, "the report took {time:?}");
    report.assert_nothing_lost();
    ended.iter().for_each(|program| assert_exact(&report, program.pid, &program.totals));
}

/// Starts memtrace in `group`.
fn start_in(group: &MemoryCgroup, trace: Trace) -> Tracer {
    trace.wrapped_in(&group.enter().each_ref().map(String::as_str)).start()
}

fn assert_exact(report: &Report, pid: u32, expected: &VictimTotals) {
    let of_program = |process: &&&memtrace_tests::report::ProcessReport| process.totals.alloc_count != 0;
    let entries = report.entries_of(pid);
    let with_blocks: Vec<_> = entries.iter().filter(of_program).collect();
    // A program in a mount namespace of its own was a shell first.
    let last = with_blocks.last().unwrap_or_else(|| panic!("{pid} was not traced: {entries:?}"));
    last.assert_equals(expected);
}

#[test]
fn damaged_programs_of_a_user_cost_a_trace_of_the_machine_their_names_only() {
    let scratch = Scratch::new();
    let forbidden = Forbidden::new(&scratch);
    let mut random = Random::new(40);
    // The copies are made before the trace: processes that make copies would use memtrace's memory for ended processes.
    let programs: Vec<_> = (0..PROGRAMS).map(|nth| damaged(&scratch, &forbidden, &mut random, nth)).collect();
    let group = MemoryCgroup::with_memory(GROUP);
    let tracer = start_in(&group, Trace::system_wide().options(&["--keep-ended", "100000"]));
    let mut all = Vec::new();
    for programs in programs.chunks(TOGETHER) {
        let start = |program: &PathBuf| Hostile::start(program, &forbidden, &mut random);
        let running: Vec<_> = programs.iter().map(start).collect();
        all.extend(running.into_iter().map(Hostile::finish));
    }
    end(tracer, &all);
    forbidden.assert_not_opened();
}

#[test]
fn damaged_programs_cost_a_trace_by_pid_their_names_only() {
    let scratch = Scratch::new();
    let forbidden = Forbidden::new(&scratch);
    let mut random = Random::new(41);
    for first in (0..PROGRAMS).step_by(TOGETHER) {
        let mut start = |nth| {
            let program = damaged(&scratch, &forbidden, &mut random, nth);
            Hostile::start(&program, &forbidden, &mut random)
        };
        let running: Vec<_> = (first..first + TOGETHER).map(&mut start).collect();
        let pids: Vec<_> = running.iter().map(|program| program.victim.pid()).collect();
        let group = MemoryCgroup::with_memory(GROUP);
        let tracer = start_in(&group, Trace::pids(&pids));
        let all: Vec<_> = running.into_iter().map(Hostile::finish).collect();
        end(tracer, &all);
    }
    forbidden.assert_not_opened();
}
