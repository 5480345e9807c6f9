/* A small MariaDB: functions and structures with the names and offsets of mariadbd 10.11.19 of Debian 12, and its build ID.
 *
 * `mariadb TAG STEPS` runs STEPS commands in each of seven connections, and allocates in another thread. It counts its blocks by
 *   class       the class of my_malloc and my_realloc; blocks of malloc have none
 *   off         the same without the Performance Schema: all blocks have the same class
 *   connection, host, user   the connection that gave the command
 * Prints the tags with their allocated and live bytes and blocks as one line of JSON. */
#define _GNU_SOURCE
#include "tag_counts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS = 7, THREADS = CONNECTIONS + 1, HOSTS = 2, USERS = 3, SLOTS = 512 };
/* The server registers the other classes after the harness has attached. */
enum { CLASSES = 40, EARLY_CLASSES = 30 };
/* Key of a class with a name that is not that of memory, and the connection without a user. */
enum { NAMELESS_CLASS = 6, NAMELESS_CONNECTION = 5 };
enum { FIRST_ID = 100, HEADER = 24, MY_ALLOW_ZERO_PTR = 64 };

struct security_context {
    const char *host, *user, *ip;
    char between[0x6a8 - 24];
    const char *host_or_ip;
};

struct THD {
    char before[0x25f8];
    struct security_context *security_ctx;
    char between[0x3f18 - 0x2600];
    uint64_t thread_id;
};

struct memory_class {
    char before[0x14];
    char name[128];
    unsigned name_length;
    char after[192 - 0x98];
};

_Static_assert(offsetof(struct security_context, host_or_ip) == 0x6a8, "Security_context");
_Static_assert(offsetof(struct THD, security_ctx) == 0x25f8, "THD");
_Static_assert(offsetof(struct THD, thread_id) == 0x3f18, "THD");
_Static_assert(offsetof(struct memory_class, name_length) == 0x94, "PFS_memory_class");
_Static_assert(sizeof(struct memory_class) == 192, "PFS_memory_class");

/* The victim keeps the tag of the block in place of the owner. */
struct my_memory_header {
    intptr_t tag;
    size_t size;
    unsigned key;
};

_Static_assert(sizeof(struct my_memory_header) == HEADER, "my_memory_header");

/* The beginning of a block of malloc. */
struct plain {
    size_t size;
    intptr_t tag;
};

/* Like the server, the victim has handlers of exceptions, so memtrace replaces no return addresses. The section has none. */
__asm__(".section .gcc_except_table, \"a\"\n\t.byte 0\n\t.previous");

static enum mode { CLASS, OFF, CONNECTION, HOST, USER } mode;
static int steps;
static pthread_barrier_t begin, end;
static struct memory_class classes[CLASSES] __attribute__((aligned(64)));
static struct security_context contexts[CONNECTIONS];
static struct THD connections[CONNECTIONS];
static char hosts[HOSTS][16], users[USERS][16];
static void *instrumented[SLOTS];
static struct plain *plain[SLOTS];
static _Thread_local int connection = -1;
static _Thread_local uint32_t seed;

/* memory_class_array, and the number of its classes. The linker places the section at the address of the real server. */
static volatile struct {
    struct memory_class *array;
    unsigned count, next;
} memory_classes __attribute__((section("pfs_classes"), used)) = {NULL, 0, 0};

void *my_malloc(unsigned key, size_t size, unsigned long flags);
void *my_realloc(unsigned key, void *old, size_t size, unsigned long flags);
void my_free(void *block);
int do_command(struct THD *thd, int blocking) __asm__("_Z10do_commandP3THDb");

/* Returns the tag of a block that is allocated now. `key` is -1 for a block of malloc. */
static int tag_of(int key) {
    switch (mode) {
    case CLASS:
    case OFF:
        return key < 0 ? NO_TAG : key;
    case CONNECTION:
        return connection < 0 ? NO_TAG : connection;
    case HOST:
        return connection < 0 ? NO_TAG : connection % HOSTS;
    case USER:
        return connection < 0 || connection == NAMELESS_CONNECTION ? NO_TAG : connection % USERS;
    }
    abort();
}

static const char *name_of(int tag) {
    static char number[16];
    if (tag == NO_TAG)
        return "[no tag]";
    switch (mode) {
    case CLASS:
    case OFF:
        if (tag == 0)
            return "[not instrumented]";
        if (tag != NAMELESS_CLASS)
            return classes[tag - 1].name;
        break;
    case CONNECTION:
        tag += FIRST_ID;
        break;
    case HOST:
        return hosts[tag];
    case USER:
        return users[tag];
    }
    snprintf(number, sizeof number, "%d", tag);
    return number;
}

static struct my_memory_header *header_of(void *block) {
    return (struct my_memory_header *)(void *)((char *)block - HEADER);
}

static void *finish(struct my_memory_header *header, unsigned key, size_t size) {
    if (!header)
        abort();
    *header = (struct my_memory_header){tag_of((int)key), size, key};
    count_alloc((int)header->tag, size + HEADER);
    return (char *)header + HEADER;
}

static size_t aligned(size_t size) { return (size + 7) & ~(size_t)7; }

__attribute__((noipa)) void *my_malloc(unsigned key, size_t size, unsigned long flags) {
    (void)flags;
    size = aligned(size);
    return finish(malloc(size + HEADER), key, size);
}

__attribute__((noipa)) void *my_realloc(unsigned key, void *old, size_t size, unsigned long flags) {
    if (!old && (flags & MY_ALLOW_ZERO_PTR))
        return my_malloc(key, size, flags);
    struct my_memory_header *header = header_of(old);
    count_free((int)header->tag, header->size + HEADER);
    size = aligned(size);
    return finish(realloc(header, size + HEADER), key, size);
}

__attribute__((noipa)) void my_free(void *block) {
    if (!block)
        return;
    struct my_memory_header *header = header_of(block);
    count_free((int)header->tag, header->size + HEADER);
    free(header);
}

static void free_plain(struct plain *block) {
    if (!block)
        return;
    count_free((int)block->tag, block->size);
    free(block);
}

static void replace_plain(struct plain **slot, size_t size) {
    size += sizeof(struct plain);
    struct plain *block = malloc(size);
    if (!block)
        abort();
    *block = (struct plain){size, tag_of(-1)};
    count_alloc((int)block->tag, size);
    free_plain(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

/* Replaces a block, which any thread may have allocated. */
static void replace(void) {
    uint32_t random = seed = seed * 1664525 + 1013904223;
    size_t size = 1 + (random >> 12) % 3000;
    if (random % 997 == 0)
        size += 1 << 18; /* a mapping of its own */
    if (random % 3 == 0) {
        replace_plain(&plain[(random >> 8) % SLOTS], size);
        return;
    }
    unsigned key = (random >> 4) % (memory_classes.count + 1);
    void **slot = &instrumented[(random >> 8) % SLOTS];
    void *block = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL);
    switch (random >> 20 & 3) {
    case 0:
        my_free(block);
        return;
    case 1:
        block = my_realloc(key, block, size, MY_ALLOW_ZERO_PTR);
        break;
    default:
        my_free(block);
        block = my_malloc(key, size, 0);
    }
    my_free(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

__attribute__((noipa)) int do_command(struct THD *thd, int blocking) {
    (void)blocking;
    connection = (int)(thd->thread_id - FIRST_ID);
    for (int i = 0; i < 3; i++)
        replace();
    connection = -1;
    return 0;
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    seed = 4711 + 977 * (uint32_t)self;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < steps; i++) {
        if (self < CONNECTIONS && do_command(&connections[self], 1))
            abort();
        replace();
    }
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

/* Registers the classes up to this number. */
static void register_classes(unsigned number) {
    memory_classes.array = classes;
    for (unsigned index = memory_classes.count; index < number; index++) {
        struct memory_class *class = &classes[index];
        if (index + 1 == NAMELESS_CLASS)
            strcpy(class->name, "wait/io/file");
        else
            snprintf(class->name, sizeof class->name, "memory/sql/class_%u", index + 1);
        class->name_length = (unsigned)strlen(class->name);
    }
    memory_classes.count = number;
}

static void connect_all(void) {
    for (int i = 0; i < HOSTS; i++)
        snprintf(hosts[i], sizeof hosts[i], "host_%d", i);
    for (int i = 0; i < USERS; i++)
        snprintf(users[i], sizeof users[i], "user_%d", i);
    for (int i = 0; i < CONNECTIONS; i++) {
        contexts[i].host_or_ip = hosts[i % HOSTS];
        contexts[i].user = i == NAMELESS_CONNECTION ? NULL : users[i % USERS];
        connections[i].security_ctx = &contexts[i];
        connections[i].thread_id = (uint64_t)(FIRST_ID + i);
    }
}

static enum mode mode_of(const char *name) {
    static const char *const modes[] = {"class", "off", "connection", "host", "user"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, modes[i]) == 0)
            return (enum mode)i;
    abort();
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    mode = mode_of(argv[1]);
    steps = atoi(argv[2]);
    connect_all();
    if (mode != OFF)
        register_classes(EARLY_CLASSES);
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            abort();
    ledger_start();
    if (mode != OFF)
        register_classes(CLASSES);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    print_tags(name_of);
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
