/* A small skynet: services, with the table of their handles and the function of its monitor.
 *
 * `skynet STEPS` lets seven workers handle STEPS messages each, and allocates in another thread. It counts its blocks by service.
 * Prints the services with their allocated and live bytes and blocks as one line of JSON. */
#define _GNU_SOURCE
#include "tag_counts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 7, THREADS = WORKERS + 1, SERVICES = 12, SLOTS = 16, BLOCKS = 512 };
/* This service ends before the end of the trace, and the last two start after its begin. The last one ends, too. */
enum { ENDED = 3, EARLY_SERVICES = 10, SHORT_LIVED = 12 };
/* Tag of the blocks that a worker allocates between two messages. */
enum { BETWEEN = 0 };
#define HARBOR 0x01000000u

struct skynet_monitor {
    int version, check_version;
    uint32_t source, destination;
};

struct skynet_module {
    const char *name;
    void *module, *create, *init, *release, *signal;
};

struct skynet_context {
    void *instance;
    struct skynet_module *mod;
    char between[0x60 - 16];
    uint32_t handle;
    int session_id;
    char after[24];
};

struct handle_name {
    char *name;
    uint32_t handle;
};

struct handle_storage {
    int write, read;
    uint32_t harbor, handle_index;
    int slot_size;
    struct skynet_context **slot;
    int name_cap, name_count;
    struct handle_name *name;
};

_Static_assert(offsetof(struct skynet_context, handle) == 0x60, "skynet_context");
_Static_assert(offsetof(struct handle_storage, slot) == 24, "handle_storage");
_Static_assert(offsetof(struct handle_storage, name) == 40, "handle_storage");

/* The beginning of a block. */
struct header {
    size_t size;
    intptr_t tag;
};

static int steps;
static pthread_barrier_t begin, end;
static struct skynet_module modules[2];
static struct skynet_context contexts[SERVICES + 1];
static struct skynet_context *slots[SLOTS];
static struct handle_name names[4];
static struct handle_storage storage;
/* The variable of skynet_handle.c. */
static struct handle_storage *volatile H;
static char texts[4][16];
static struct header *blocks[BLOCKS];
static _Thread_local int service = NO_TAG;
static _Thread_local uint32_t seed;

void skynet_monitor_trigger(struct skynet_monitor *sm, uint32_t source, uint32_t destination);

__attribute__((noipa)) void skynet_monitor_trigger(struct skynet_monitor *sm, uint32_t source, uint32_t destination) {
    sm->source = source;
    sm->destination = destination;
    __atomic_fetch_add(&sm->version, 1, __ATOMIC_SEQ_CST);
}

static const char *name_of(int tag) {
    static char name[64];
    if (tag == NO_TAG)
        return "[no tag]";
    if (tag == BETWEEN)
        return "[between messages]";
    uint32_t handle = HARBOR | (uint32_t)tag;
    if (tag == SHORT_LIVED)
        snprintf(name, sizeof name, ":%08x", handle);
    else if (tag <= 2)
        snprintf(name, sizeof name, ":%08x .%s", handle, tag == 1 ? "launcher" : "console");
    else
        snprintf(name, sizeof name, ":%08x %s", handle, tag % 2 ? "snlua" : "gate");
    return name;
}

static void count_block_free(struct header *block) { count_free((int)block->tag, block->size); }

static void release(struct header *block) {
    if (!block)
        return;
    count_block_free(block);
    free(block);
}

/* Replaces a block, which any thread may have allocated. */
static void replace(void) {
    uint32_t random = seed = seed * 1664525 + 1013904223;
    size_t size = sizeof(struct header) + (random >> 12) % 3000;
    struct header **slot = &blocks[(random >> 8) % BLOCKS];
    struct header *block = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL);
    switch (random >> 20 & 3) {
    case 0:
        release(block);
        return;
    case 1:
        if (block)
            count_block_free(block);
        block = realloc(block, size);
        break;
    case 2:
        release(block);
        block = calloc(1, size);
        break;
    default:
        release(block);
        block = malloc(size);
    }
    if (!block)
        abort();
    *block = (struct header){size, service};
    count_alloc(service, size);
    release(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    struct skynet_monitor monitor = {0, 0, 0, 0};
    seed = 4711 + 977 * (uint32_t)self;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < steps; i++) {
        if (self < WORKERS) {
            service = 1 + (int)(((uint32_t)i * 7 + (uint32_t)self) % SERVICES);
            skynet_monitor_trigger(&monitor, HARBOR | 1, HARBOR | (uint32_t)service);
            replace();
            replace();
            skynet_monitor_trigger(&monitor, 0, 0);
            service = BETWEEN;
        }
        if (i % 4 == 0)
            replace();
    }
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

static void start_service(int number) {
    uint32_t handle = HARBOR | (uint32_t)number;
    contexts[number].mod = &modules[number % 2];
    contexts[number].handle = handle;
    slots[handle % SLOTS] = &contexts[number];
}

static void name_service(int number, const char *name) {
    char *text = texts[storage.name_count];
    strcpy(text, name);
    names[storage.name_count] = (struct handle_name){text, HARBOR | (uint32_t)number};
    storage.name_count++;
}

static void end_service(int number) { slots[number % SLOTS] = NULL; }

static void start_all(void) {
    modules[0].name = strcpy(texts[2], "gate");
    modules[1].name = strcpy(texts[3], "snlua");
    storage = (struct handle_storage){0, 0, HARBOR, SERVICES + 1, SLOTS, slots, 4, 0, names};
    H = &storage;
    for (int i = 1; i <= EARLY_SERVICES; i++)
        start_service(i);
    name_service(1, "launcher");
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    steps = atoi(argv[1]);
    start_all();
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            abort();
    ledger_start();
    for (int i = EARLY_SERVICES + 1; i <= SERVICES; i++)
        start_service(i);
    name_service(2, "console");
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    end_service(ENDED);
    end_service(SHORT_LIVED);
    print_tags(name_of);
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return H == NULL;
}
