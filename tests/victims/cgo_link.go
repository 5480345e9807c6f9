// Second source of a victim, which links it with cgo and the C library.
package main

// int linked;
import "C"

var _ = C.linked
