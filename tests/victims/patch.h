/* Common part of the victims of patched allocators: lines of the harness, random numbers, and the content of blocks. Each block has
 * at least 64 bytes: with an interval of one byte, every such block is a sample. */
#ifndef PATCH_H
#define PATCH_H

#include "ledger.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define LINE_SIZE 512

/* Ends the victim if a call or the content of a block is wrong. The test sees the end and the text. */
static inline void expect(int condition, const char *text) {
    if (condition)
        return;
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(104);
    abort();
}

/* Reads a line of the harness, without its end. Returns 0 at the end of the input. */
static inline int read_line(char line[LINE_SIZE]) {
    for (size_t length = 0; length < LINE_SIZE;) {
        if (read(STDIN_FILENO, line + length, 1) != 1)
            return 0;
        if (line[length] == '\n') {
            line[length] = 0;
            return 1;
        }
        length++;
    }
    return 0;
}

/* Returns true if the harness has written a line that was not read, or has ended. A signal can interrupt the call. */
static inline int has_line(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* Returns the number after a word of a line. */
static inline uint64_t number_after(const char *line, const char *word) {
    return strtoul(line + strlen(word), NULL, 10);
}

static inline int begins(const char *line, const char *word) { return strncmp(line, word, strlen(word)) == 0; }

/* Marsaglia, "Xorshift RNGs", 2003. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void fill(void *block, size_t size, uint64_t key) { memset(block, (int)(key & 0xff), size); }

/* Compares three bytes of a block with those that `fill` has written. */
static inline void check(const void *block, size_t size, uint64_t key) {
    const unsigned char *bytes = block;
    unsigned char expected = (unsigned char)key;
    expect(bytes[0] == expected && bytes[size / 2] == expected && bytes[size - 1] == expected,
           "the content of a block has changed\n");
}

/* Removes all blocks and totals from the books. Blocks of before are no longer known. */
static inline void clear_ledger(void) {
    memset(ledger, 0, sizeof *ledger);
    ledger->max_size = SIZE_MAX;
    ledger->counting = 1;
}

#endif
