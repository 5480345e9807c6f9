/* See shared_file.h. */
#define _GNU_SOURCE
#include "shared_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *value_of(const char *key) {
    static char environment[1 << 16];
    /* The first calls come before the C library has set up `environ`, so it is read from /proc. */
    int from = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    ssize_t length = 0, got;
    while ((got = read(from, environment + length, sizeof environment - 1 - (size_t)length)) > 0)
        length += got;
    close(from);
    for (char *at = environment; at < environment + length; at += strlen(at) + 1)
        if (strncmp(at, key, strlen(key)) == 0)
            return at + strlen(key);
    return NULL;
}

void *shared_file(const char *key, size_t size) {
    const char *path = value_of(key);
    if (path) {
        int file = open(path, O_RDWR | O_CLOEXEC);
        void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (shared != MAP_FAILED)
            return shared;
    }
    _exit(104);
}
