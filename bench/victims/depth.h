/* Common part of the victims with a variable stack depth.
 *
 * They repeatedly read two numbers, the number of nested functions and the number of pairs of malloc and free, and print the
 * duration of the pairs. */
#ifndef DEPTH_H
#define DEPTH_H

#include "victim.h"

#include <stdint.h>
#include <time.h>

#define SIZE 64

typedef uint64_t work(unsigned long long nested, unsigned long long pairs);

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Preemption during a BPF program would add to its run time. */
static void use_realtime_priority(void) {
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        perror("measuring without realtime priority: sched_setscheduler");
}

/* Must not allocate, as dprintf does: every allocation belongs to a pair. */
static void print_timing(unsigned long long pairs, uint64_t ns) {
    char line[100];
    int length = snprintf(line, sizeof line, "{\"pairs\":%llu,\"ns\":%llu,\"processors\":1}\n", pairs,
                          (unsigned long long)ns);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

/* Does the requested work until the input ends. Inlined into main, so that it has no frame of its own. */
static inline __attribute__((always_inline)) int serve(int count, char **arguments, work *work) {
    if (count != 2)
        return 2;
    set_affinity(arguments[1]);
    use_realtime_priority();
    ready();
    for (unsigned long long nested, pairs; wait_line(&nested) && wait_line(&pairs);)
        print_timing(pairs, work(nested, pairs));
    return 0;
}

#endif
