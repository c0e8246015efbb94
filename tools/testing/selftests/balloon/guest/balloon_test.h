/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the balloon's guest-side tests share: a line to the host, the kernel's
 * counters, the module, memory hogs and probes.
 *
 * kselftest_harness.h may be included once in a program, by the test itself;
 * nothing here reports a test's result.
 */
#ifndef BALLOON_TEST_H
#define BALLOON_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

#include "kselftest.h"

#define MIB		(1024LL * 1024)
#define WIRE_PAGE	4096LL	/* the device's unit, whatever the page size */
#define BIT(n)		(1ULL << (n))

/* Generous: a wait that fails after this has failed, however slow the host is */
#define SETTLE_SECONDS	60

double now(void);

/* Poll @condition every 5 ms for at most @seconds; true as soon as it holds. */
#define WAIT_FOR(condition, seconds) ({				\
	double wait_end_ = now() + (seconds);			\
	bool wait_held_;					\
								\
	while (!(wait_held_ = (condition)) && now() < wait_end_) \
		usleep(5000);					\
	wait_held_; })

/* Files; the numbers are -1 where there is none to be read */
bool write_file(const char *path, const char *text);
ssize_t read_file(const char *path, char *text, size_t size);
long long read_number(const char *path);
long long vm_counter(const char *name);
long long vm_counter_sum(const char *prefix);
long long meminfo_bytes(const char *name);
long long free_bytes(void);
void caches_drop(void);

/* The host; a request is one line and so is its answer */
bool host_request(char *answer, size_t size, const char *format, ...)
	__printf(3, 4);
long long host_number(const char *format, ...)
	__printf(1, 2);
long long host_field(const char *answer, const char *name);

/* The device and the driver; @why: what is missing for a test, or NULL */
const char *balloon_missing(void);
const char *device_name(void);
unsigned long long device_features(void);
bool device_bound(void);
bool device_bind(void);
bool device_unbind(void);
bool module_load(const char *parameters);
bool module_unload(void);
bool module_loaded(void);

/* A device that is plugged for a test; @properties: "NAME=on NAME=off ..." */
const char *plug_missing(void);
bool no_device(void);
bool device_plug(const char *properties);
bool device_unplug(void);
bool pci_remove(void);
bool pci_rescan(void);
long long queue_used(int number);

/* The driver's own files for a look inside, by the name before the colon */
long long debugfs_number(const char *file, const char *name);
ssize_t debugfs_read(const char *file, char *text, size_t size);
const char *module_symbol(const char *part, const char *ending);

/* Targets are what is left to the guest; a balloon is counted in pages */
long long memory_bytes(void);
long long balloon_pages(void);
long long pages_for(long long target);
bool target_set(long long target);
bool target_settled(long long target);
bool target_reach(long long target);
bool start_at(long long target, const char *parameters);
void start_over(void);

/* What the guest has without a balloon: nothing of it may be lost */
struct baseline {
	long long free;
	long long total;
};

struct baseline baseline_take(void);
bool baseline_back(const struct baseline *before, long long slack);

/* How often a test repeats itself; ROUNDS in the environment overrides it */
int rounds(int normal);

/* Memory with a content that can be checked */
struct buffer {
	unsigned long long *words;
	size_t bytes;
	unsigned long long seed;
};

bool buffer_map(struct buffer *buffer, long long bytes);
void buffer_fill(struct buffer *buffer, unsigned long long seed);
bool buffer_intact(const struct buffer *buffer);
bool buffer_is_zero(const struct buffer *buffer);
void buffer_unmap(struct buffer *buffer);

/* A process that fills memory, and says so; the first to be killed if any is */
enum hog_state { HOG_FULL, HOG_KILLED, HOG_CORRUPT, HOG_LATE };

struct hog {
	pid_t pid;
	int said;
};

bool hog_start(struct hog *hog, long long bytes, bool locked);
bool churn_start(struct hog *hog, long long bytes);
int hog_wait(struct hog *hog, int seconds);
bool hog_alive(struct hog *hog);
void hog_end(struct hog *hog);

/* A program beside the tests, with its arguments; its exit code, or -1 */
int program_run(const char *command);

/* Events; the trace buffer holds what hit since probes_start() or trace_start() */
bool probe_add(const char *name, const char *format, ...)
	__printf(2, 3);
bool probes_start(pid_t only);
void probes_stop(void);
bool trace_start(const char *system);
void trace_stop(const char *system);
long probe_hits(const char *name);
long long probe_sum(const char *name, const char *field);
void probes_clear(void);

/* Calls @each for every event in the trace, oldest first */
void probes_each(void (*each)(const char *name, const char *fields, void *data),
		 void *data);

#endif /* BALLOON_TEST_H */
