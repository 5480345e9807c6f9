/* An allocator that raises signals inside its calls. The handlers call the allocator themselves, on the normal and on an
 * alternate stack, return or jump, and are interrupted in turn. */
#define _GNU_SOURCE
#include "ledger.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))
#define ROUNDS 40

static _Alignas(16) char heap[1 << 22];
static size_t used;
/* The signals that the next calls raise, one each. */
static int signals[2];
static sigjmp_buf back;
static int jumps;

/* No block is used again. */
static void *take(size_t size) {
    size_t at = used;
    used += (size + 15) / 16 * 16;
    if (used > sizeof heap)
        _exit(104);
    return heap + at;
}

NOIPA static void raise_next(void) {
    int number = signals[0];
    if (number == 0)
        return;
    signals[0] = signals[1];
    signals[1] = 0;
    syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), number);
}

NOIPA void *malloc(size_t size) {
    void *block = take(size);
    raise_next();
    return block;
}

NOIPA void free(void *block) {
    if (block)
        raise_next();
}

/* A signal arrives before the calls that are nested in this one, and within them. */
NOIPA void *calloc(size_t count, size_t size) {
    raise_next();
    void *block = malloc(count * size);
    return memset(block, 0, count * size);
}

NOIPA void *realloc(void *old, size_t size) {
    raise_next();
    void *block = malloc(size);
    free(old);
    return block;
}

NOIPA static void *allocate(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

NOIPA static void release(void *block) {
    ledger_free(block);
    free(block);
}

NOIPA static void on_signal(int number) {
    release(allocate(100 + (size_t)number));
    allocate(200 + (size_t)number);
    if (jumps) {
        jumps = 0;
        siglongjmp(back, 1);
    }
}

NOIPA static void interrupt_with(int first, int second) {
    signals[0] = first;
    signals[1] = second;
}

NOIPA static void deeper(size_t depth, size_t size) {
    volatile char room[64];
    room[0] = (char)depth;
    if (depth > 0)
        deeper(depth - 1, size);
    else
        release(allocate(size));
    room[1] = room[0];
}

NOIPA static void all(int first, int second) {
    interrupt_with(first, second);
    void *block = allocate(10);
    interrupt_with(first, second);
    release(block);

    interrupt_with(first, second);
    block = calloc(3, 7);
    ledger_alloc(NULL, block, 21);
    interrupt_with(first, second);
    struct pending_realloc pending = ledger_begin_realloc(block);
    block = realloc(block, 33);
    ledger_end_realloc(NULL, pending, block, 33);

    /* The interrupted call never returns a block. */
    if (sigsetjmp(back, 1) == 0) {
        interrupt_with(first, second);
        jumps = first != 0;
        allocate(40);
    }
    block = malloc(70);
    ledger_alloc(NULL, block, 70);
    release(block);
    for (size_t depth = 0; depth < 20; depth++)
        deeper(depth, 50 + depth);
}

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    if (sigaction(number, &action, NULL) != 0)
        abort();
}

int main(void) {
    static char stack[64 * 1024];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&own, NULL) != 0)
        abort();
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_ONSTACK);
    handle(SIGALRM, 0);
    ledger_start();
    for (int round = 0; round < ROUNDS; round++) {
        all(0, 0);
        all(SIGUSR1, 0);
        all(SIGUSR2, 0);
        /* The handler is interrupted too. */
        all(SIGUSR1, SIGALRM);
        all(SIGUSR1, SIGUSR2);
        all(SIGUSR2, SIGALRM);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
