/* `loop PROCESSORS SIZE SHIFT`: pairs of malloc and free of SIZE bytes, without other work. SHIFT blocks of the size are allocated
 * first, so that the address of the block differs.
 *
 * It reads three lines for a run: an action, the number of pairs for each action, and the number of pairs. Actions: 0 for none, 1 for
 * a system call, 2 for a system call that calls the scheduler, 3 for a call of the function `mark`. It prints the processor time of
 * the run, and its parts in user space and in the kernel. */
#include "victim.h"

#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

enum action { NOTHING, SYSTEM_CALL, SCHEDULER, MARK };

/* Exported, so that a probe can be placed at its `nop`. */
__attribute__((noinline, noclone)) void mark(void) { __asm__ volatile("nop"); }

static uint64_t processor_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t nanoseconds(struct timeval time) {
    return ((uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec) * 1000u;
}

static void act(unsigned long long action) {
    if (action == SYSTEM_CALL)
        syscall(SYS_getppid);
    else if (action == SCHEDULER)
        sched_yield();
    else if (action == MARK)
        mark();
}

static __attribute__((noinline)) void run(unsigned long long pairs, size_t size) {
    for (unsigned long long i = 0; i < pairs; i++)
        allocate_and_free(size);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    set_affinity(arguments[1]);
    size_t size = strtoul(arguments[2], NULL, 10);
    for (size_t shift = strtoul(arguments[3], NULL, 10); shift > 0; shift--)
        if (!malloc(size))
            abort();
    ready();
    for (unsigned long long action, every, pairs; wait_line(&action) && wait_line(&every) && wait_line(&pairs);) {
        struct rusage before, after;
        getrusage(RUSAGE_THREAD, &before);
        uint64_t start = processor_time();
        unsigned long long done = 0;
        /* The loop of the pairs is the same with and without actions. */
        for (; every > 0 && done + every <= pairs; done += every) {
            run(every, size);
            act(action);
        }
        run(pairs - done, size);
        uint64_t ns = processor_time() - start;
        getrusage(RUSAGE_THREAD, &after);
        dprintf(STDOUT_FILENO, "{\"pairs\":%llu,\"ns\":%llu,\"user_ns\":%llu,\"system_ns\":%llu}\n", pairs, (unsigned long long)ns,
                (unsigned long long)(nanoseconds(after.ru_utime) - nanoseconds(before.ru_utime)),
                (unsigned long long)(nanoseconds(after.ru_stime) - nanoseconds(before.ru_stime)));
    }
    return 0;
}
