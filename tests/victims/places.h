/* Where addresses lie: which loaded object, and where in it. */
#ifndef PLACES_H
#define PLACES_H

#include <stddef.h>
#include <stdint.h>

struct place {
    const char *object; /* as the dynamic linker names it: "" is the program; NULL where no object is loaded */
    uint64_t offset;    /* in the object, as its own symbols count; without an object the address itself */
};

/* Finds the places of `count` addresses, by what the dynamic linker says. Allocates nothing. */
void find_places(const uintptr_t *addresses, size_t count, struct place *places);

#endif
