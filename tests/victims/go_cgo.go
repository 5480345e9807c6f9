// Allocates blocks of Go and blocks of C, and prints the number of each.
//
// Arguments: the sampling interval of Go's own profile in bytes, and optionally "fork": the program then forks, and prints the
// PID of the child, which waits until the program ends.
package main

/*
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) static void *c_block(void) {
    void *block = malloc(3000);
    // Without it, malloc could be called by a jump, and the function would not be in the stack.
    __asm__ volatile("" : : "r"(block));
    return block;
}

static int fork_child(void) {
    int child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"unsafe"
)

var goBlocks = make([][]byte, 0, 200)
var cBlocks []unsafe.Pointer

//go:noinline
func goBlock() {
	goBlocks = append(goBlocks, make([]byte, 6144))
}

func main() {
	runtime.MemProfileRate, _ = strconv.Atoi(os.Args[1])
	debug.SetGCPercent(-1)
	input := bufio.NewReader(os.Stdin)
	fmt.Printf("ready %d\n", os.Getpid())
	input.ReadString('\n')
	for i := 0; i < 200; i++ {
		goBlock()
		cBlocks = append(cBlocks, C.c_block())
	}
	runtime.GC()
	runtime.GC()
	child := 0
	if len(os.Args) > 2 {
		// The child ends with the thread that has forked.
		runtime.LockOSThread()
		child = int(C.fork_child())
	}
	fmt.Printf("{\"go\": %d, \"c\": %d, \"child\": %d}\n", len(goBlocks), len(cBlocks), child)
	input.ReadString('\n')
	// Links the profile.
	if len(os.Args) > 3 {
		pprof.WriteHeapProfile(os.Stdout)
	}
}
