//! Programs under load that check their own results, as targets of patches. Each prints `ok` after each round of its work, or ends.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::bytes_of_text::Text;
use crate::redis::{self, Redis};
use crate::scratch::Scratch;
use crate::{poll, process, victim};

/// jemalloc of Debian, for `LD_PRELOAD`.
pub const JEMALLOC: &str = "libjemalloc.so.2";

/// Script that builds and drops dicts of lists, and compares a checksum.
const PYTHON: &str = "
def work():
    table = {number: [number, str(number) * (number % 7), {'k': number}] for number in range(5000)}
    for number in range(0, 5000, 3):
        del table[number]
    return sum(len(text) + parts['k'] for _, text, parts in table.values())
expected = work()
while True:
    print('ok' if work() == expected else 'another checksum', flush=True)
";

/// The same in Perl.
const PERL: &str = r#"$| = 1;
sub work {
    my %table = map { $_ => "x" x ($_ % 300) } 1 .. 5000;
    delete $table{$_ * 3} for 1 .. 1000;
    my $sum = 0;
    $sum += length($table{$_}) * ($_ % 17) for keys %table;
    return $sum;
}
my $expected = work();
print work() == $expected ? "ok\n" : "another checksum\n" while 1;
"#;

/// The same in Lua.
const LUA: &str = "
local function work()
    local rows, sum = {}, 0
    for i = 1, 10000 do rows[i] = {i, tostring(i), x = i % 13} end
    for i = 1, 10000 do sum = sum + #rows[i][2] * rows[i].x end
    return sum
end
local expected = work()
while true do
    io.write(work() == expected and 'ok\\n' or 'another checksum\\n')
    io.flush()
end
";

/// Number of keys of redis-server that keep their values.
const KEYS: usize = 200;

/// Rounds and errors of a program.
#[derive(Debug, Default)]
struct Progress {
    rounds: AtomicU64,
    /// Lines other than `ok`.
    wrong: Mutex<Vec<String>>,
}

impl Progress {
    fn add(&self, line: &str) {
        if line == "ok" {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        } else {
            self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        }
    }

    /// Counts the lines of a stream until its end.
    fn read(self: Arc<Self>, stream: impl Read + Send + 'static) {
        thread::spawn(move || BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| self.add(&line)));
    }
}

/// A program of the zoo. Dropping this value ends it.
pub struct Target {
    name: &'static str,
    child: Child,
    progress: Arc<Progress>,
    /// Code before the first patch.
    text: Text,
    client: Option<Client>,
    _scratch: Option<Scratch>,
}

/// Thread that sends commands to redis-server, and checks the replies.
struct Client {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// Starts a program, and waits until it has finished a round.
    fn start(name: &'static str, command: &mut Command) -> Self {
        let mut target = Self::spawn(name, command.stdout(Stdio::piped()));
        let stdout = target.child.stdout.take().expect("standard output is piped");
        Arc::clone(&target.progress).read(stdout);
        target.assert_progress();
        target.text = Text::of(target.pid());
        target
    }

    fn spawn(name: &'static str, command: &mut Command) -> Self {
        // If the test is killed, each program ends when it writes its next line, or at the end of its input.
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let progress = Arc::<Progress>::default();
        let stderr = child.stderr.take().expect("standard error is piped");
        Arc::clone(&progress).read(stderr);
        Self { name, text: Text::default(), child, progress, client: None, _scratch: None }
    }

    /// Starts a victim of this crate.
    fn victim(name: &'static str, program: &str, arguments: &[&str], preloaded: Option<&str>) -> Self {
        let mut command = Command::new(victim::path(program));
        command.args(arguments).envs(preloaded.map(|library| ("LD_PRELOAD", library)));
        Self::start(name, &mut command)
    }

    /// Starts redis-server, with a client that checks its replies.
    fn redis() -> Self {
        let scratch = Scratch::new();
        let socket = redis::socket_in(&scratch);
        let words: Vec<OsString> = redis::command(&socket);
        let mut command = Command::new(&words[0]);
        let mut target = Self::spawn("redis-server", command.args(&words[1..]).stdout(Stdio::null()));
        let is_ending = Arc::new(AtomicBool::new(false));
        let (progress, ends) = (Arc::clone(&target.progress), Arc::clone(&is_ending));
        let thread = thread::spawn(move || load(&socket, &progress, &ends));
        target.client = Some(Client { is_ending, thread: Some(thread) });
        target._scratch = Some(scratch);
        target.assert_progress();
        target.text = Text::of(target.pid());
        target
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asserts that the program has made no error, and waits until it has finished a whole round from now on.
    ///
    /// # Panics
    ///
    /// If it has made an error, or has ended.
    pub fn assert_progress(&mut self) {
        // The round in progress may have begun earlier.
        let required = self.progress.rounds.load(Ordering::SeqCst) + 2;
        poll::until(|| {
            self.assert_right();
            match self.progress.rounds.load(Ordering::SeqCst) {
                rounds if rounds >= required => Ok(()),
                rounds => Err(format!("{} has finished {rounds} rounds, and not {required}", self.name)),
            }
        });
    }

    fn assert_right(&mut self) {
        let wrong = self.progress.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "{}: {wrong:?}", self.name);
        drop(wrong);
        let status = self.child.try_wait().expect("it is a child");
        assert!(status.is_none(), "{} has ended: {status:?}", self.name);
    }

    /// Asserts that the code is the same as before the first patch.
    ///
    /// # Panics
    ///
    /// If it differs.
    pub fn assert_restored(&self) {
        Text::of(self.pid()).assert_same(&self.text);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(client) = &mut self.client {
            client.is_ending.store(true, Ordering::SeqCst);
            if let Some(thread) = client.thread.take() {
                // Its panic is an error of the program, which the test has seen, or sees no more.
                let _ = thread.join();
            }
        }
        // A victim removes what would outlive it when its input ends.
        drop(self.child.stdin.take());
        if self.name != RESTARTS || !process::exits_within(&mut self.child, process::TIMEOUT) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Name of the victim that ends at the end of its input.
const RESTARTS: &str = "restarted system calls";

/// Sends commands to redis-server until `is_ending`. A reply that does not match is an error.
fn load(socket: &Path, progress: &Progress, is_ending: &AtomicBool) {
    let mut server = Redis::connect(socket);
    let value = |number: usize| "x".repeat(number * 13 % 700 + 1);
    let key = |number: usize| format!("kept:{number}");
    for number in 0..KEYS {
        server.send(&["SET", &key(number), &value(number)]);
    }
    for round in 0.. {
        if is_ending.load(Ordering::SeqCst) {
            return;
        }
        for number in 0..KEYS {
            let changed = format!("changed:{}", number * 7 % 50);
            server.send(&["SET", &changed, &value(number + round)]);
            server.send(&["HSET", "hash", &changed, &value(number)]);
            server.send(&["LPUSH", "list", &changed]);
            server.send(&["RPOP", "list"]);
            let replies = [server.send(&["GET", &changed]), server.send(&["GET", &key(number)])];
            if replies != [value(number + round), value(number)] {
                progress.add("a reply of redis-server is wrong");
                return;
            }
        }
        progress.add("ok");
    }
}

/// Returns a command that runs the interpreter `name` with a script, or `None` if it is not installed.
fn interpreter(name: &str, arguments: &[&str]) -> Option<Command> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found: PathBuf = std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.is_file())?;
    let mut command = Command::new(found);
    command.args(arguments);
    Some(command)
}

/// Returns a command that runs Python with malloc as the allocator of all objects.
fn python() -> Option<Command> {
    let mut command = interpreter("python3", &["-S", "-c", PYTHON])?;
    command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    Some(command)
}

/// Starts a victim with 16 threads, two of which are busy.
#[must_use]
pub fn with_threads() -> Target {
    Target::victim("16 threads, glibc", "patch_threads", &["loop", "16", "2"], None)
}

/// Starts a victim that allocates by jemalloc.
#[must_use]
pub fn with_jemalloc() -> Target {
    Target::victim("one thread, jemalloc", "patch_steps", &["loop"], Some(JEMALLOC))
}

/// Starts a victim with threads in system calls. A stop is permitted to end them with EINTR: the tracer is killed.
#[must_use]
pub fn with_interruptions() -> Target {
    Target::victim(RESTARTS, "patch_restarts", &["loop", "interrupted"], None)
}

/// Starts victims with one and with 16 threads, jemalloc, signals, and failing reallocs.
#[must_use]
pub fn victims() -> Vec<Target> {
    vec![
        Target::victim("one thread, glibc", "patch_steps", &["loop"], None),
        with_jemalloc(),
        with_threads(),
        Target::victim("signals at 10 kHz", "patch_signals", &["loop"], None),
        Target::victim("failing reallocs, jemalloc", "patch_realloc", &["loop"], Some(JEMALLOC)),
    ]
}

/// Starts the victims of [`victims`], more of them, and the installed programs of others.
#[must_use]
pub fn all() -> Vec<Target> {
    let mut zoo = victims();
    zoo.extend([
        Target::victim("one busy thread of 200, glibc", "patch_threads", &["loop", "200", "1"], None),
        Target::victim("16 threads, jemalloc", "patch_threads", &["loop", "16", "2"], Some(JEMALLOC)),
        Target::victim("failing reallocs, glibc", "patch_realloc", &["loop"], None),
        Target::victim("forks and vforks", "patch_vfork", &["loop"], None),
        Target::victim(RESTARTS, "patch_restarts", &["loop"], None),
    ]);
    zoo.extend(python().map(|mut command| Target::start("python3", &mut command)));
    zoo.extend(interpreter("perl", &["-e", PERL]).map(|mut command| Target::start("perl", &mut command)));
    zoo.extend(interpreter("lua5.4", &["-e", LUA]).map(|mut command| Target::start("lua", &mut command)));
    zoo.extend(interpreter("redis-server", &[]).map(|_| Target::redis()));
    zoo
}

/// Returns the process IDs of the targets.
#[must_use]
pub fn pids(zoo: &[Target]) -> Vec<u32> {
    zoo.iter().map(Target::pid).collect()
}

/// Asserts that each target has made no error, and waits until each has finished a whole round.
///
/// # Panics
///
/// If a target has made an error, or has ended.
pub fn assert_progress(zoo: &mut [Target]) {
    zoo.iter_mut().for_each(Target::assert_progress);
}
