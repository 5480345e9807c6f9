/* The system calls of other threads. */
#ifndef SYSTEM_CALL_H
#define SYSTEM_CALL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL_SIZE 256

/* Reads the number and the arguments of the system call in which a thread waits. */
static inline void read_call(int tid, char text[CALL_SIZE]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        abort();
    ssize_t length = read(file, text, CALL_SIZE - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
}

/* Returns true if a thread is in a system call with this address as its first argument. */
static inline int is_in_call(int tid, const void *first) {
    char text[CALL_SIZE], address[32];
    snprintf(address, sizeof address, " %p ", first);
    read_call(tid, text);
    return strstr(text, address) != NULL;
}

/* Returns true if a thread waits for a futex. */
static inline int is_in_futex(int tid) {
    char text[CALL_SIZE], number[32];
    int length = snprintf(number, sizeof number, "%d ", SYS_futex);
    read_call(tid, text);
    return strncmp(text, number, (size_t)length) == 0;
}

#endif
