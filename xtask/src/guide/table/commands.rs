//! Commands that memtrace starts, and its errors.

use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Scenario, Step};

/// Inserts 100,000 rows, each by a statement, and counts them.
const ROWS: Step = Step::Prepare(
    "{ echo 'CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT); BEGIN;'; \
     seq 100000 | sed \"s/.*/INSERT INTO t VALUES (&, 'name &');/\"; echo 'COMMIT; SELECT count(*) FROM t;'; } > rows.sql",
);

/// Fills a table with an index.
const FILL: Step = Step::File {
    name: "fill.sql",
    text: "CREATE TABLE visits (id INTEGER PRIMARY KEY, name TEXT, page TEXT);\nCREATE INDEX by_name ON visits (name);\n\
           INSERT INTO visits WITH RECURSIVE row(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM row WHERE n < 50000)\n    \
           SELECT n, 'visitor ' || (n * 7919 % 50000), '/page/' || n FROM row;\n",
};

pub(super) const COMMANDS: Scenario = Scenario {
    name: "commands",
    steps: &[
        ROWS,
        FILL,
        Step::Run {
            name: "peak",
            command: "memtrace -m peak-bytes -o peak.svg --top 1 -- sqlite3 :memory: '.read rows.sql'",
        },
        Step::Run {
            name: "children",
            command: "memtrace --top 2 -- sh -c 'sqlite3 :memory: \".read rows.sql\"; python3 -c \"print(len([bytes(5000) for _ in range(9000)]))\"'",
        },
        Step::Run {
            name: "exit-code",
            command: "sudo memtrace -q --exit-code -- python3 -c 'raise SystemExit(3)'; echo \"exit code $?\"",
        },
        Step::Run {
            name: "lifetimes",
            command: "sudo memtrace --lifetimes --metric temporary --top 1 -o sqlite.json -- sqlite3 :memory: \".read fill.sql\"",
        },
        Step::Run { name: "histogram", command: "jq -c .histograms.lifetime_log2 sqlite.json" },
        Step::Run { name: "faults", command: "sudo memtrace faults --top 1 -- python3 -c 'bytearray(200 << 20)'" },
        Step::Run { name: "maps", command: "sudo memtrace maps --top 1 -- python3 -c 'bytearray(200 << 20)'" },
        Step::Run { name: "no-process", command: "sudo memtrace --pid 999999; echo \"exit code $?\"" },
        Step::Run { name: "bad-format", command: "sudo memtrace -o x.png -- true; echo \"exit code $?\"" },
        Step::Start {
            name: "sleep",
            variable: "PID",
            command: "exec sleep 100",
            ready: "grep -q sleep /proc/$PID/comm",
        },
        Step::Run {
            name: "full",
            command: "sudo memtrace --pid $PID -d 1s -q --format json -o /dev/full; echo \"exit code $?\"",
        },
        Step::Run { name: "doctor", command: "sudo memtrace doctor" },
    ],
    samples: &[
        Sample::new("peak", &[Part::Output("peak")]).frames(12).varying(&[
            "memtrace: warning",
            "memtrace: at",
            "Note: tracing",
        ]),
        Sample::new(
            "children",
            &[
                Part::Matching {
                    of: "children",
                    texts: &["attached", "100000", "9000", "memtrace: all", "memtrace: sh", "range(9000)"],
                },
                Part::Text(""),
                Part::Lines { of: "children", from: "at exit", until: Until::Line("Top") },
            ],
        )
        .width(118),
        Sample::new("exit-code", &[Part::Prompt("exit-code"), Part::Output("exit-code")]),
        Sample::new(
            "lifetimes",
            &[Part::Lines { of: "lifetimes", from: "memtrace: sqlite3", until: Until::Line("Nothing was") }],
        ),
        Sample::new("histogram", &[Part::Prompt("histogram"), Part::Output("histogram")]).varying(&["[[#"]),
        Sample::new(
            "faults-command",
            &[Part::Lines { of: "faults", from: "resident", until: Until::Line("Nothing was") }],
        )
        .frames(6),
        Sample::new("maps", &[Part::Lines { of: "maps", from: "mapped", until: Until::Line("Nothing was") }])
            .frames(12)
            .varying(&["Not traced"]),
        Sample::new("no-process", &[Part::Prompt("no-process"), Part::Output("no-process")]),
        Sample::new("bad-format", &[Part::Prompt("bad-format"), Part::Output("bad-format")]),
        Sample::new("full", &[Part::Prompt("full"), Part::Output("full")]),
        Sample::new("doctor", &[Part::Output("doctor")]).varying(&[
            "ok release",
            "info lockdown",
            "ok lockdown",
            "ok probes",
            "ok working sets",
            "info kernel.",
            "info namespace",
            "ok namespace",
            "warn namespace",
            "remedy:",
        ]),
    ],
    pictures: &[],
    cleanup: "",
};

/// Commands that allocate all the time.
pub(super) const COSTS: Scenario = Scenario {
    name: "costs",
    steps: &[
        Step::File {
            name: "texts.py",
            text: "import sys\nfor _ in range(int(sys.argv[1])):\n    [str(number) for number in range(1000)]\n",
        },
        Step::Run { name: "measured", command: "sudo memtrace -- env PYTHONMALLOC=malloc python3 texts.py 2000" },
        Step::Run {
            name: "limited",
            command: "sudo memtrace --max-overhead 100% -d 30s -- env PYTHONMALLOC=malloc python3 texts.py 8000",
        },
    ],
    samples: &[
        Sample::new("measured", &[Part::Matching { of: "measured", texts: &["memtrace: at", "memtrace: warning"] }]),
        Sample::new(
            "measured-note",
            &[Part::Lines { of: "measured", from: "Note: tracing", until: Until::Line("Cost:") }],
        ),
        Sample::new("limited", &[Part::Matching { of: "limited", texts: &["memtrace: to stay below"] }]),
    ],
    pictures: &[],
    cleanup: "",
};
