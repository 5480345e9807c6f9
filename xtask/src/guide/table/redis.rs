//! redis-server, under load and recorded.

use crate::guide::picture::{Picture, Source};
use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Scenario, Step};

/// Client that uses the socket of the scenario, so that the commands of the scenario look like the commands that a reader types.
const CLIENT: Step = Step::File { name: "bin/redis-cli", text: "#!/bin/sh\nexec /usr/bin/redis-cli -s redis \"$@\"\n" };
const BENCHMARK: Step =
    Step::File { name: "bin/redis-benchmark", text: "#!/bin/sh\nexec /usr/bin/redis-benchmark -s redis \"$@\"\n" };
const EXECUTABLE: Step = Step::Prepare("chmod 755 bin/*");

const SERVER: Step = Step::Start {
    name: "server",
    variable: "PID",
    command: "exec redis-server --port 0 --save '' --appendonly no --unixsocket redis",
    ready: "redis-cli ping | grep -q PONG",
};

/// Starts of lines that occur or not, depending on the load of the machine.
const BY_LOAD: &[&str] = &["memtrace: loading", "memtrace: warning:", "Unmatched:", "A part of the live blocks"];

/// A server that gets keys and list entries.
pub(super) const LOADED: Scenario = Scenario {
    name: "redis",
    steps: &[
        CLIENT,
        BENCHMARK,
        EXECUTABLE,
        SERVER,
        Step::Start {
            name: "set",
            variable: "SET",
            command: "exec redis-benchmark -q -t set -n 1000000000 -r 1000000 -d 50 -c 20",
            ready: "[ \"$(redis-cli dbsize)\" -gt 1000 ]",
        },
        Step::Start {
            name: "lpush",
            variable: "LPUSH",
            command: "exec redis-benchmark -q -t lpush -n 1000000000 -d 50 -c 20",
            ready: "[ \"$(redis-cli llen mylist)\" -gt 1000 ]",
        },
        Step::Run { name: "attach", command: "sudo memtrace --pid $PID -d 10s --top 2" },
        Step::Run { name: "older", command: "sudo memtrace --pid $PID -d 8s --older 5s --top 1" },
        Step::Run { name: "count", command: "sudo memtrace --pid $PID -d 5s -m alloc-count --top 2" },
        Step::Run { name: "every", command: "sudo memtrace --pid $PID -d 6s --every 2s --top 2" },
        Step::Run { name: "accounts", command: "sudo memtrace accounts --pid $PID --by thread -d 6s" },
        Step::Start {
            name: "accounts-running",
            variable: "ACCOUNTS",
            command: "exec memtrace accounts --pid $PID --by thread -d 60s -q -o accounts.txt",
            ready: "grep -q ^attached accounts-running.log",
        },
        Step::Run { name: "reset", command: "sudo memtrace reset" },
        Step::Interrupt("accounts-running"),
        Step::Run { name: "events", command: "sudo memtrace --pid $PID -d 3s --events heap,map,fault -o memory.svg" },
        Step::Run { name: "faults", command: "sudo memtrace faults --pid $PID -d 5s --top 2" },
        Step::Run { name: "lossy", command: "sudo memtrace --pid $PID -d 3s --ring-size 4k --top 0 -o lossy.svg" },
        Step::Run { name: "by-allocator", command: "sudo memtrace --pid $PID -d 5s --by allocator --top 2" },
        Step::Run {
            name: "hook",
            command: "sudo memtrace --pid $PID -d 5s --by allocator --top 2 --hook 'alloc=zmalloc(size=arg0)->ret,free=zfree(arg0)'",
        },
        Step::Run {
            name: "budget",
            command: "sudo memtrace --pid $PID -d 5s --max-overhead 10%; echo \"exit code $?\"",
        },
        Step::Run { name: "doctor", command: "sudo memtrace doctor --pid $PID" },
        Step::Start {
            name: "functions",
            variable: "FUNCTIONS",
            command: "exec memtrace --pid $PID -d 8s --span /usr/bin/redis-server:call --span /usr/bin/redis-server:keysCommand \
                      --span /usr/bin/redis-server:evalCommand --span '/usr/bin/redis-server:_dictExpand(id=arg1)' \
                      --allocator-latency 1ms --top 4 -o run.html -o run.json",
            ready: "grep -q ^attached functions.log",
        },
        Step::Prepare("redis-cli keys 'key:00000*' > keys"),
        Step::Prepare("redis-cli eval \"for i = 1, 100000 do redis.call('SET', 'script:' .. i, i) end\" 0 > eval"),
        Step::Wait("functions"),
        Step::Run {
            name: "formats",
            command: "sudo memtrace --pid $PID -d 6s -i 500ms -o live.html -o live.json -o live.folded -o live.pb.gz \
                      -o live.speedscope.json -o live.heaptrack.zst",
        },
        Step::Run { name: "folded", command: "head -3 live.folded" },
        Step::Run { name: "json", command: "head -19 live.json" },
        Step::Run { name: "pprof", command: "go tool pprof -top -nodecount 6 live.pb.gz" },
        Step::Run { name: "heaptrack", command: "heaptrack_print live.heaptrack.zst | tail -6" },
        Step::Run {
            name: "largest",
            command: r#"jq -r '.frames as $f | .stacks[:5][] | "\(.live_bytes) \([.frames[] | $f[.] | .name // "\(.object)+\(.offset)"] | join(";"))"' live.json"#,
        },
        Step::Run { name: "explain", command: "sudo memtrace explain --pid $PID" },
        // The viewer reads a script with the profile, as its command does.
        Step::Prepare(
            "printf 'speedscope.loadFileFromBase64(\"live.speedscope.json\", \"%s\")' \"$(base64 -w0 live.speedscope.json)\" > profile.js",
        ),
        Step::Start {
            name: "pprof-server",
            variable: "PPROF",
            command: "exec go tool pprof -http=127.0.0.1:18123 -no_browser live.pb.gz",
            ready: "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:18123/ui/flamegraph\")'",
        },
    ],
    samples: &[
        Sample::new("attach", &[Part::Output("attach")]).frames(9).varying(BY_LOAD),
        Sample::new("older", &[Part::Lines { of: "older", from: "live", until: Until::Line("Nothing was lost") }])
            .frames(6)
            .varying(BY_LOAD),
        Sample::new("alloc-count", &[Part::Lines { of: "count", from: "Top", until: Until::Line("2. ") }]).frames(6),
        Sample::new("every", &[Part::First { of: "every", from: "0:0", count: 3 }]).width(118),
        Sample::new("totals", &[Part::Lines { of: "attach", from: "live", until: Until::Blank }]),
        Sample::new("rss", &[Part::Lines { of: "attach", from: "The RSS", until: Until::Blank }]).varying(BY_LOAD),
        Sample::new("losses", &[Part::Lines { of: "lossy", from: "Lost:", until: Until::Blank }]).lines(4),
        Sample::new(
            "accounts",
            &[Part::Prompt("accounts"), Part::Lines { of: "accounts", from: "0:0", until: Until::End }],
        )
        .lines(7)
        .varying(&["jemalloc_bg_thd", "bio_", "memtrace:", "note: tracing took"]),
        Sample::new("reset", &[Part::Prompt("reset"), Part::Matching { of: "reset", texts: &["new water marks"] }]),
        Sample::new("events", &[Part::Matching { of: "events", texts: &["attached", "memtrace: wrote"] }]),
        Sample::new("faults", &[Part::Lines { of: "faults", from: "resident", until: Until::Line("2. ") }])
            .frames(5)
            .varying(&["# of it has a stack"]),
        Sample::new(
            "by-allocator",
            &[Part::Lines { of: "by-allocator", from: "Allocators", until: Until::Line("Top ") }],
        ),
        Sample::new("hook", &[Part::Lines { of: "hook", from: "Allocators", until: Until::Line("Top ") }]),
        Sample::new("estimate", &[Part::Matching { of: "attach", texts: &["memtrace: at", "memtrace: warning"] }])
            .varying(BY_LOAD),
        Sample::new("budget", &[Part::Prompt("budget"), Part::Output("budget")])
            .varying(&["memtrace: loading", "memtrace: warning"]),
        Sample::new(
            "doctor-process",
            &[
                Part::First { of: "doctor", from: "ok    process", count: 15 },
                Part::Text("…"),
                Part::Lines { of: "doctor", from: "info  stripped", until: Until::End },
            ],
        )
        .width(114)
        .varying(&["info probe", "ok debug", "warn debug", "remedy:"]),
        Sample::new(
            "doctor-allocators",
            &[Part::Matching { of: "doctor", texts: &["ok    allocator", "info  allocator"] }],
        )
        .width(114),
        Sample::new(
            "functions",
            &[
                Part::Prompt("functions"),
                Part::Text(""),
                Part::Lines { of: "functions", from: "Tasks", until: Until::Line("Allocator") },
            ],
        ),
        Sample::new(
            "allocator-calls",
            &[Part::Lines { of: "functions", from: "Allocator calls", until: Until::Line("Top") }],
        )
        .lines(7),
        Sample::new("folded", &[Part::Output("folded")]).varying(&["redis-server (#)"]),
        Sample::new("json", &[Part::Output("json")]).width(118),
        Sample::new("largest", &[Part::Prompt("largest"), Part::Output("largest")]).lines(2).varying(&["#"]),
        Sample::new("pprof", &[Part::Prompt("pprof"), Part::Output("pprof")]).varying(&[
            "Build ID:",
            "Dropped",
            "flat",
        ]),
        Sample::new("heaptrack", &[Part::Prompt("heaptrack"), Part::Output("heaptrack")]),
        Sample::new(
            "explain-redis",
            &[Part::Lines { of: "explain", from: "memtrace: pid", until: Until::Line("Other anonymous") }],
        )
        .varying(&["The RSS went", "RSS #, of which"]),
    ],
    pictures: &[
        Picture {
            path: "docs/guide/page.png",
            source: Source::Page { url: "file://FOLDER/live.html", size: (1300, 1400), script: "" },
        },
        Picture {
            path: "docs/guide/pprof.png",
            source: Source::Page { url: "http://127.0.0.1:18123/ui/flamegraph", size: (1150, 920), script: "" },
        },
        Picture {
            path: "docs/guide/speedscope.png",
            source: Source::Page {
                url: "file://WORKSPACE/target/viewers/node_modules/speedscope/dist/release/index.html#localProfilePath=FOLDER/profile.js",
                size: (1300, 620),
                script: "",
            },
        },
    ],
    cleanup: "",
};

/// A server with many keys, of which clients read a part.
pub(super) const READ: Scenario = Scenario {
    name: "redis-read",
    steps: &[
        CLIENT,
        BENCHMARK,
        EXECUTABLE,
        SERVER,
        Step::Prepare("redis-benchmark -q -t set -n 400000 -r 300000 -d 600 -P 16 > filled"),
        Step::Start {
            name: "get",
            variable: "GET",
            command: "exec redis-benchmark -q -t get -n 1000000000 -r 100000 -c 10",
            ready: "[ \"$(redis-cli info stats | sed -n 's/^keyspace_hits:\\([0-9]*\\).*/\\1/p')\" -gt 1000 ]",
        },
        Step::Run { name: "wss", command: "sudo memtrace wss --pid $PID" },
        Step::Run { name: "profile", command: "sudo memtrace wss --pid $PID --profile 15 -o profile.svg" },
    ],
    samples: &[Sample::new("wss", &[Part::Prompt("wss"), Part::Lines { of: "wss", from: "TIME", until: Until::End }])
        .varying(&["memtrace:", "# are", "Last-level cache"])],
    pictures: &[Picture { path: "docs/working-set.svg", source: Source::Svg("profile.svg") }],
    cleanup: "",
};

/// A server that is recorded while a list is imported, and while a script adds keys all the time.
pub(super) const RECORDED: Scenario = Scenario {
    name: "redis-recorded",
    steps: &[
        CLIENT,
        BENCHMARK,
        EXECUTABLE,
        Step::File {
            name: "bin/add-keys",
            text: "#!/bin/sh\nturn=0\nwhile sleep 0.1; do\n    turn=$((turn + 1))\n    redis-cli eval \"for i = 1, 50 do redis.call('SET', \
                   'added:' .. ARGV[1] .. ':' .. i, string.rep('x', 100)) end\" 0 $turn || exit\ndone\n",
        },
        EXECUTABLE,
        SERVER,
        Step::Start {
            name: "trends",
            variable: "TRENDS",
            command: "exec memtrace record --pid $PID -d 20s -q -o run.memtrace",
            ready: "grep -q ^attached trends.log",
        },
        Step::Start {
            name: "adding",
            variable: "ADDING",
            command: "exec add-keys",
            ready: "[ \"$(redis-cli dbsize)\" -gt 500 ]",
        },
        Step::Prepare("redis-benchmark -q -t lpush -n 30000 -d 200 > import"),
        Step::Wait("trends"),
        Step::Run { name: "trends-report", command: "memtrace report --top 2 run.memtrace" },
        Step::Interrupt("adding"),
        Step::Prepare("redis-benchmark -q -t set -n 50000 -r 10000 -d 100 > filled"),
        Step::Start {
            name: "marked",
            variable: "MARKED",
            command: "exec memtrace record --pid $PID -o run.memtrace",
            ready: "grep -q ^attached marked.log",
        },
        Step::Run { name: "mark-before", command: "sudo memtrace mark 'before the import'" },
        Step::Run { name: "import", command: "redis-benchmark -t lpush -n 30000 -d 200 -q" },
        Step::Run {
            name: "delete",
            command: "redis-cli eval \"for i=0,9999 do redis.call('DEL', string.format('key:%012d', i)) end\" 0",
        },
        Step::Run { name: "mark-after", command: "sudo memtrace mark 'after the import'" },
        Step::Interrupt("marked"),
        Step::Run {
            name: "between",
            command: "memtrace report --between 'before the import' 'after the import' --top 1 run.memtrace",
        },
        Step::Run {
            name: "net-growth",
            command: "memtrace report --between 'before the import' 'after the import' --metric net-growth --top 1 run.memtrace",
        },
    ],
    samples: &[
        Sample::new(
            "trends",
            &[
                Part::Prompt("trends-report"),
                Part::Lines { of: "trends-report", from: "memtrace: pid", until: Until::Line("Nothing was") },
            ],
        )
        .frames(3)
        .varying(&["The RSS is"]),
        Sample::new(
            "marks",
            &[
                Part::Text("$ sudo memtrace record --pid $(pgrep -x redis-server) -o run.memtrace &"),
                Part::Prompt("mark-before"),
                Part::Matching { of: "mark-before", texts: &["before the import at"] },
                Part::Prompt("import"),
                Part::Prompt("delete"),
                Part::Prompt("mark-after"),
                Part::Matching { of: "mark-after", texts: &["after the import at"] },
            ],
        ),
        Sample::new(
            "between",
            &[
                Part::Prompt("between"),
                Part::Lines { of: "between", from: "memtrace: pid", until: Until::Line("Nothing was") },
            ],
        )
        .frames(5),
        Sample::new("net-growth", &[Part::Matching { of: "net-growth", texts: &["net growth"] }]),
    ],
    pictures: &[],
    cleanup: "",
};
