//! A hand-written profile of several processes of a host with users, services and containers, also by thread and by
//! allocator.

use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AllocatorId, Amount, BlockHistograms, Bytes, Cgroup, Container, Frame, FrameId, ImageEnd, LiveChanges, Name, Part,
    Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts, StackEnd, StackProfile, Tid, Untraced,
    UntracedProcess, UntracedReason, User,
};

const ID: &str = "3f4b8e1c9d7a65200f1e2d3c4b5a69788796a5b4c3d2e1f00123456789abcdef";
const POD: &str = "2f3c9a1b-7d4e-4c55-9b8a-0123456789ab";
const DURATION: Duration = Duration::from_secs(60);

/// Returns a profile of seven images of six processes, with two stacks each.
pub(crate) fn host() -> Profile {
    let redis = service("redis-server.service");
    let pod = Cgroup {
        path: format!("/kubepods/burstable/pod{POD}/{ID}"),
        unit: None,
        container: Some(Container { runtime: None, id: String::from(ID) }),
        pod: Some(String::from(POD)),
    };
    let docker = Cgroup {
        path: format!("/system.slice/docker-{ID}.scope"),
        unit: Some(format!("docker-{ID}.scope")),
        container: Some(Container { runtime: Some("docker"), id: String::from(ID) }),
        pod: None,
    };
    let session = Cgroup { path: String::from("/user.slice/user-1000.slice"), ..Cgroup::default() };
    let mut profile = Profile {
        run: RunFacts {
            duration: DURATION,
            allocators: [(1, "glibc (libc.so.6)"), (2, "jemalloc (libjemalloc.so.2)")]
                .map(|(id, name)| (AllocatorId(id), String::from(name)))
                .into(),
            untraced: untraced(),
            ..RunFacts::default()
        },
        frames: ["main", "serve", "parse"].map(frame).into(),
        ..Profile::default()
    };
    add(&mut profile, process(812, "redis-server", Some((107, "redis")), Some(redis.clone()), Some(5)), 1_288_490_189);
    add(&mut profile, process(4_194_301, "kube-apiserver", Some((0, "root")), Some(pod), Some(23)), 734_003_200);
    add(&mut profile, process(31_337, "postgres", Some((999, "")), Some(docker), Some(1)), 98_304);
    add(&mut profile, process(901, "cron", Some((0, "root")), Some(service("cron.service")), Some(1)), 512);
    let shell = ProcessProfile {
        ended: Some(ImageEnd::Exec),
        inherited_frees: 12,
        traced: Duration::from_millis(4),
        threads: None,
        ..process(52_000, "sh", Some((1000, "ann")), Some(session.clone()), None)
    };
    add(&mut profile, shell, 0);
    let grep = ProcessProfile {
        ended: Some(ImageEnd::Exit),
        traced: Duration::from_millis(7),
        ..process(52_000, "grep", Some((1000, "ann")), Some(session), None)
    };
    add(&mut profile, grep, 2_048);
    add(&mut profile, process(77, "agetty", None, None, None), 16);
    profile
}

/// Returns three untraced processes. One of them has no RSS, and a name that tries to break the
/// table.
fn untraced() -> Untraced {
    let process = |pid, comm: &str, reason, rss: Option<u64>| UntracedProcess {
        pid: Pid(pid),
        comm: comm.into(),
        exe: rss.map(|_| format!("/usr/bin/{comm}").into()),
        reason,
        rss: rss.map(Bytes),
    };
    Untraced::new(vec![
        process(2001, "steam", UntracedReason::Architecture, Some(150 << 20)),
        process(2002, "bad\n\u{1b}[2J", UntracedReason::Stripped, None),
        process(2000, "esbuild", UntracedReason::Go, Some(412 << 20)),
    ])
}

fn service(unit: &str) -> Cgroup {
    Cgroup { path: format!("/system.slice/{unit}"), unit: Some(String::from(unit)), ..Cgroup::default() }
}

fn frame(name: &str) -> Frame {
    Frame::new(Ok(Name(String::from(name))))
}

fn process(
    pid: u32,
    comm: &str,
    user: Option<(u32, &str)>,
    cgroup: Option<Cgroup>,
    threads: Option<u32>,
) -> ProcessProfile {
    let name = |name: &str| (!name.is_empty()).then(|| String::from(name));
    ProcessProfile {
        user: user.map(|(uid, user)| User { uid, name: name(user) }),
        cgroup: cgroup.map(Arc::new),
        threads,
        thread_names: [(Tid(pid + 1), String::from("io;thread"))].into(),
        traced: DURATION,
        ..ProcessProfile::new(Pid(pid), comm)
    }
}

/// Adds a process with `held` bytes, which are live or held at exit. Half of the bytes belong to its first stack.
fn add(profile: &mut Profile, mut process: ProcessProfile, held: u64) {
    let index = profile.processes.len();
    for (stack, held) in [(vec![0, 1], held / 2), (vec![0, 1, 2], held - held / 2)] {
        let held = Amount { bytes: Bytes(held), count: held.div_ceil(100) };
        let (live, exit) = if process.ended.is_none() { (held, Amount::default()) } else { (Amount::default(), held) };
        let free = Amount { bytes: Bytes(3000), count: 10 };
        let usage = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::ExitBytes, exit)
            .with_amount(Quantity::AllocBytes, held + free)
            .with_free(free);
        process.total += usage;
        profile.stacks.push(StackProfile {
            process: index,
            part: Part::WHOLE,
            frames: stack.into_iter().map(FrameId::new).collect(),
            end: StackEnd::Complete,
            label: None,
            usage,
            histograms: BlockHistograms::default(),
            live_changes: LiveChanges::default(),
        });
    }
    profile.processes.push(process);
}

/// Returns [`host`] after the end of every process.
pub(crate) fn all_ended() -> Profile {
    let mut profile = host();
    for process in &mut profile.processes {
        process.ended = process.ended.or(Some(ImageEnd::Exit));
    }
    let of_processes = profile.processes.iter_mut().map(|process| &mut process.total);
    for usage in of_processes.chain(profile.stacks.iter_mut().map(|stack| &mut stack.usage)) {
        let live = usage.live();
        usage.add_amount(Quantity::ExitBytes, live);
        usage.subtract_amount(Quantity::LiveBytes, live);
    }
    profile
}

/// Returns [`host`] with stacks by thread: one thread with a name, and one without.
pub(crate) fn by_threads() -> Profile {
    let mut profile = host();
    for (number, stack) in profile.stacks.iter_mut().enumerate() {
        let pid = profile.processes[stack.process].pid.0;
        stack.part = Part::WHOLE.with_thread(Tid(pid + 1 + number as u32 % 2));
    }
    profile
}

/// Returns [`host`] with stacks by allocator: two known allocators, and an unknown one.
pub(crate) fn by_allocators() -> Profile {
    let mut profile = host();
    for (number, stack) in profile.stacks.iter_mut().enumerate() {
        stack.part = Part::WHOLE.with_allocator(AllocatorId(number as u16 % 3));
    }
    profile
}
