// SPDX-License-Identifier: GPL-2.0
/*
 * Read a file again and again: readloop FILE [PASSES]
 *
 * Ends after so many passes, or when it is told to (SIGTERM), and says how much
 * it has read: "passes=P mib=N". The file stays open all the time: the last to
 * close a block device drops its page cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK	(1024 * 1024)

static int told;

static void tell(int sig)
{
	(void)sig;
	__atomic_store_n(&told, 1, __ATOMIC_RELAXED);
}

static int was_told(void)
{
	return __atomic_load_n(&told, __ATOMIC_RELAXED);
}

/* The bytes of one pass, or -1. */
static long long read_once(int fd, char *chunk)
{
	long long bytes = 0;
	ssize_t got;

	if (lseek(fd, 0, SEEK_SET))
		return -1;
	while (!was_told()) {
		got = read(fd, chunk, CHUNK);
		if (got < 0 && errno != EINTR)
			return -1;
		if (got == 0)
			break;
		if (got > 0)
			bytes += got;
	}
	return bytes;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = tell };
	long passes = 0, wanted = argc == 3 ? atol(argv[2]) : 0;
	long long bytes = 0, got = 0;
	char *chunk = malloc(CHUNK);
	int fd;

	if (argc < 2 || argc > 3 || !chunk) {
		fprintf(stderr, "usage: readloop FILE [PASSES]\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY);
	if (fd < 0 || sigaction(SIGTERM, &action, NULL)) {
		perror(argv[1]);
		return 1;
	}
	while (!was_told() && got >= 0 && (!wanted || passes < wanted)) {
		got = read_once(fd, chunk);
		bytes += got;
		passes++;
	}
	if (got < 0) {
		perror(argv[1]);
		return 1;
	}
	printf("passes=%ld mib=%lld\n", passes, bytes >> 20);
	return 0;
}
