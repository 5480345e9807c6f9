//! The service in `demo/`.

use crate::guide::picture::{Picture, Source};
use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Scenario, Step};

pub(super) const DEMO: Scenario = Scenario {
    name: "demo",
    steps: &[
        Step::Prepare("cp \"$DEMO\" demo-service"),
        Step::Start {
            name: "service",
            variable: "PID",
            command: "exec ./demo-service --for 180s",
            ready: "grep -q '^ready pid' service.log",
        },
        Step::Run { name: "trace", command: "sudo memtrace --pid $PID -d 10s" },
        Step::Run { name: "record", command: "sudo memtrace record --pid $PID -d 20s -o run.memtrace" },
        Step::Run { name: "diff", command: "memtrace diff run.memtrace@+10s run.memtrace" },
        Step::Run { name: "accounts", command: "sudo memtrace accounts --pid $PID --by thread -d 3s" },
        Step::Run { name: "faults", command: "sudo memtrace faults --pid $PID -d 5s -o faults.svg" },
        Step::Start {
            name: "threads",
            variable: "THREADS",
            command: "exec memtrace threads --pid $PID -d 10s -q --record threads.memtrace",
            ready: "[ -e threads.memtrace ]",
        },
        Step::Wait("threads"),
        Step::Run { name: "threads-report", command: "memtrace report --view threads threads.memtrace" },
    ],
    samples: &[
        Sample::new(
            "readme-trace",
            &[
                Part::Lines { of: "trace", from: "live", until: Until::Blank },
                Part::Text(""),
                Part::Lines { of: "trace", from: "1. ", until: Until::Blank },
                Part::Matching { of: "trace", texts: &["Nothing was lost"] },
            ],
        )
        .frames(2),
        Sample::new("readme-diff", &[Part::First { of: "diff", from: "1. ", count: 2 }]),
        Sample::new("readme-accounts", &[Part::First { of: "accounts", from: "THREAD", count: 3 }]).varying(&[
            "demo-service",
            "prices",
            "worker-#",
        ]),
        Sample::new("readme-faults", &[Part::First { of: "faults", from: "1. ", count: 2 }]),
        Sample::new(
            "compare",
            &[
                Part::Lines { of: "diff", from: "Difference", until: Until::Line("2. ") },
                Part::Text(""),
                Part::Text("  …"),
                Part::Text(""),
                Part::First { of: "diff", from: "The one site", count: 1 },
                Part::Text(""),
                Part::Lines { of: "diff", from: "1. ±0 B", until: Until::Blank },
            ],
        )
        .varying(&["vanished", "shrunk", "new"]),
        Sample::new("threads", &[Part::Prompt("threads-report"), Part::Output("threads-report")]),
    ],
    pictures: &[Picture { path: "docs/demo.svg", source: Source::Svg("memtrace.svg") }],
    cleanup: "",
};
