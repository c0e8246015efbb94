// SPDX-License-Identifier: GPL-2.0
/*
 * What others notice of something that goes on in the guest.
 *
 * One thread sleeps until the next millisecond, again and again, and adds up
 * how late it wakes; another copies memory. Until SIGTERM, then it says
 * "seconds=S late_ms=L worst_ms=W wakeups=N copied_mib=C".
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS	1000000LL
#define CHUNK		(1024UL * 1024)		/* larger than the caches that matter */
#define CHUNKS		16

static int told;
static unsigned long copied;
static long long late_ns, worst_ns, wakeups;

static void tell(int sig)
{
	(void)sig;
	__atomic_store_n(&told, 1, __ATOMIC_RELAXED);
}

static int was_told(void)
{
	return __atomic_load_n(&told, __ATOMIC_RELAXED);
}

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void *copy(void *memory)
{
	char *from = memory, *to = from + CHUNKS * CHUNK;

	while (!was_told()) {
		size_t at = copied % CHUNKS * CHUNK;

		memcpy(to + at, from + at, CHUNK);
		__atomic_add_fetch(&copied, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* A wake-up that is missed altogether counts by how late the next one is. */
static void sleep_again_and_again(void)
{
	long long due = now_ns();

	while (!was_told()) {
		struct timespec ts;
		long long late;

		due += PERIOD_NS;
		ts.tv_sec = due / 1000000000LL;
		ts.tv_nsec = due % 1000000000LL;
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
			continue;
		late = now_ns() - due;
		late_ns += late;
		worst_ns = late > worst_ns ? late : worst_ns;
		wakeups++;
		if (late > PERIOD_NS)
			due = now_ns();
	}
}

int main(void)
{
	struct sigaction action = { .sa_handler = tell };
	char *memory = malloc(2 * CHUNKS * CHUNK);
	pthread_t copier;
	long long begun;

	if (!memory)
		return 1;
	memset(memory, 1, 2 * CHUNKS * CHUNK);
	sigaction(SIGTERM, &action, NULL);
	begun = now_ns();
	if (pthread_create(&copier, NULL, copy, memory))
		return 1;
	sleep_again_and_again();
	pthread_join(copier, NULL);
	printf("seconds=%.3f late_ms=%.3f worst_ms=%.3f wakeups=%lld copied_mib=%lu\n",
	       (now_ns() - begun) / 1e9, late_ns / 1e6, worst_ns / 1e6, wakeups,
	       copied * CHUNK >> 20);
	return 0;
}
