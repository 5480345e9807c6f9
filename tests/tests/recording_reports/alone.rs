//! Tests with tracepoints of the whole machine: the kernel can skip BPF programs while programs of another trace run.

use super::*;

#[test]
fn recordings_of_other_events_and_parts_equal_the_runs() {
    let scratch = Scratch::new();
    for options in [
        &["--by", "allocator"][..],
        &["--events", "fault"],
        &["--events", "fault", "--by", "memory"],
        &["--events", "map"],
    ] {
        let recording = scratch.join(format!("{}.memtrace", options.join("")));
        let script = "for i in 1 2 3; do ls -l /usr/bin > /dev/null; done; true | sleep 0.5";
        let trace = Trace::command(["sh", "-c", script]).option("--record").option(&recording);
        let run = trace.options(&["-i", "100ms"]).options(options).run().report();
        assert!(run.totals.alloc_count > 0, "{options:?}");
        assert_equal(run, recording_report::read(&recording, &[]));
    }
}
