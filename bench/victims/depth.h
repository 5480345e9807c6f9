/* What the programs share that work at the bottom of a stack as deep as asked.
 *
 * They read two numbers at a time, how many functions to call one inside the other and how many pairs of malloc and free
 * to do there, and say how long the pairs took. */
#ifndef DEPTH_H
#define DEPTH_H

#include "victim.h"

#include <stdint.h>
#include <time.h>

#define SIZE 64

typedef uint64_t work(unsigned long long deeper, unsigned long long pairs);

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Whoever is in the middle of an event when another program gets the processor has its time counted as the event's. */
static void go_first(void) {
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        perror("measuring with an everyday priority: sched_setscheduler");
}

/* Allocates nothing: every allocation is to be one of the pairs', and dprintf has a buffer of its own. */
static void say(unsigned long long pairs, uint64_t took) {
    char line[100];
    int length = snprintf(line, sizeof line, "{\"pairs\":%llu,\"ns\":%llu,\"processors\":1}\n", pairs,
                          (unsigned long long)took);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

/* Does what is asked for until nothing more is: the whole of main, and no function of its own on the stack. */
static inline __attribute__((always_inline)) int obey(int count, char **arguments, work *work) {
    if (count != 2)
        return 2;
    keep_to(arguments[1]);
    go_first();
    ready();
    for (unsigned long long deeper, pairs; wait_line(&deeper) && wait_line(&pairs);)
        say(pairs, work(deeper, pairs));
    return 0;
}

#endif
