// SPDX-License-Identifier: GPL-2.0
/* Memory with a content that can be checked, and processes that hog it. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "balloon_test.h"

/*
 * Whatever is killed, it must not be what watches: every test program starts
 * protected, and so do its children until they ask for the opposite.
 */
static void __attribute__((constructor)) protect(void)
{
	write_file("/proc/self/oom_score_adj", "-1000");
}

/*
 * Without MAP_NORESERVE the overcommit heuristic would refuse a large mapping
 * before there is an OOM: without DEFLATE_ON_OOM the balloon lowers MemTotal.
 */
bool buffer_map(struct buffer *buffer, long long bytes)
{
	buffer->bytes = bytes & ~(long long)(getpagesize() - 1);
	buffer->words = mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (buffer->words != MAP_FAILED)
		return true;
	printf("# no mapping of %lld bytes: %s\n", bytes, strerror(errno));
	buffer->words = NULL;
	return false;
}

static unsigned long long word_at(unsigned long long seed, size_t index)
{
	return (seed + index) * 0x9e3779b97f4a7c15ULL;
}

void buffer_fill(struct buffer *buffer, unsigned long long seed)
{
	size_t i;

	buffer->seed = seed;
	for (i = 0; i < buffer->bytes / sizeof(*buffer->words); i++)
		buffer->words[i] = word_at(seed, i);
}

bool buffer_intact(const struct buffer *buffer)
{
	size_t i;

	for (i = 0; i < buffer->bytes / sizeof(*buffer->words); i++) {
		if (buffer->words[i] == word_at(buffer->seed, i))
			continue;
		printf("# word %zu of %zu MiB is %#llx\n", i,
		       buffer->bytes >> 20, buffer->words[i]);
		return false;
	}
	return true;
}

bool buffer_is_zero(const struct buffer *buffer)
{
	size_t i;

	for (i = 0; i < buffer->bytes / sizeof(*buffer->words); i++) {
		if (!buffer->words[i])
			continue;
		printf("# word %zu of a new buffer is %#llx\n", i, buffer->words[i]);
		return false;
	}
	return true;
}

void buffer_unmap(struct buffer *buffer)
{
	if (buffer->words)
		munmap(buffer->words, buffer->bytes);
	buffer->words = NULL;
}

static void __noreturn hog_run(int say, long long bytes, bool locked)
{
	struct buffer buffer;
	char state;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	write_file("/proc/self/oom_score_adj", "1000");
	if (!buffer_map(&buffer, bytes))
		_exit(1);
	buffer_fill(&buffer, getpid());
	if (locked && mlock(buffer.words, buffer.bytes))
		_exit(1);
	state = buffer_intact(&buffer) ? 'y' : 'n';
	if (write(say, &state, 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* Returns 0 in the child, whose end of the pipe is @say */
static pid_t hog_fork(struct hog *hog, int *say)
{
	int ends[2];

	if (pipe(ends))
		return -1;
	fflush(stdout);
	hog->pid = fork();
	if (!hog->pid) {
		close(ends[0]);
		*say = ends[1];
		return 0;
	}
	close(ends[1]);
	hog->said = ends[0];
	return hog->pid;
}

bool hog_start(struct hog *hog, long long bytes, bool locked)
{
	int say;
	pid_t pid = hog_fork(hog, &say);

	if (!pid)
		hog_run(say, bytes, locked);
	return pid > 0;
}

/*
 * Memory comes and goes; new memory must be zero, and what is written must stay
 * for a while.  The child lives as long as that is so.
 */
static void __noreturn churn_run(long long bytes)
{
	unsigned long long seed = getpid();
	struct buffer buffer;
	bool good;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	do {
		good = buffer_map(&buffer, bytes) && buffer_is_zero(&buffer);
		if (!good)
			break;
		buffer_fill(&buffer, seed++);
		usleep(10000);
		good = buffer_intact(&buffer);
		buffer_unmap(&buffer);
	} while (good);
	fflush(stdout);
	_exit(1);
}

bool churn_start(struct hog *hog, long long bytes)
{
	int say;
	pid_t pid = hog_fork(hog, &say);

	if (!pid)
		churn_run(bytes);
	return pid > 0;
}

/* The pipe closes without a word if the hog is killed */
int hog_wait(struct hog *hog, int seconds)
{
	struct pollfd poller = { .fd = hog->said, .events = POLLIN };
	char state;

	if (poll(&poller, 1, seconds * 1000) <= 0)
		return HOG_LATE;
	if (read(hog->said, &state, 1) != 1)
		return HOG_KILLED;
	return state == 'y' ? HOG_FULL : HOG_CORRUPT;
}

bool hog_alive(struct hog *hog)
{
	return hog->pid > 0 && !waitpid(hog->pid, NULL, WNOHANG);
}

void hog_end(struct hog *hog)
{
	if (hog->pid <= 0)
		return;
	kill(hog->pid, SIGKILL);
	waitpid(hog->pid, NULL, 0);
	close(hog->said);
	hog->pid = 0;
}

/* As a hog, it and all that it starts are the first to be killed if any are */
int program_run(const char *command)
{
	char line[PATH_MAX], *here;
	int status;
	pid_t pid;

	here = realpath("/proc/self/exe", NULL);
	if (!here)
		return -1;
	snprintf(line, sizeof(line), "exec %s/%s >/dev/null", dirname(here), command);
	free(here);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		write_file("/proc/self/oom_score_adj", "1000");
		execl("/bin/sh", "sh", "-c", line, NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}
