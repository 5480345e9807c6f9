/* A sampler of allocations with the USDT probes `alloc(block, size, weighted bytes)` and `free(block)` of the provider PROVIDER.
 * It takes samples while a tracer has raised the semaphore of its probe `alloc`. One thread at a time may call it. */
#ifndef SAMPLE_PROBES_H
#define SAMPLE_PROBES_H

#include <stddef.h>
#include <stdint.h>

/* Sets the mean number of bytes from one sample to the next. */
void start_sampler(uint64_t interval);
void *probed_malloc(size_t size);
/* Always moves the block. */
void *probed_realloc(void *block, size_t size);
void probed_free(void *block);
/* Returns the semaphore of the probe `alloc`. */
unsigned probe_semaphore(void);

#endif
