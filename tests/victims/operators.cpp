// `operators ROUNDS THROWS` calls every operator new and delete of C++, malloc and free, and then operator new with
// sizes that make it throw. An executable that survives this untraced must survive it traced.
#include <cstdint>
#include <cstdlib>
#include <new>

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

// Returns 1 if operator new threw.
__attribute__((noinline)) int refused(std::size_t size) {
    try {
        void *block = ::operator new(size);
        ::operator delete(block);
        return 0;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
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
        // The exception object is a block too, unless the allocator throws a static one.
        seen += refused(size);
    }
    if (throws && seen != static_cast<int>(throws) + 1)
        return 3;
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
