//! SIGKILL of memtrace and of its patcher at random moments.

use std::thread;
use std::time::Duration;

use memtrace_tests::patch_zoo::{self, Target as ZooTarget};

use super::{FIRST, cycles_of};
use crate::patching::*;

/// Number of kills.
const KILLS: u64 = 1000;

/// Latest moment of a kill after the start of memtrace. By then, it has attached.
const LATEST: Duration = Duration::from_millis(800);

/// Number of kills after which the targets are compared.
const COMPARED: u64 = 20;

/// Reproducible pseudorandom delays (the generator of Numerical Recipes).
struct Moments(u32);

impl Moments {
    fn below(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        most.mul_f64(f64::from(self.0) / f64::from(u32::MAX))
    }
}

/// Returns true if the process is a patcher that runs.
fn is_patcher(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|arguments| arguments.starts_with(b"memtrace-patcher\0"))
}

/// Sends SIGKILL to a process, which may have ended.
fn kill_by_pid(pid: u32) {
    let pid = i32::try_from(pid).expect("a pid fits into pid_t");
    // SAFETY: kill has no conditions.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn targets_survive_sigkill_at_random_moments() {
    let mut zoo = patch_zoo::victims();
    zoo.push(patch_zoo::with_interruptions());
    let kills = cycles_of(KILLS);
    let (mut moments, mut of_memtrace, mut of_patcher, mut patched_after) = (Moments(1), 0_u64, 0_u64, 0_u64);
    for kill in 0..kills {
        let chosen = usize::try_from(kill).expect("a small number") % zoo.len();
        let pid = zoo[chosen].pid();
        let options = ["--sample-interval", "1MiB", "--allow-patching"];
        let trace = Trace::pids(&[pid]).options(&options).wrapped_in(FIRST);
        // In every fourth case, the kill is during the detach or after it.
        let mut tracer = if kill % 4 == 3 {
            let mut tracer = trace.start_without_waiting();
            if tracer.process().wait_for_stderr_line("attached") {
                tracer.process().signal(libc::SIGINT);
            }
            // The delay waits for nothing: the test kills memtrace at different moments.
            thread::sleep(moments.below(LATEST / 8));
            tracer
        } else {
            let tracer = trace.start_without_waiting();
            thread::sleep(moments.below(LATEST));
            tracer
        };
        let patcher = process::children(tracer.process().pid()).into_iter().find(|&child| is_patcher(child));
        if kill % 3 == 0 {
            if let Some(patcher) = patcher {
                kill_by_pid(patcher);
                of_patcher += 1;
            }
            // memtrace notices the end of its patcher, or traces until it is told to end.
            tracer.process().signal(libc::SIGINT);
            let _ = tracer.wait();
        } else {
            tracer.process().signal(libc::SIGKILL);
            of_memtrace += u64::from(tracer.wait().code.is_none());
        }
        // The patcher of a killed memtrace finishes its work.
        if let Some(patcher) = patcher {
            poll::until(|| if is_patcher(patcher) { Err(patcher) } else { Ok(()) });
        }
        wait_until_untraced(pid);
        patched_after += u64::from(!patches(pid).is_empty());
        if kill % COMPARED == 0 {
            patch_zoo::assert_progress(&mut zoo);
        }
        if kill % 2 == 0 {
            let output = detach(pid);
            assert!(output.status.success(), "kill {kill}: {}", text(&output.stderr));
            zoo[chosen].assert_restored();
        }
    }
    println!(
        "{of_memtrace} kills of memtrace, {of_patcher} of its patcher; a patch remained after {patched_after} of {kills}"
    );
    // In the other cases, it had already ended or not yet started.
    assert!(of_memtrace > kills / 2 && of_patcher > kills / 20, "{of_memtrace}, {of_patcher}");
    let options = ["--sample-interval", "4MiB", "--allow-patching"];
    let tracer = Trace::pids(&patch_zoo::pids(&zoo)).options(&options).start();
    patch_zoo::assert_progress(&mut zoo);
    tracer.stop().report().assert_consistent();
    zoo.iter().for_each(ZooTarget::assert_restored);
    patch_zoo::assert_progress(&mut zoo);
}
