//! Control groups, memory pressure, and a process with a large heap.

use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Scenario, Step};

/// Script that makes a control group of the memory controller. Its arguments are the path of the group and, optionally, the
/// limit. It writes the folder of the hierarchy to the file `groups`.
const GROUP: Step = Step::File {
    name: "bin/group",
    text: "#!/bin/sh\nif [ -d /sys/fs/cgroup/memory ]; then\n    top=/sys/fs/cgroup/memory limit=memory.limit_in_bytes\nelse\n    \
           top=/sys/fs/cgroup limit=memory.max\n    echo +memory > $top/cgroup.subtree_control\nfi\nmkdir -p \"$top/$1\" || exit\n\
           [ -z \"$2\" ] || echo \"$2\" > \"$top/$1/$limit\" || exit\necho $top > groups\n",
};

const EXECUTABLE: Step = Step::Prepare("chmod 755 bin/*");

/// A control group with less memory than its programs read.
pub(super) const RECLAIM: Scenario = Scenario {
    name: "reclaim",
    steps: &[
        GROUP,
        EXECUTABLE,
        Step::Prepare("group small 64M"),
        // The control group that reads a page first is charged for it.
        Step::Prepare("head -c 200M /dev/zero > big && sync big && dd if=big iflag=nocache count=0"),
        Step::File { name: "bin/read-again", text: "#!/bin/sh\nwhile sha1sum big > sum; do :; done\n" },
        EXECUTABLE,
        Step::Start {
            name: "reader",
            variable: "PID",
            command: "echo $$ > $(cat groups)/small/cgroup.procs && exec read-again",
            ready: "[ -s sum ]",
        },
        Step::Run { name: "reclaim", command: "sudo memtrace reclaim --all -d 10s --top 2" },
        Step::Interrupt("reader"),
        Step::Start {
            name: "oom",
            variable: "OOM",
            command: "exec memtrace reclaim --all -d 60s -q -o oom.txt",
            ready: "grep -q ^attached oom.log",
        },
        // The kernel kills the program. If there is swap, the program ends by itself.
        Step::Prepare(
            "sh -c 'echo $$ > $(cat groups)/small/cgroup.procs && exec python3 -c \"x = [chr(97) * (1 << 20) for _ in range(1000)]\"' || true",
        ),
        Step::Interrupt("oom"),
        Step::Run { name: "killed", command: "cat oom.txt" },
    ],
    samples: &[
        Sample::new("reclaim", &[Part::Lines { of: "reclaim", from: "stalled", until: Until::Line("2. ") }])
            .varying(&["Not reported", "A group without", "Tracepoints that", "Kernel threads", "By /proc/vmstat"]),
        Sample::new(
            "oom",
            &[
                Part::First { of: "killed", from: "Killed by", count: 1 },
                Part::Text(""),
                Part::Lines { of: "killed", from: "python3", until: Until::Blank },
            ],
        ),
    ],
    pictures: &[],
    cleanup: "rmdir $(cat groups)/small",
};

/// Short-lived processes, and one that holds memory.
pub(super) const SAMPLED: Scenario = Scenario {
    name: "sampled",
    steps: &[
        GROUP,
        Step::File {
            name: "bin/short-lived",
            text: "#!/bin/sh\nwhile python3 -S -c 'bytearray(8 << 20)' && ls -l /usr/bin > list; do :; done\n",
        },
        EXECUTABLE,
        Step::Prepare("group batch"),
        Step::Start {
            name: "loop",
            variable: "LOOP",
            command: "echo $$ > $(cat groups)/batch/cgroup.procs && exec short-lived",
            ready: "[ -s list ]",
        },
        Step::Start {
            name: "sampled",
            variable: "SAMPLED",
            command: "exec memtrace faults --cgroup batch --sample 16 -d 10s --top 1",
            ready: "grep -q ^attached sampled.log",
        },
        Step::Start {
            name: "holder",
            variable: "HOLDER",
            command: "echo $$ > $(cat groups)/batch/cgroup.procs && exec python3 -u -c \
                      \"import time; x = bytes(bytearray(90 << 20)); print('ready'); time.sleep(60)\"",
            ready: "grep -q ready holder.log",
        },
        Step::Wait("sampled"),
    ],
    samples: &[Sample::new(
        "sampled",
        &[Part::Lines { of: "sampled", from: "resident", until: Until::Line("Nothing was") }],
    )
    .frames(4)
    .varying(&["Not traced"])],
    pictures: &[],
    cleanup: "rmdir $(cat groups)/batch",
};

/// A control group with redis-server, and nginx in the group below it, while their clients run elsewhere.
pub(super) const SELECTION: Scenario = Scenario {
    name: "selection",
    steps: &[
        GROUP,
        Step::File {
            name: "bin/web-clients",
            text: "#!/bin/sh\nwhile ab -q -n 20000 -c 4 http://127.0.0.1:18089/ > web; do :; done\n",
        },
        EXECUTABLE,
        Step::File {
            name: "nginx.conf",
            text: "user www-data;\nworker_processes 2;\npid nginx.pid;\nerror_log stderr;\nevents { worker_connections 64; }\n\
                   http {\n    access_log off;\n    client_body_temp_path temp;\n    proxy_temp_path temp;\n    fastcgi_temp_path temp;\n    \
                   uwsgi_temp_path temp;\n    scgi_temp_path temp;\n    server { listen 127.0.0.1:18089; location / { return 200 \
                   \"hello\"; } }\n}\n",
        },
        Step::Prepare("group shop && mkdir -p $(cat groups)/shop/web"),
        Step::Start {
            name: "server",
            variable: "REDIS",
            command: "echo $$ > $(cat groups)/shop/cgroup.procs && \
                      exec redis-server --port 0 --save '' --appendonly no --unixsocket redis",
            ready: "redis-cli -s redis ping | grep -q PONG",
        },
        Step::Start {
            name: "nginx",
            variable: "NGINX",
            command: "echo $$ > $(cat groups)/shop/web/cgroup.procs && exec nginx -p \"$PWD\" -c nginx.conf -g 'daemon off;'",
            ready: "[ -s nginx.pid ]",
        },
        Step::Start {
            name: "set",
            variable: "SET",
            command: "exec redis-benchmark -s redis -q -t set -n 1000000000 -r 1000000 -d 50 -c 10",
            ready: "[ \"$(redis-cli -s redis dbsize)\" -gt 1000 ]",
        },
        Step::Start { name: "get", variable: "GET", command: "exec web-clients", ready: "[ -s web ]" },
        Step::Run { name: "all", command: "sudo memtrace --cgroup shop -d 5s --top 3" },
        Step::Run { name: "web", command: "sudo memtrace --cgroup shop/web -d 5s --metric alloc-bytes --top 1" },
        Step::Run { name: "users", command: "sudo memtrace --comm nginx --comm redis-server --by user -d 5s --top 2" },
    ],
    samples: &[
        Sample::new("selection", &[Part::Lines { of: "all", from: "memtrace: at", until: Until::Line("2. ") }])
            .frames(5)
            .varying(&[
                "memtrace: warning",
                "The RSS",
                "`memtrace explain",
                "A part of the live",
                // The largest site allocates the keys or, on a fast machine, the table with all keys.
                "#. # in #",
                "steady growth",
                "recent",
            ]),
        Sample::new("selection-web", &[Part::Lines { of: "web", from: "live", until: Until::Line("Nothing was") }])
            .frames(6)
            .varying(&["The RSS", "A part of the live"]),
        Sample::new("selection-users", &[Part::Lines { of: "users", from: "Users by", until: Until::Line("Top ") }]),
    ],
    pictures: &[],
    cleanup: "rmdir $(cat groups)/shop/web; rmdir $(cat groups)/shop",
};

/// sqlite3 with a table in memory, which waits for its input.
pub(super) const SQLITE: Scenario = Scenario {
    name: "sqlite",
    steps: &[
        Step::File {
            name: "held.sql",
            text: "CREATE TABLE visits (id INTEGER PRIMARY KEY, name TEXT);\nINSERT INTO visits WITH RECURSIVE row(n) AS (SELECT 1 \
                   UNION ALL SELECT n + 1 FROM row WHERE n < 100000)\n    SELECT n, printf('%0300d', n) FROM row;\n",
        },
        Step::Start {
            name: "sqlite",
            variable: "PID",
            command: "exec sqlite3 -batch -init held.sql :memory:",
            // A read of standard input, on x86-64 or arm64.
            ready: "grep -Eq '^(0|63) 0x0 ' /proc/$PID/syscall",
        },
        Step::Run { name: "explain", command: "sudo memtrace explain --pid $PID" },
    ],
    samples: &[
        Sample::new(
            "readme-explain",
            &[
                Part::Lines { of: "explain", from: "RESIDENT", until: Until::Line("other anonymous") },
                Part::Text("  …"),
                Part::First { of: "explain", from: "files", count: 1 },
                Part::First { of: "explain", from: "RSS  ", count: 1 },
            ],
        ),
        Sample::new("explain-sqlite", &[Part::Output("explain")]).varying(&["The RSS went", "control group"]),
    ],
    pictures: &[],
    cleanup: "",
};
