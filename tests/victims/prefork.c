/* `prefork CHILDREN [sharer]` is a preforking server. Its child processes share 32 MiB of private memory with it, and 16 MiB of
 * shared memory. Each has 4 MiB of its own, and 8 MiB that it has freed with MADV_FREE. A sharer uses the memory of the server
 * itself, as after vfork(2). */
#define _GNU_SOURCE
#include "ledger.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char sharer_stack[1 << 16] __attribute__((aligned(64)));

static char *map(size_t size, int flags) {
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        abort();
    /* A huge page would make more resident than is touched. Kernels without huge pages refuse the call. */
    madvise(start, size, MADV_NOHUGEPAGE);
    memset(start, 1, size);
    return start;
}

_Noreturn static void serve(const volatile char *shared, int ready, int end) {
    char byte = 0;
    /* fork(2) copies no page tables of shared memory. */
    for (size_t at = 0; at < 16 * MIB; at += 4096)
        byte |= shared[at];
    map(4 * MIB, MAP_PRIVATE);
    madvise(map(8 * MIB, MAP_PRIVATE), 8 * MIB, MADV_FREE);
    if (write(ready, &byte, 1) != 1)
        _exit(1);
    /* The parent closes the pipe at its end. */
    _exit(read(end, &byte, 1) == 0 ? 0 : 1);
}

/* Waits for the end of the parent. Its descriptors are copies. */
static int share(void *ends) {
    const int *end = ends;
    char byte;
    close(end[1]);
    return read(end[0], &byte, 1) == 0 ? 0 : 1;
}

int main(int count, char **words) {
    int ready[2], end[2];
    if (count < 2 || pipe(ready) || pipe(end))
        return 2;
    int children = atoi(words[1]);
    map(32 * MIB, MAP_PRIVATE);
    char *shared = map(16 * MIB, MAP_SHARED);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 2;
        if (pid == 0) {
            close(end[1]);
            serve(shared, ready[1], end[0]);
        }
    }
    for (int i = 0; i < children; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1)
            return 2;
    }
    if (count > 2) {
        if (clone(share, sharer_stack + sizeof sharer_stack, CLONE_VM | SIGCHLD, end) < 0)
            return 2;
        children++;
    }
    print_ready();
    int is_released = wait_for_harness();
    close(end[1]);
    for (int i = 0; i < children; i++) {
        int status = 0;
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return 1;
    }
    return is_released ? 0 : 1;
}
