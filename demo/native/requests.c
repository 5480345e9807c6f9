/* Request parsing: each request frees all that it allocates. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service.h"

#define HEADERS 6

NAMED static char *header_copy(const char *text)
{
	size_t length = strlen(text) + 1;
	char *copy = malloc(length);
	if (copy != NULL)
		memcpy(copy, text, length);
	return copy;
}

NAMED static char **request_parse(uint64_t number)
{
	char **headers = calloc(HEADERS, sizeof *headers);
	if (headers == NULL)
		return NULL;
	for (uint64_t i = 0; i < HEADERS; i++) {
		char line[96];
		snprintf(line, sizeof line, "x-header-%llu: request %llu", (unsigned long long)i,
			 (unsigned long long)number);
		headers[i] = header_copy(line);
	}
	return headers;
}

NAMED static void request_free(char **headers)
{
	for (int i = 0; i < HEADERS; i++)
		free(headers[i]);
	free(headers);
}

NAMED uint64_t serve_request(uint64_t number)
{
	char **headers = request_parse(number);
	if (headers == NULL)
		return 0;
	uint64_t length = headers[0] != NULL ? strlen(headers[0]) : 0;
	request_free(headers);
	return length;
}
