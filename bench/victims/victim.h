/* Common part of all victims: processor affinity and the barrier. */
#ifndef VICTIM_H
#define VICTIM_H

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Restricts the process to the processors of a list such as `1,2,3`; returns their number. */
static inline int set_affinity(const char *list) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (char *end = (char *)list; *end;) {
        CPU_SET(strtoul(end, &end, 10), &set);
        if (*end == ',')
            end++;
        else if (*end)
            exit(2);
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("sched_setaffinity");
        exit(2);
    }
    return CPU_COUNT(&set);
}

/* Allocates a block and frees it. The pointer is volatile, so that the compiler keeps both calls. */
static inline __attribute__((always_inline)) void allocate_and_free(size_t size) {
    void *volatile block = malloc(size);
    if (!block)
        abort();
    free(block);
}

static inline void ready(void) { dprintf(STDOUT_FILENO, "ready %d\n", getpid()); }

/* Waits for a line with a number; returns 0 at the end of the input. Does not read beyond the line. */
static inline int wait_line(unsigned long long *number) {
    *number = 0;
    for (char byte;;) {
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
        if (byte == '\n')
            return 1;
        *number = *number * 10 + (unsigned long long)(byte - '0');
    }
}

#endif
