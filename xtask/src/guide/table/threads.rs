//! Small programs with tags, tasks, locks and queries.

use crate::guide::picture::{Picture, Source};
use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Golden, Scenario, Step};

/// A program with tags by the probes of `memtrace.h`. It reads its names before it uses them, so that their page is in memory.
pub(super) const TAGS: Scenario = Scenario {
    name: "tags",
    steps: &[
        Step::File {
            name: "app.c",
            text: r#"#include "memtrace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char net[] = "net", cache[] = "cache";
static void *blocks[60];

int main(void) {
    char name[16];
    if (strlen(net) + strlen(cache) != 8)
        return 1;
    for (int i = 0; i < 60; i++) {
        memtrace_tag_begin(net);
        blocks[i] = malloc(4000);
        memtrace_tag_end();
    }
    memtrace_tag_begin(cache);
    for (int i = 0; i < 60; i++)
        memtrace_claim(blocks[i]);
    blocks[0] = malloc(70000);
    memtrace_tag_end();
    for (int user = 0; user < 3; user++) {
        snprintf(name, sizeof name, "user %d", user);
        memtrace_tag_begin(name);
        for (int i = 0; i < 20; i++)
            blocks[i] = malloc(1000);
        memtrace_tag_end();
    }
    free(blocks[0]);
    return 0;
}
"#,
        },
        Step::Prepare("gcc -O0 -g -I \"$WORKSPACE/memtrace-probes/include\" -o app app.c"),
        Step::Run { name: "tags", command: "sudo memtrace --tag-from probes --top 8 -- ./app" },
    ],
    samples: &[Sample::new("probes-tags", &[Part::Lines { of: "tags", from: "Tags by", until: Until::Line("All") }])],
    pictures: &[],
    cleanup: "",
};

/// A function that sets tags, traced with a wrong key, and one that is never called.
pub(super) const TAG_FUNCTIONS: Scenario = Scenario {
    name: "tag-functions",
    steps: &[
        Step::File {
            name: "app.c",
            text: r#"#include <pthread.h>
#include <stdlib.h>

__attribute__((noinline)) void set_module(int module) {
    __asm__ volatile("" : : "r"(module));
}

int main(int argc, char **argv) {
    pthread_key_t keys[2];
    void *volatile block = malloc(100);
    for (int i = 0; i < 2; i++)
        pthread_key_create(&keys[i], NULL);
    for (int i = 0; i < 4000; i++)
        pthread_setspecific(keys[i % 2], argv);
    if (argc > 1)
        set_module(argc);
    free(block);
    return 0;
}
"#,
        },
        Step::Prepare("gcc -O1 -g -pthread -o app app.c"),
        Step::Run {
            name: "tags",
            command: "sudo memtrace --tag-from 'set=pthread_setspecific(id=arg1,if=arg0==7)' \
                      --tag-from 'set=set_module(id=arg0)' -- ./app",
        },
    ],
    samples: &[Sample::new("tag-functions", &[Part::Lines { of: "tags", from: "Tags:", until: Until::Line("Cost:") }])
        .varying(&["Note:"])],
    pictures: &[],
    cleanup: "",
};

/// Three threads with named tasks and a named lock.
pub(super) const NAMED_TASKS: Scenario = Scenario {
    name: "tasks",
    steps: &[
        Step::File {
            name: "app.c",
            text: r#"#define _GNU_SOURCE
#include "memtrace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *number) {
    char name[16];
    snprintf(name, sizeof name, "worker-%d", (int)(size_t)number);
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "request %d", i % 3);
        memtrace_task_begin(name);
        memtrace_task_begin("parse");
        char *text = malloc(20000);
        memset(text, i, 20000);
        memtrace_task_end();
        memtrace_lock_wait(&table, "table");
        pthread_mutex_lock(&table);
        memtrace_lock_acquire(&table);
        usleep(2000 + i % 3 * 1000);
        pthread_mutex_unlock(&table);
        memtrace_lock_release(&table);
        free(text);
        memtrace_event_number("queue length", 100 - i);
        memtrace_task_end();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    for (size_t number = 0; number < 3; number++)
        pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < 3; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
"#,
        },
        Step::Prepare("gcc -O1 -g -pthread -I \"$WORKSPACE/memtrace-probes/include\" -o app app.c"),
        Step::Run {
            name: "tasks",
            command: "sudo memtrace --span probes --min-wait 1ms --top 5 -o app.html -o app.json -o app.pftrace -- ./app",
        },
    ],
    samples: &[Sample::new(
        "tasks",
        &[
            Part::Prompt("tasks"),
            Part::Text(""),
            Part::Lines { of: "tasks", from: "Tasks and", until: Until::Line("WAITERS") },
        ],
    )],
    pictures: &[Picture {
        path: "docs/guide/lanes.png",
        source: Source::Page {
            url: "file://FOLDER/app.html",
            size: (1300, 790),
            // Only the lanes remain, with the details of a wait of the second worker.
            script: "for (const part of document.querySelectorAll('header, main > section')) { if (part.id !== 'lanes-section') \
                     { part.hidden = true; } } \
                     const lane = main.lanes.all.find((lane) => lane.thread.name === 'worker-1'); \
                     const waits = lane.items.filter((item) => item >= 0 && WAITS.includes(activity.spans[item][SPAN.kind])); \
                     main.lanes.select(lane, waits[1]); main.lanes.showDetails();",
        },
    }],
    cleanup: "",
};

/// Python programs: queries of SQLite, and threads with a lock.
pub(super) const PYTHON: Scenario = Scenario {
    name: "python",
    steps: &[
        Step::File {
            name: "queries.py",
            text: "import sqlite3\nbase = sqlite3.connect(':memory:')\n\
                   base.execute('create table t (k integer primary key, v text)')\nfor number in range(50):\n    \
                   base.execute('insert into t (v) values (?)', (str(number),))\n\
                   print(base.execute('select count(*), max(v) from t').fetchone()[0])\nbase.execute('drop table t')\n",
        },
        Step::File {
            name: "locks.py",
            text: "import threading, time\nlock = threading.Lock()\ndef work():\n    for _ in range(13):\n        with lock:\n            \
                   time.sleep(0.006)\nthreads = [threading.Thread(target=work) for _ in range(3)]\n\
                   for thread in threads:\n    thread.start()\nfor thread in threads:\n    thread.join()\n",
        },
        Step::Prepare("cp queries.py app.py"),
        Step::Run {
            name: "queries",
            command: "sudo memtrace --span '/lib/x86_64-linux-gnu/libsqlite3.so.0:sqlite3_prepare_v2(name=arg1)' -o run.json -- python3 app.py",
        },
        Step::Run {
            name: "slowest",
            command: r#"jq -r '.activity as $a | $a.spans | map([$a.span_fields, .] | transpose | map({(.[0]): .[1]}) | add) | sort_by(-.duration_ns) | .[:5][] | "\(.duration_ns / 1e3) µs \(.label)"' run.json"#,
        },
        Step::Prepare("cp locks.py app.py"),
        Step::Run {
            name: "locks",
            command: "sudo memtrace --min-wait 1ms --top 4 -o run.json -- /usr/bin/python3 app.py",
        },
    ],
    samples: &[
        // The queries are ordered by their durations.
        Sample::new("slowest", &[Part::Prompt("queries"), Part::Prompt("slowest"), Part::Output("slowest")])
            .varying(&["#"]),
        Sample::new(
            "python-locks",
            &[
                Part::Prompt("locks"),
                Part::Text(""),
                Part::Lines { of: "locks", from: "Locks by", until: Until::Line("WAITERS") },
            ],
        ),
        Sample::new("python-stack", &[Part::Lines { of: "locks", from: "Longest wait", until: Until::End }]).lines(7),
    ],
    pictures: &[],
    cleanup: "",
};

/// Two threads that wait for each other.
pub(super) const DEADLOCK: Scenario = Scenario {
    name: "deadlock",
    steps: &[
        Step::File {
            name: "server.c",
            text: r#"#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER, index_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_hold;

static void *write_rows(void *unused) {
    pthread_setname_np(pthread_self(), "writer");
    pthread_mutex_lock(&index_lock);
    pthread_barrier_wait(&both_hold);
    pthread_mutex_lock(&table);
    return unused;
}

static void *read_rows(void *unused) {
    pthread_setname_np(pthread_self(), "reader");
    pthread_mutex_lock(&table);
    pthread_barrier_wait(&both_hold);
    pthread_mutex_lock(&index_lock);
    return unused;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both_hold, NULL, 2);
    pthread_create(&threads[0], NULL, write_rows, NULL);
    pthread_create(&threads[1], NULL, read_rows, NULL);
    pthread_join(threads[0], NULL);
    return 0;
}
"#,
        },
        Step::Prepare("gcc -O1 -g -pthread -o server server.c"),
        Step::Start {
            name: "server",
            variable: "PID",
            command: "exec ./server",
            // All three threads wait in futex(2), on x86-64 or arm64.
            ready: "[ \"$(cat /proc/$PID/task/*/syscall | grep -Ec '^(202|98) ')\" = 3 ]",
        },
        Step::Run { name: "deadlock", command: "sudo memtrace --pid $PID --min-wait 10ms --duration 1s" },
        Step::Run {
            name: "typo",
            command: "sudo memtrace --pid $PID --span \"$PWD/server:write_row\"; echo \"exit code $?\"",
        },
    ],
    samples: &[
        Sample::new("deadlock", &[Part::Lines { of: "deadlock", from: "Deadlock:", until: Until::Blank }]),
        Sample::new("similar-function", &[Part::Matching { of: "typo", texts: &["memtrace: error", "tip:"] }]),
    ],
    pictures: &[],
    cleanup: "",
};

/// Losses cannot be forced twice alike.
pub(super) const LOST_SPANS: Golden = Golden {
    sample: Sample::new(
        "lost-spans",
        &[Part::Lines { of: "golden", from: "The end of 1 span", until: Until::Line("Outputs") }],
    ),
    path: "crates/report/tests/golden/activity.txt",
};
