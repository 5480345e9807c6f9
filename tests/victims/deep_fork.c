/* A parent and its forked children allocate alternately, each through its own chain of functions. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))

NOIPA static void allocate(size_t size, int recorded) {
    void *block = malloc(size);
    if (recorded)
        ledger_alloc(NULL, block, size);
}

NOIPA static int in_child(int depth) {
    volatile char room[100];
    room[depth] = (char)depth;
    if (depth == 0)
        allocate(300, 0);
    else
        in_child(depth - 1);
    return room[depth];
}

NOIPA static int in_parent(int depth) {
    volatile char room[40];
    room[depth] = (char)depth;
    if (depth == 0)
        allocate(100, 1);
    else
        in_parent(depth - 1);
    return room[depth];
}

int main(void) {
    ledger_start();
    for (int round = 0; round < 5; round++) {
        in_parent(12);
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0; i < 100; i++)
                in_child(30);
            _exit(42);
        }
        in_parent(12);
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
            abort();
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
