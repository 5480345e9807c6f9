// `operators ROUNDS THROWS [nested]` calls every operator new and delete of C++, malloc and free, and then operator new with
// sizes that make it throw. If THROWS is not 0, a last call succeeds after a new handler has run. With `nested`, the new handler
// calls an operator new that throws too. An executable that survives this untraced must survive it traced.
#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/resource.h>

extern "C" {
#include "ledger.h"
}

namespace {

constexpr int PLACES = 64;
// Sizes are multiples of it, since some libraries round up.
constexpr std::size_t ALIGNMENT = 128;

struct Place {
    void *block = nullptr;
    std::size_t size = 0;
    std::uint32_t kind = 0;
};

Place places[PLACES];
std::uint32_t state = 521288629u;

std::uint32_t next_random() {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

std::size_t any_size(std::uint32_t kind) {
    std::size_t size = next_random() % 16 == 0 ? next_random() % 200000 : next_random() % 700;
    return kind >= 4 && kind < 8 ? (size / ALIGNMENT + 1) * ALIGNMENT : size + 1;
}

constexpr auto ALIGNED = std::align_val_t(ALIGNMENT);

void *take(std::uint32_t kind, std::size_t size) {
    switch (kind) {
    case 0:
        return ::operator new(size);
    case 1:
        return ::operator new[](size);
    case 2:
        return ::operator new(size, std::nothrow);
    case 3:
        return ::operator new[](size, std::nothrow);
    case 4:
        return ::operator new(size, ALIGNED);
    case 5:
        return ::operator new[](size, ALIGNED);
    case 6:
        return ::operator new(size, ALIGNED, std::nothrow);
    case 7:
        return ::operator new[](size, ALIGNED, std::nothrow);
    default:
        return std::malloc(size);
    }
}

void give(const Place &place) {
    bool sized = next_random() % 2 == 0;
    switch (place.kind) {
    case 0:
        sized ? ::operator delete(place.block, place.size) : ::operator delete(place.block);
        break;
    case 1:
        sized ? ::operator delete[](place.block, place.size) : ::operator delete[](place.block);
        break;
    case 2:
        ::operator delete(place.block, std::nothrow);
        break;
    case 3:
        ::operator delete[](place.block, std::nothrow);
        break;
    case 4:
        sized ? ::operator delete(place.block, place.size, ALIGNED) : ::operator delete(place.block, ALIGNED);
        break;
    case 5:
        sized ? ::operator delete[](place.block, place.size, ALIGNED) : ::operator delete[](place.block, ALIGNED);
        break;
    case 6:
        ::operator delete(place.block, ALIGNED, std::nothrow);
        break;
    case 7:
        ::operator delete[](place.block, ALIGNED, std::nothrow);
        break;
    default:
        std::free(place.block);
    }
}

// By their stack pointers, its calls could be nested in an operator new that its caller has called.
__attribute__((noipa)) void call_allocator() {
    void *block = std::malloc(100);
    ledger_alloc(nullptr, block, 100);
    ledger_free(block);
    std::free(block);
}

// Its destructor runs while an exception unwinds the stack.
struct Guard {
    ~Guard() { call_allocator(); }
};

// Returns 1 if operator new threw.
__attribute__((noinline)) int refused(std::size_t size) {
    try {
        Guard guard;
        void *block = ::operator new(size);
        ::operator delete(block);
        return 0;
    } catch (const std::bad_alloc &) {
        call_allocator();
        return 1;
    }
}

void *reserve;
bool is_nested;

// A new handler: frees the reserve. The next attempt throws.
void free_reserve() {
    ledger_free(reserve);
    std::free(reserve);
    call_allocator();
    std::set_new_handler(nullptr);
    if (is_nested && !refused(PTRDIFF_MAX / 2))
        std::abort();
}

struct rlimit address_space;

// A new handler: lifts the limit. The next attempt succeeds.
void lift_limit() {
    setrlimit(RLIMIT_AS, &address_space);
    std::set_new_handler(nullptr);
}

// Calls operator new with a limit on the address space. The first attempt fails.
void allocate_at_limit() {
    constexpr std::size_t size = 64 << 20;
    getrlimit(RLIMIT_AS, &address_space);
    struct rlimit low = address_space;
    low.rlim_cur = 1 << 20;
    std::set_new_handler(lift_limit);
    setrlimit(RLIMIT_AS, &low);
    void *block = ::operator new(size);
    ledger_alloc(nullptr, block, size);
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3 && count != 4)
        return 2;
    is_nested = count == 4;
    std::size_t rounds = std::strtoul(arguments[1], nullptr, 10);
    std::size_t throws = std::strtoul(arguments[2], nullptr, 10);
    // The first throw allocates the memory for exceptions; do it before recording starts.
    int seen = throws ? refused(PTRDIFF_MAX / 2) : 0;
    ::operator delete(::operator new(64));
    ledger_start();
    for (std::size_t round = 0; round < rounds; round++) {
        Place &place = places[next_random() % PLACES];
        if (place.block) {
            ledger_free(place.block);
            give(place);
        }
        place.kind = next_random() % 9;
        place.size = any_size(place.kind);
        place.block = take(place.kind, place.size);
        ledger_alloc(nullptr, place.block, place.size);
        ::operator delete(nullptr);
        std::free(nullptr);
    }
    for (std::size_t round = 0; round < throws; round++) {
        std::size_t size = PTRDIFF_MAX / 2 + round;
        reserve = std::malloc(5000);
        ledger_alloc(nullptr, reserve, 5000);
        std::set_new_handler(free_reserve);
        // The exception object is a block too. It is not in the ledger.
        seen += refused(size);
    }
    if (throws && seen != static_cast<int>(throws) + 1)
        return 3;
    if (throws)
        allocate_at_limit();
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
