// Allocates blocks in functions that count them. Before its work and after it, the program collects garbage and writes Go's
// own profile of that moment. No collection runs at another time.
//
// Arguments: the sampling interval in bytes, a directory for the profiles, and optionally "exec" or "grow". With "exec", the
// program executes itself at its last barrier. With "grow", it works a second time, and writes a third profile.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"syscall"
)

// Live blocks by the function that has allocated them.
var live = map[string][][]byte{}

var temporaryBlock []byte

//go:noinline
func keep(function string, block []byte) {
	live[function] = append(live[function], block)
}

//go:noinline
func small() {
	keep("main.small", make([]byte, 1024))
}

//go:noinline
func large() {
	keep("main.large", make([]byte, 8192))
}

// The compiler inlines it into its caller.
func inlined() []byte {
	return make([]byte, 4096)
}

//go:noinline
func caller() {
	keep("main.inlined", inlined())
}

// A stack with more frames than older releases of Go record.
//
//go:noinline
func deep(depth int) {
	if depth == 0 {
		keep("main.deep", make([]byte, 512))
		return
	}
	deep(depth - 1)
}

// Allocates so much that the runtime draws the next sample with the interval of this program. The first one of each processor
// is drawn at the start of the program, with the default of 512 KiB.
//
//go:noinline
func drawAnew() {
	for i := 0; i < 2048; i++ {
		temporaryBlock = make([]byte, 4096)
	}
}

//go:noinline
func temporary() {
	temporaryBlock = make([]byte, 2048)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Writes the profile for pprof (NAME.pb.gz) and as text (NAME). A collection publishes the blocks that were allocated before the
// previous one.
func writeProfile(name string) {
	runtime.GC()
	runtime.GC()
	for debug, file := range []string{name + ".pb.gz", name} {
		output, err := os.Create(filepath.Join(os.Args[2], file))
		check(err)
		check(pprof.Lookup("heap").WriteTo(output, debug))
		check(output.Close())
	}
}

// Returns the number of live blocks by function as JSON.
func countBlocks() string {
	blocks := map[string]int{}
	for function, all := range live {
		blocks[function] = len(all)
	}
	line, err := json.Marshal(blocks)
	check(err)
	return string(line)
}

func main() {
	interval, err := strconv.Atoi(os.Args[1])
	check(err)
	runtime.MemProfileRate = interval
	debug.SetGCPercent(-1)
	drawAnew()
	input := bufio.NewReader(os.Stdin)
	wait := func(line string) {
		fmt.Println(line)
		_, err := input.ReadString('\n')
		check(err)
	}
	for i := 0; i < 1000; i++ {
		small()
	}
	writeProfile("before")
	wait(fmt.Sprintf("ready %d", os.Getpid()))
	for i := 0; i < 300; i++ {
		large()
		caller()
		deep(150)
		temporary()
	}
	temporaryBlock = nil
	for i := 0; i < 500; i++ {
		live["main.small"][i] = nil
	}
	live["main.small"] = live["main.small"][500:]
	writeProfile("after")
	wait(countBlocks())
	if len(os.Args) > 3 && os.Args[3] == "exec" {
		check(syscall.Exec("/proc/self/exe", os.Args[:3], os.Environ()))
	}
	if len(os.Args) > 3 && os.Args[3] == "grow" {
		for i := 0; i < 400; i++ {
			large()
		}
		for i := 0; i < 200; i++ {
			live["main.inlined"][i] = nil
		}
		live["main.inlined"] = live["main.inlined"][200:]
		writeProfile("later")
		wait(countBlocks())
	}
}
