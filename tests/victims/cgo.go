// Allocates in C functions that Go functions call, in the main goroutine and in another one. A test of the long tier compiles
// it together with the ledger.
package main

/*
#include "ledger.h"

#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static void allocate(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
}

static void end(void) {
    ledger_print("");
    if (!wait_for_harness())
        _exit(1);
}
*/
import "C"

//go:noinline
func inner(size int) {
	C.allocate(C.size_t(size))
}

//go:noinline
func outer(size int) {
	inner(size)
}

//go:noinline
func work(done chan<- bool) {
	for i := 0; i < 30; i++ {
		outer(2000)
	}
	done <- true
}

func main() {
	C.ledger_start()
	for i := 0; i < 30; i++ {
		outer(1000)
	}
	done := make(chan bool)
	go work(done)
	<-done
	C.end()
}
