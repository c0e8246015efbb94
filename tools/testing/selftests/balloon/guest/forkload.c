// SPDX-License-Identifier: GPL-2.0
/*
 * A job of many short processes, as a compiler's: forkload PROCESSES JOBS FILE
 *
 * JOBS at a time, each process is a new program that writes some MiB of memory,
 * more or less of it as its number has it, reads a part of FILE as a compiler
 * reads headers, and ends. Says how many ended well, how many were killed, and
 * how long all of them took.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB		(1024UL * 1024)
#define LEAST_MIB	16
#define MORE_MIB	48	/* at the most */
#define READ_MIB	8	/* of FILE_MIB */
#define FILE_MIB	64

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Wherever the part begins, many processes read it too. */
static int read_part(const char *path, unsigned long number)
{
	static char chunk[64 * 1024];
	off_t at = number * 5 % (FILE_MIB - READ_MIB) * MIB;
	off_t end = at + READ_MIB * MIB;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	for (; at < end; at += sizeof(chunk))
		if (pread(fd, chunk, sizeof(chunk), at) != sizeof(chunk))
			return -1;
	return close(fd);
}

static int compile(const char *path, unsigned long number)
{
	size_t bytes = (LEAST_MIB + number * 7 % (MORE_MIB + 1)) * MIB;
	size_t page = sysconf(_SC_PAGESIZE), at;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || read_part(path, number)) {
		perror("forkload");
		return 1;
	}
	for (at = 0; at < bytes; at += page)
		memset(memory + at, (char)number, page / 4);
	for (at = 0; at < bytes; at += page)
		if (memory[at] != (char)number)
			return 1;
	return 0;
}

static void start(const char *path, unsigned long number)
{
	char text[24];

	if (fork())
		return;
	snprintf(text, sizeof(text), "%lu", number);
	execl("/proc/self/exe", "forkload", "-", text, path, NULL);
	_exit(127);
}

int main(int argc, char **argv)
{
	unsigned long wanted, jobs, begun = 0, ended = 0, good = 0, killed = 0;
	double begin = now();

	if (argc == 4 && !strcmp(argv[1], "-"))
		return compile(argv[3], atol(argv[2]));
	wanted = argc == 4 ? atol(argv[1]) : 0;
	jobs = argc == 4 ? atol(argv[2]) : 0;
	if (!wanted || !jobs) {
		fprintf(stderr, "usage: forkload PROCESSES JOBS FILE\n");
		return 2;
	}
	while (ended < wanted) {
		int status;

		while (begun < wanted && begun < ended + jobs)
			start(argv[3], begun++);
		if (wait(&status) < 0) {
			perror("forkload: wait");
			return 1;
		}
		ended++;
		good += WIFEXITED(status) && !WEXITSTATUS(status);
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	}
	printf("processes=%lu good=%lu killed=%lu seconds=%.3f\n", wanted, good,
	       killed, now() - begin);
	return good == wanted ? 0 : 1;
}
