/* The leak: each login inserts a session into a table, and sessions are never removed. */

#include <stdlib.h>
#include <string.h>

#include "service.h"

#define BUCKETS 1024

struct session {
	struct session *next;
	uint64_t user;
	char attributes[2032];
};

static struct session *session_table[BUCKETS];

NAMED static struct session *session_table_remember(uint64_t user)
{
	struct session *session = malloc(sizeof *session);
	if (session == NULL)
		return NULL;
	session->user = user;
	session->next = session_table[user % BUCKETS];
	session_table[user % BUCKETS] = session;
	return session;
}

NAMED static int session_open(uint64_t user, const char *method)
{
	struct session *session = session_table_remember(user);
	if (session == NULL)
		return 0;
	memset(session->attributes, 0, sizeof session->attributes);
	strncpy(session->attributes, method, sizeof session->attributes - 1);
	return 1;
}

NAMED int login_with_password(uint64_t user)
{
	return session_open(user, "password");
}

NAMED int login_with_token(uint64_t user)
{
	return session_open(user, "token");
}
