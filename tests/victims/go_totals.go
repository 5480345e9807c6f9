// Prints totals of its runtime (runtime.MemStats) as JSON after each line that it reads. An empty line ends the program. A
// command allocates nothing, so two readings of an idle program are equal.
//
// Argument: "idle", or "busy": two goroutines then allocate and drop blocks all the time.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
)

// Sizes of blocks in bytes. The last one is a large object, which has a span of its own.
var sizes = [...]int{96, 1024, 4096, 16384, 65536}

// Live blocks of each busy goroutine: 32 MiB. Each slot always has a block of the same size.
const slots = 385 * len(sizes)

var busyBlocks [2][slots][]byte

// Live blocks of an idle program.
var blocks [][]byte

var stats runtime.MemStats
var input [64]byte
var line = make([]byte, 0, 1024)

// Allocates blocks, frees every other one of each size, and collects. No collection runs afterwards.
func prepare() {
	for i := 0; i < 400; i++ {
		for _, size := range sizes {
			blocks = append(blocks, make([]byte, size))
		}
	}
	for i := 0; i < 2*len(sizes); i++ {
		blocks = append(blocks, make([]byte, 3<<20+1))
	}
	runtime.GC()
	for i := range blocks {
		if i/len(sizes)%2 == 0 {
			blocks[i] = nil
		}
	}
	runtime.GC()
	runtime.GC()
	debug.SetGCPercent(-1)
}

// Replaces its blocks one after the other. Sends a value when all slots have a block. The writes to a block make the changes of
// the totals slow in comparison to the readings of a test, and keep the collector ahead of the goroutine.
func replace(blocks *[slots][]byte, full chan<- bool) {
	for i := 0; ; i++ {
		slot := i % slots
		block := make([]byte, sizes[slot%len(sizes)])
		for pass := 0; pass < 8; pass++ {
			for j := range block {
				block[j] += byte(i)
			}
		}
		blocks[slot] = block
		if i == slots {
			full <- true
		}
	}
}

func appendNumber(name string, value uint64) {
	if len(line) > 1 {
		line = append(line, ',')
	}
	line = append(line, '"')
	line = append(line, name...)
	line = append(line, "\":"...)
	line = strconv.AppendUint(line, value, 10)
}

func printStats() {
	runtime.ReadMemStats(&stats)
	line = append(line[:0], '{')
	appendNumber("HeapAlloc", stats.HeapAlloc)
	appendNumber("HeapInuse", stats.HeapInuse)
	appendNumber("HeapIdle", stats.HeapIdle)
	appendNumber("HeapReleased", stats.HeapReleased)
	appendNumber("HeapSys", stats.HeapSys)
	appendNumber("StackInuse", stats.StackInuse)
	appendNumber("StackSys", stats.StackSys)
	appendNumber("MSpanSys", stats.MSpanSys)
	appendNumber("MCacheSys", stats.MCacheSys)
	appendNumber("BuckHashSys", stats.BuckHashSys)
	appendNumber("GCSys", stats.GCSys)
	appendNumber("OtherSys", stats.OtherSys)
	appendNumber("Sys", stats.Sys)
	appendNumber("NumGC", uint64(stats.NumGC))
	line = append(line, "}\n"...)
	// A write of less than PIPE_BUF bytes is complete (pipe(7)).
	if length, _ := syscall.Write(1, line); length != len(line) {
		os.Exit(1)
	}
}

// Reads a line, and returns true if it is not empty. The caller writes a line at once, and the next one after the answer.
func readCommand() bool {
	for {
		length, err := syscall.Read(0, input[:])
		if err != syscall.EINTR {
			return length > 1
		}
	}
}

func main() {
	// The tables of the profile are one of the totals.
	runtime.MemProfileRate = 4096
	// Commands do not wait for a busy goroutine, and no change of the machine changes the number.
	runtime.GOMAXPROCS(4)
	if os.Args[1] == "busy" {
		debug.SetGCPercent(20)
		full := make(chan bool)
		for i := range busyBlocks {
			go replace(&busyBlocks[i], full)
		}
		for range busyBlocks {
			<-full
		}
	} else {
		prepare()
	}
	os.Stdout.WriteString("ready " + strconv.Itoa(os.Getpid()) + "\n")
	for readCommand() {
		printStats()
	}
	runtime.KeepAlive(blocks)
}
