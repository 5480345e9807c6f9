//! Tests of the picture.

use super::*;
use crate::model::{ThreadTimeline, TimelineBuilder};

/// Amounts that change from interval to interval in a reproducible way.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A server with `threads` threads that grows, with events and a gap.
fn server(threads: u32, intervals: u64, seconds: u64) -> ThreadTimeline {
    let mut builder = TimelineBuilder::new(String::from("memtrace threads: server (7)"), Some(0));
    let mut noise = Noise(7);
    for at in 0..intervals {
        if (intervals / 2..intervals / 2 + intervals / 20).contains(&at) {
            continue;
        }
        let mut all = Vec::new();
        for id in 0..threads {
            // One thread ends, another one starts late.
            if id == 3 && at > intervals * 2 / 3 || id == 5 && at < intervals / 3 {
                continue;
            }
            let alloc = (noise.below(40) + 10 + u64::from(id == 1) * at * 3) << 16;
            let free = if id % 4 == 1 {
                alloc / 2
            } else if id % 4 == 2 {
                alloc + (1 << 17)
            } else {
                alloc - alloc / 9
            };
            let name = if id == 2 { HOSTILE.to_owned() } else { format!("worker-{id}") };
            let busy = (noise.below(80) + 10) * 10_000_000 * seconds / u64::from(id / 3 + 1);
            let values =
                [(UsageCounter::AllocBytes, alloc), (UsageCounter::FreeBytes, free), (UsageCounter::UserTime, busy)];
            let mut thread = thread(7 + id, &name, &values);
            thread.thread.start_ns = if id == 5 { intervals / 3 * seconds * 1_000_000_000 } else { 0 };
            all.push(thread);
        }
        let mut process = process(CounterSource::Bpf, all);
        let rss = [(200 << 20) + (at << 20), (40 << 20) + (noise.below(9) << 20), 8 << 20, (at / 9) << 20];
        for (value, number) in ProcessValue::ALL.into_iter().zip(rss) {
            process.values.set(value, Some(number));
        }
        let event = |kind| MonitorEvent { at: Duration::from_secs(seconds * at), kind };
        let events = match at * 10 / intervals {
            1 if at * 10 % intervals < 10 => vec![event(MonitorEventKind::Mark(String::from("load test <begins>")))],
            6 if at * 10 % intervals < 10 => {
                let trigger = MonitorEventKind::Trigger(String::from("rss > 300 MiB: 301 MiB of server (7)"));
                vec![event(trigger), event(MonitorEventKind::Exit(Pid(99)))]
            }
            9 if at * 10 % intervals < 10 => vec![event(MonitorEventKind::OomKill(Pid(7)))],
            _ => Vec::new(),
        };
        let span = Duration::from_secs(seconds * at)..Duration::from_secs(seconds * (at + 1));
        builder.add(&MonitorInterval { span, processes: vec![process], events, ..MonitorInterval::default() });
    }
    builder.finish()
}

#[test]
fn dump() {
    for (name, timeline) in
        [("a", server(20, 120, 1)), ("b", server(4, 10, 1)), ("c", server(40, 7000, 10)), ("e", server(1, 2, 1))]
    {
        let svg = written(|out| write_svg(&timeline, out));
        std::fs::write(format!("/tmp/t-{name}.svg"), svg).unwrap();
    }
}
