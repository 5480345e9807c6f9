// Makes a heap profile with a bucket for each of 10,000 stacks, and waits. Prints `ready PID`, then the number of buckets, and the
// address of memory that is resident and not part of the heap. No collection runs after that.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"
)

const (
	stacks = 10000
	// Number of bits of a stack's number. Each bit is a frame.
	bits = 14
	// Size of the memory: more than a reading of the profile copies.
	size = 64 << 20
	// MADV_NOHUGEPAGE of madvise(2). The buckets are not on huge pages either.
	noHugePage = 15
)

var blocks [stacks][]byte

// Allocates a block. The bits of its number choose one of two calls at each level, so that each block has a stack of its own.
//
//go:noinline
func allocate(number, bit int) {
	if bit == bits {
		blocks[number] = make([]byte, 64)
	} else if number>>bit&1 == 0 {
		allocate(number, bit+1)
	} else {
		allocate(number, bit+1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	runtime.MemProfileRate = 1
	debug.SetGCPercent(-1)
	for number := range blocks {
		allocate(number, 0)
	}
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	check(err)
	check(syscall.Madvise(memory, noHugePage))
	for at := range memory {
		memory[at] = byte(at)
	}
	// The second collection publishes the blocks that were allocated before the first one.
	runtime.GC()
	runtime.GC()
	// The linker turns sampling off in programs without this call.
	buckets, _ := runtime.MemProfile(nil, true)
	if buckets < stacks {
		check(fmt.Errorf("%d stacks have %d buckets", stacks, buckets))
	}
	line := fmt.Sprintf("{\"buckets\": %d, \"address\": %d, \"size\": %d}", buckets, unsafe.Pointer(&memory[0]), size)
	fmt.Printf("ready %d\n%s\n", os.Getpid(), line)
	_, err = os.Stdin.Read(make([]byte, 1))
	check(err)
}
