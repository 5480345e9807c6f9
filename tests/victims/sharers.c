/* Children that share the memory of the victim: they allocate and free in its heap, and the ledger is shared too. The
 * children use the thread-local data of the victim, which waits meanwhile. */
#define _GNU_SOURCE
#include "ledger.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 10, BLOCKS = 100, STACK = 1 << 18, CROWD = 8000, SMALL = 16 };

static void *blocks[BLOCKS];
static char stacks[2][STACK] __attribute__((aligned(64)));
static int alive[2];

__attribute__((noinline)) static void take(size_t at, size_t size) {
    blocks[at] = malloc(size);
    ledger_alloc(NULL, blocks[at], size);
}

static void give_back(size_t at) {
    ledger_free(blocks[at]);
    free(blocks[at]);
    blocks[at] = NULL;
}

/* Replaces every second block, so that blocks of the victim are freed by its children, and the other way round. */
static void replace(size_t first) {
    for (size_t i = first; i < BLOCKS; i += 2) {
        give_back(i);
        take(i, 500 + i);
    }
}

static void wait_for(pid_t pid) {
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        abort();
}

static pid_t start(int (*function)(void *), size_t stack) {
    return clone(function, stacks[stack] + STACK, CLONE_VM | SIGCHLD, NULL);
}

static int child(void *unused) {
    (void)unused;
    replace(0);
    return 0;
}

static int child_with_child(void *unused) {
    wait_for(start(child, 1));
    return child(unused);
}

static int child_with_another_name(void *unused) {
    return prctl(PR_SET_NAME, "mt-another") == 0 ? child(unused) : 1;
}

/* Continues after the victim has exited: the pipe then has no writer. */
static int child_that_stays(void *unused) {
    char byte;
    close(alive[1]);
    if (read(alive[0], &byte, 1) != 0)
        return 1;
    child(unused);
    give_back(1);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}

__attribute__((noinline)) static void take_small(void) {
    void *block = malloc(SMALL);
    ledger_alloc(NULL, block, SMALL);
}

__attribute__((noinline)) static void take_late(void) {
    void *block = malloc(SMALL);
    ledger_alloc(NULL, block, SMALL);
}

/* Takes many small blocks after the victim has exited. */
static int child_of_a_crowd(void *unused) {
    (void)unused;
    char byte;
    close(alive[1]);
    if (read(alive[0], &byte, 1) != 0)
        return 1;
    for (size_t i = 0; i < CROWD; i++)
        take_late();
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}

enum step { TAKE, GIVE_BACK, NOTHING };

/* Starts a child by vfork. A child that takes a block exits. The others call exec, like a shell, which frees before. */
__attribute__((noinline)) static void vfork_child(enum step step, size_t at) {
    pid_t pid = vfork();
    if (pid == 0) {
        if (step == TAKE) {
            take(at, 123);
            _exit(0);
        }
        if (step == GIVE_BACK)
            give_back(at);
        execl("/proc/self/exe", "sharers", "second", (char *)NULL);
        _exit(1);
    }
    wait_for(pid);
}

static void vfork_children(void) {
    for (size_t i = 0; i < CHILDREN; i++) {
        vfork_child(TAKE, i);
        give_back(i);
        take(i, 70 + i);
        vfork_child(GIVE_BACK, i);
        vfork_child(NOTHING, i);
    }
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    if (strcmp(mode, "second") == 0)
        return 0;
    ledger_start();
    if (strcmp(mode, "vfork") == 0) {
        vfork_children();
        ledger_print("");
        return wait_for_harness() ? 0 : 1;
    }
    if (strcmp(mode, "crowd") == 0) {
        for (size_t i = 0; i < CROWD; i++)
            take_small();
        ledger_print("");
        if (!wait_for_harness() || pipe(alive) != 0 || start(child_of_a_crowd, 0) < 0)
            abort();
        _exit(0);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        take(i, 100 + i);
    if (strcmp(mode, "leave") == 0) {
        if (pipe(alive) != 0 || start(child_that_stays, 0) < 0)
            abort();
        _exit(0);
    }
    int (*function)(void *) = child;
    if (strcmp(mode, "nested") == 0)
        function = child_with_child;
    if (strcmp(mode, "rename") == 0)
        function = child_with_another_name;
    for (size_t i = 0; i < CHILDREN; i++) {
        wait_for(start(function, 0));
        replace(1);
        replace(0);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
