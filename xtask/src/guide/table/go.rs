//! A Go service that keeps sessions, and has freed large buffers.

use crate::guide::sample::{Part, Sample, Until};
use crate::guide::scenario::{Scenario, Step};

/// The service waits for requests, so its heap does not change. The idle memory is less than the next collection may use, so the
/// runtime keeps it.
pub(super) const GO: Scenario = Scenario {
    name: "go",
    steps: &[
        Step::File {
            name: "sessions.go",
            text: r#"package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
)

type session struct {
	user string
	data []byte
}

var sessions = map[int]*session{}

func remember(number int) {
	data := bytes.Repeat([]byte("item "), 200)
	sessions[number] = &session{fmt.Sprint("user ", number), data}
}

func report() int {
	total := 0
	for part := 0; part < 24; part++ {
		page := make([]byte, 1<<20)
		for at := range page {
			page[at] = byte(at)
		}
		total += len(page)
		defer runtime.KeepAlive(page)
	}
	return total
}

func main() {
	for number := 0; number < 50000; number++ {
		remember(number)
	}
	size := report()
	runtime.GC()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("ready", size)
	panic(http.Serve(listener, nil))
}
"#,
        },
        Step::Prepare("GOCACHE=$PWD/cache go build -o sessions sessions.go"),
        Step::Start {
            name: "service",
            variable: "PID",
            command: "exec ./sessions",
            ready: "grep -q ready service.log",
        },
        Step::Run { name: "explain", command: "sudo memtrace explain --pid $PID" },
    ],
    samples: &[Sample::new(
        "explain-go",
        &[Part::Lines { of: "explain", from: "RESIDENT", until: Until::Line("Other anonymous") }],
    )
    .varying(&["The RSS went", "control group"])],
    pictures: &[],
    cleanup: "",
};

/// The service remembers a session for each request, and answers with a buffer that it forgets.
pub(super) const GROWTH: Scenario = Scenario {
    name: "go-growth",
    steps: &[
        Step::File {
            name: "shop.go",
            text: r#"package main

import (
	"fmt"
	_ "net/http/pprof"
	"time"
)

type session struct {
	user string
	page []byte
}

var sessions = map[int]*session{}

var answer []byte

func remember(number int) {
	sessions[number] = &session{fmt.Sprint("user ", number), make([]byte, 8000)}
}

func handle(number int) {
	remember(number)
	answer = make([]byte, 30000)
}

func main() {
	fmt.Println("ready")
	for number := 0; ; number++ {
		handle(number)
		time.Sleep(time.Millisecond)
	}
}
"#,
        },
        Step::Prepare("GOCACHE=$PWD/cache go build -o shop shop.go"),
        Step::Start { name: "service", variable: "PID", command: "exec ./shop", ready: "grep -q ready service.log" },
        Step::Run { name: "trace", command: "sudo memtrace --pid $PID -d 10s" },
        Step::Run { name: "record", command: "sudo memtrace record --pid $PID -d 20s -o run.memtrace" },
        Step::Run { name: "diff", command: "memtrace diff run.memtrace@+10s run.memtrace" },
        Step::Run { name: "doctor", command: "sudo memtrace doctor --pid $PID" },
    ],
    samples: &[
        Sample::new(
            "go-trace",
            &[
                Part::Lines { of: "trace", from: "live", until: Until::Line("Top") },
                Part::Lines { of: "trace", from: "1. ", until: Until::Blank },
            ],
        )
        .frames(4)
        .varying(&["steady growth", "irregular", "single growth", "churn"]),
        Sample::new("go-diff", &[Part::Lines { of: "diff", from: "1. +", until: Until::Blank }]).frames(4),
        Sample::new("go-doctor", &[Part::Matching { of: "doctor", texts: &["ok    Go "] }]),
    ],
    pictures: &[],
    cleanup: "",
};
