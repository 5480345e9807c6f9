/* See sample_probes.h. The probes have the form of <sys/sdt.h>: the compiler chooses the places of their arguments. */
#include "sample_probes.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define SEMAPHORE_OF(provider, name) provider##_##name##_semaphore
#define SEMAPHORE(provider, name) SEMAPHORE_OF(provider, name)

#define ALLOC_SEMAPHORE SEMAPHORE(PROVIDER, alloc)
#ifdef SHARES_SEMAPHORE
#define FREE_SEMAPHORE ALLOC_SEMAPHORE
#else
#define FREE_SEMAPHORE SEMAPHORE(PROVIDER, free)
__attribute__((used, visibility("hidden"), section(".probes"))) volatile unsigned short FREE_SEMAPHORE;
#endif
__attribute__((used, visibility("hidden"), section(".probes"))) volatile unsigned short ALLOC_SEMAPHORE;

/* Place of the weighted bytes: in memory or wherever the compiler likes. */
#ifdef IN_MEMORY
#define PLACE "m"
#else
#define PLACE "nor"
#endif

#define PROBE(name, semaphore, arguments)                                                                                   \
    "990: nop\n"                                                                                                            \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                                           \
    ".balign 4\n"                                                                                                           \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                                                      \
    "991: .asciz \"stapsdt\"\n"                                                                                             \
    "992: .balign 4\n"                                                                                                      \
    "993: .8byte 990b\n"                                                                                                    \
    ".8byte _.stapsdt.base\n"                                                                                               \
    ".8byte " TEXT(semaphore) "\n"                                                                                          \
    ".asciz \"" TEXT(PROVIDER) "\"\n"                                                                                       \
    ".asciz \"" name "\"\n"                                                                                                 \
    ".asciz \"" arguments "\"\n"                                                                                            \
    "994: .balign 4\n"                                                                                                      \
    ".popsection\n"                                                                                                         \
    ".ifndef _.stapsdt.base\n"                                                                                              \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                                 \
    ".weak _.stapsdt.base\n"                                                                                                \
    ".hidden _.stapsdt.base\n"                                                                                              \
    "_.stapsdt.base: .space 1\n"                                                                                            \
    ".size _.stapsdt.base, 1\n"                                                                                             \
    ".popsection\n"                                                                                                         \
    ".endif\n"

#define SLOTS (1u << 20)

static double mean, left;
static uint64_t random_state = 0x2545F4914F6CDD1Du;
/* Sampled blocks. 0: never used; 1: removed. */
static uintptr_t sampled[SLOTS];

/* Draws the number of bytes to the next sample. */
static void draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    left = -log(((double)(random_state >> 11) + 0.5) / 9007199254740992.0) * mean;
}

static size_t home(uintptr_t block) { return (size_t)((block >> 4) * 0x9E3779B97F4A7C15u >> 32) % SLOTS; }

static void insert(uintptr_t block) {
    size_t seen = 0;
    for (size_t i = home(block); seen < SLOTS; i = (i + 1) % SLOTS, seen++) {
        if (sampled[i] <= 1) {
            sampled[i] = block;
            return;
        }
    }
    abort();
}

static int was_sampled(uintptr_t block) {
    size_t seen = 0;
    for (size_t i = home(block); seen < SLOTS && sampled[i]; i = (i + 1) % SLOTS, seen++) {
        if (sampled[i] == block) {
            sampled[i] = 1;
            return 1;
        }
    }
    return 0;
}

void start_sampler(uint64_t interval) {
    mean = (double)interval;
    draw();
}

/* Each probe has one instruction. */
__attribute__((noipa)) void *probed_malloc(size_t size) {
    void *block = malloc(size);
    if (!block || !ALLOC_SEMAPHORE || (left -= (double)size) > 0)
        return block;
    draw();
    insert((uintptr_t)block);
    uint64_t weighted = (uint64_t)llround((double)size / -expm1(-(double)size / mean));
    __asm__ __volatile__(PROBE("alloc", ALLOC_SEMAPHORE, "8@%0 8@%1 8@%2")
                         :
                         : "nor"(block), "nor"(size), PLACE(weighted)
                         : "memory");
    return block;
}

void *probed_realloc(void *block, size_t size) {
    void *moved = probed_malloc(size);
    if (moved && block) {
        size_t usable = malloc_usable_size(block);
        memcpy(moved, block, usable < size ? usable : size);
        probed_free(block);
    }
    return moved;
}

__attribute__((noipa)) void probed_free(void *block) {
    if (block && was_sampled((uintptr_t)block))
        __asm__ __volatile__(PROBE("free", FREE_SEMAPHORE, "8@%0") : : "nor"(block) : "memory");
    free(block);
}

unsigned probe_semaphore(void) { return ALLOC_SEMAPHORE; }
