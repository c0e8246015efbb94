// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's view of its memory, again and again: sample MILLISECONDS
 *
 * Prints a line of name=value with the rows below, until it is killed. Locked
 * in memory and never the OOM killer's choice: it is wanted most when memory
 * is short, and must neither stall then nor change what it measures.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char text[65536];

/* Print those rows of a file of "name value" or "name: value kB" lines. */
static void show(int fd, const char *const *rows)
{
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
	char *line;

	if (len < 0)
		return;
	text[len] = 0;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		size_t width = strcspn(line, ": ");
		const char *const *row;

		for (row = rows; *row; row++)
			if (strlen(*row) == width && !memcmp(*row, line, width))
				printf("%s=%lu ", *row,
				       strtoul(line + width + 1, NULL, 10));
	}
}

static void never_kill_me(void)
{
	FILE *file = fopen("/proc/self/oom_score_adj", "w");

	if (!file || fputs("-1000", file) < 0)
		perror("oom_score_adj");
	if (file)
		fclose(file);
}

int main(int argc, char **argv)
{
	static const char *const meminfo_rows[] = {
		"MemFree", "Buffers", "Cached", "AnonPages", NULL
	};
	static const char *const vmstat_rows[] = {
		"oom_kill", "balloon_inflate", "balloon_deflate", NULL
	};
	int meminfo = open("/proc/meminfo", O_RDONLY);
	int vmstat = open("/proc/vmstat", O_RDONLY);
	int pause_ms = argc == 2 ? atoi(argv[1]) : 0;

	if (meminfo < 0 || vmstat < 0 || pause_ms <= 0) {
		fprintf(stderr, "usage: sample MILLISECONDS\n");
		return 2;
	}
	never_kill_me();
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		perror("mlockall");
	for (;;) {
		show(meminfo, meminfo_rows);
		show(vmstat, vmstat_rows);
		printf("\n");
		fflush(stdout);
		usleep(pause_ms * 1000);
	}
}
