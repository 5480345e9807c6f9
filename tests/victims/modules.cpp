// Threads that switch between modules, and count the blocks of each module.
//
// The first argument is the way in which the current module is kept:
//   set       set_module(id)
//   nested    enter_module(name) and leave_module(), in scopes
//   specific  pthread_setspecific(key, handle); sizes are those of malloc_usable_size
//   getter    current_module() returns it
//   process   set_phase(id) for all threads, and set_module(id) in some
//   hook      take(size, id) allocates, and give(block) frees
//   late      server_malloc(size) and similar functions allocate, and then ask current_module(); some blocks have no module
//   shared    server_share(size) allocates a block that another thread frees, and then asks current_module(); it also asks before
//             each of two more blocks
//   field     set_request(request) sets the module in a field of a structure of the request: its name, and its number
// Prints the modules with their allocated and live bytes and blocks as one line of JSON.
extern "C" {
#include "ledger.h"
}

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

namespace {

constexpr int THREADS = 8, MODULES = 200, SLOTS = 1024, LEVELS = 5;

struct Counters {
    std::atomic<uint64_t> alloc_bytes, alloc_count, free_bytes, free_count;
};

// The beginning of each block.
struct Header {
    uint32_t size;
    int32_t module;
};

// The last entry is for blocks without a module.
Counters counters[MODULES + 1];
char handles[MODULES];
char names[MODULES][16];
std::atomic<Header *> slots[SLOTS];
std::atomic<int> phase{-1};
pthread_barrier_t begin, end;
pthread_key_t key;
int steps;
enum class Mode { set, nested, specific, getter, process, hook, late, field, shared } mode;
std::atomic<void *> shared_block;
void *pair[2];
pthread_barrier_t shared;

thread_local int module_of_thread = -1;
// Module that current_module() has returned for the last block; -1 if nobody has asked.
thread_local int asked_module = -1;

struct Session {
    long padding[3];
    const char *name;
    int id, other;
};

struct Request {
    long padding[2];
    Session *session;
};

Session sessions[MODULES];

} // namespace

extern "C" {

__attribute__((noinline)) void set_module(int id) { module_of_thread = id; }

__attribute__((noinline)) void enter_module(const char *name) {
    asm volatile("" : : "r"(name) : "memory");
}

__attribute__((noinline)) void leave_module() { asm volatile("" : : : "memory"); }

__attribute__((noinline)) long current_module() {
    asm volatile("" : : : "memory");
    return module_of_thread;
}

__attribute__((noinline)) void set_phase(int id) { phase = id; }

__attribute__((noinline)) void *take(size_t size, int id) {
    asm volatile("" : : "r"(id) : "memory");
    return malloc(size);
}

__attribute__((noinline)) void give(void *block) { free(block); }

__attribute__((noinline)) void set_request(const Request *request) { asm volatile("" : : "r"(request) : "memory"); }

// Asks for the module of the block after it has allocated the block.
__attribute__((noinline)) void *server_malloc(size_t size) {
    void *block = malloc(size);
    asked_module = static_cast<int>(current_module());
    return block;
}

// Asks before.
__attribute__((noinline)) void *server_calloc(size_t size) {
    asked_module = static_cast<int>(current_module());
    return calloc(1, size);
}

__attribute__((noinline)) void *server_realloc(void *block, size_t size) {
    block = realloc(block, size);
    asked_module = static_cast<int>(current_module());
    return block;
}

// Allocates a block that another thread frees before this one asks for its module. Then asks before each of two blocks.
__attribute__((noinline)) void server_share(size_t size) {
    shared_block = malloc(size);
    pthread_barrier_wait(&shared);
    pthread_barrier_wait(&shared);
    current_module();
    module_of_thread = 0;
    current_module();
    pair[0] = malloc(size);
    module_of_thread = 1;
    current_module();
    pair[1] = malloc(size);
}

// Frees a block before it has asked for its module, and allocates the next one in another wrapper.
__attribute__((noinline)) void *server_retry(size_t size) {
    void *unsuitable = malloc(size);
    free(unsuitable);
    return server_malloc(size);
}
}

namespace {

struct Scope {
    int outer = module_of_thread;
    explicit Scope(int id) {
        enter_module(names[id]);
        module_of_thread = id;
    }
    ~Scope() {
        module_of_thread = outer;
        leave_module();
    }
};

Counters &counters_of(int module) { return counters[module < 0 ? MODULES : module]; }

size_t size_of(void *block, size_t requested) { return mode == Mode::specific ? malloc_usable_size(block) : requested; }

void count_alloc(Header *block, size_t requested) {
    int module = mode == Mode::late ? asked_module : module_of_thread;
    asked_module = -1;
    if (module < 0 && mode == Mode::process)
        module = phase;
    size_t size = size_of(block, requested);
    *block = {static_cast<uint32_t>(size), module};
    counters_of(module).alloc_bytes += size;
    counters_of(module).alloc_count++;
}

void count_free(Header block) {
    counters_of(block.module).free_bytes += block.size;
    counters_of(block.module).free_count++;
}

// Counts a block without a header that is freed soon.
void count_temporary(int module, size_t size) {
    counters_of(module).alloc_bytes += size;
    counters_of(module).alloc_count++;
    counters_of(module).free_bytes += size;
    counters_of(module).free_count++;
}

// A step of the mode `shared`, for the two threads that take part in it.
void share(size_t self, size_t size) {
    if (self == 1) {
        pthread_barrier_wait(&shared);
        free(shared_block);
        pthread_barrier_wait(&shared);
    }
    if (self != 0)
        return;
    count_temporary(-1, size);
    server_share(size);
    for (int module = 0; module < 2; module++) {
        count_temporary(module, size);
        free(pair[module]);
    }
}

void *allocate(uint32_t random, size_t size) {
    void *block = nullptr;
    if (mode == Mode::hook)
        return take(size, module_of_thread);
    if (mode == Mode::late) {
        switch (random % 4) {
        case 0:
            return server_malloc(size);
        case 1:
            return server_calloc(size);
        case 2:
            count_temporary(-1, size);
            return server_retry(size);
        default:
            return malloc(size);
        }
    }
    switch (random % 4) {
    case 0:
        return calloc(1, size);
    case 1:
        return aligned_alloc(64, size);
    case 2:
        return posix_memalign(&block, 32, size) == 0 ? block : nullptr;
    default:
        return malloc(size);
    }
}

void release(Header *block) {
    if (!block)
        return;
    count_free(*block);
    if (mode == Mode::hook)
        give(block);
    else
        free(block);
}

// Replaces the block of a slot, which any thread may have allocated in any module.
void replace(uint32_t random) {
    Header *block = slots[random % SLOTS].exchange(nullptr);
    size_t size = 16 + (random >> 12) % 3000;
    if (random % 997 == 0)
        size += 1 << 18; // a mapping of its own
    switch (random >> 10 & 3) {
    case 0:
        release(block);
        return;
    case 1:
        if (block && mode != Mode::hook) {
            // It fails, and keeps its block.
            if (random % 5 == 0 && realloc(block, SIZE_MAX / 2))
                abort();
            count_free(*block);
            block = static_cast<Header *>(mode == Mode::late ? server_realloc(block, size) : realloc(block, size));
            count_alloc(block, size);
            break;
        }
        [[fallthrough]];
    default:
        release(block);
        block = static_cast<Header *>(allocate(random >> 5, size));
        count_alloc(block, size);
    }
    release(slots[random % SLOTS].exchange(block));
}

uint32_t next(uint32_t &random) { return random = random * 1664525 + 1013904223; }

void nest(uint32_t &random, int level) {
    Scope scope(static_cast<int>(next(random) >> 8) % MODULES & ~7);
    replace(next(random));
    if (level < LEVELS && next(random) >> 31)
        nest(random, level + 1);
    replace(next(random));
}

void step(uint32_t &random, size_t self) {
    int id = static_cast<int>(next(random) >> 8) % MODULES;
    switch (mode) {
    case Mode::set:
        set_module(id);
        break;
    case Mode::nested:
        nest(random, 0);
        break;
    case Mode::specific:
        module_of_thread = id == 0 ? -1 : id;
        pthread_setspecific(key, id == 0 ? nullptr : &handles[id]);
        break;
    case Mode::getter:
        module_of_thread = id;
        current_module();
        break;
    case Mode::process:
        // The other threads have the module of the process.
        if (self == 0) {
            module_of_thread = id;
            set_module(id);
        }
        break;
    case Mode::late:
        // This call is in no wrapper.
        module_of_thread = (id + 1) % MODULES;
        current_module();
        module_of_thread = id;
        break;
    case Mode::field: {
        // The first word is an address at which nothing is mapped, and the second one is a null pointer.
        Request request = {{8, 0}, &sessions[id]};
        module_of_thread = id;
        set_request(&request);
        break;
    }
    case Mode::hook:
        module_of_thread = id;
        break;
    case Mode::shared:
        module_of_thread = id;
        share(self, 16 + random % 3000);
        return;
    }
    replace(next(random));
}

void *run(void *argument) {
    auto self = reinterpret_cast<size_t>(argument);
    uint32_t random = 4711 + 977 * static_cast<uint32_t>(self);
    pthread_barrier_wait(&begin);
    for (int i = 0; i < steps; i++)
        step(random, self);
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return nullptr;
}

void print_modules() {
    const char *separator = "{";
    for (int i = 0; i <= MODULES; i++) {
        const Counters &module = counters[i];
        if (module.alloc_count == 0)
            continue;
        char name[32], text[256];
        if (i == MODULES)
            snprintf(name, sizeof name, "[no tag]");
        else if (mode == Mode::nested)
            snprintf(name, sizeof name, "%s", names[i]);
        else if (mode == Mode::specific)
            snprintf(name, sizeof name, "%p", static_cast<void *>(&handles[i]));
        else
            snprintf(name, sizeof name, "%d", i);
        uint64_t bytes = module.alloc_bytes, count = module.alloc_count;
        uint64_t free_bytes = module.free_bytes, free_count = module.free_count;
        snprintf(text, sizeof text,
                 "%s\"%s\":{\"alloc_bytes\":%lu,\"alloc_count\":%lu,\"free_bytes\":%lu,\"free_count\":%lu,"
                 "\"live_bytes\":%lu,\"live_count\":%lu}",
                 separator, name, bytes, count, free_bytes, free_count, bytes - free_bytes, count - free_count);
        print_text(text);
        separator = ",";
    }
    print_text("}\n");
}

Mode mode_of(const char *name) {
    const char *modes[] = {"set", "nested", "specific", "getter", "process", "hook", "late", "field", "shared"};
    for (int i = 0; i < 9; i++)
        if (strcmp(name, modes[i]) == 0)
            return static_cast<Mode>(i);
    abort();
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    mode = mode_of(argv[1]);
    steps = atoi(argv[2]);
    // Its key is not that of another library.
    for (int i = 0; i < 3; i++)
        pthread_key_create(&key, nullptr);
    if (key != 2)
        abort();
    for (int i = 0; i < MODULES; i++) {
        snprintf(names[i], sizeof names[i], "module %d", i);
        sessions[i] = {{0, 0, 0}, names[i], i, -1};
    }
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, nullptr, THREADS + 1);
    pthread_barrier_init(&end, nullptr, THREADS + 1);
    pthread_barrier_init(&shared, nullptr, 2);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], nullptr, run, reinterpret_cast<void *>(i)) != 0)
            abort();
    ledger_start();
    if (mode == Mode::process)
        set_phase(MODULES - 1);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    print_modules();
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&end);
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    return 0;
}
