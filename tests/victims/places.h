/* Conversion of code addresses to object and offset. */
#ifndef PLACES_H
#define PLACES_H

#include <stddef.h>
#include <stdint.h>

struct place {
    const char *object; /* name in the dynamic linker, "" for the executable; NULL if no object contains the address */
    uint64_t offset;    /* virtual address in the object as in its symbol table; without an object, the address */
};

/* Finds the places of `count` addresses with dl_iterate_phdr. Allocates nothing. */
void find_places(const uintptr_t *addresses, size_t count, struct place *places);

#endif
