// A Go program without runtime/pprof: the linker switches its heap profile off.
package main

import (
	"bufio"
	"os"
	"strconv"
)

var block []byte

func main() {
	block = make([]byte, 1<<20)
	os.Stdout.WriteString("ready " + strconv.Itoa(os.Getpid()) + "\n")
	bufio.NewReader(os.Stdin).ReadString('\n')
}
