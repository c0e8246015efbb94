// SPDX-License-Identifier: GPL-2.0
/* Kprobe events and tracepoints: what ran, and with what. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balloon_test.h"

#define TRACING		"/sys/kernel/tracing"
#define EVENTS		TRACING "/events/balloon"

/*
 * At the start, when there is no balloon yet: the kernel refuses a buffer where
 * little memory is available.
 */
static void __attribute__((constructor)) make_room(void)
{
	write_file(TRACING "/buffer_size_kb", "512");
}

/* @format: "p FUNCTION [fetch]..." or "r FUNCTION [fetch]..." */
bool probe_add(const char *name, const char *format, ...)
{
	char place[256], line[384];
	va_list arguments;
	bool added;
	int fd = open(TRACING "/kprobe_events", O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd < 0)
		return false;
	va_start(arguments, format);
	vsnprintf(place, sizeof(place), format, arguments);
	va_end(arguments);
	snprintf(line, sizeof(line), "%c:balloon/%s%s\n", place[0], name, place + 1);
	added = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
	close(fd);
	if (!added)
		printf("# not a probe here: %s", line);
	return added;
}

static bool tracing_write(const char *file, const char *text)
{
	char path[96];
	bool written;

	snprintf(path, sizeof(path), TRACING "/%s", file);
	written = write_file(path, text);
	if (!written)
		printf("# \"%s\" to %s: %s\n", text, path, strerror(errno));
	return written;
}

static bool trace_enable(const char *system, const char *value)
{
	char file[64];

	snprintf(file, sizeof(file), "events/%s/enable", system);
	return tracing_write(file, value);
}

/* Records the tracepoints of a system from here on */
bool trace_start(const char *system)
{
	return tracing_write("trace", "") && trace_enable(system, "1");
}

void trace_stop(const char *system)
{
	trace_enable(system, "0");
}

/* Records what hits from here on; of one process only, unless @only is 0 */
bool probes_start(pid_t only)
{
	char filter[64];

	snprintf(filter, sizeof(filter), only ? "common_pid == %d" : "0", only);
	return tracing_write("trace", "") &&
	       tracing_write("events/balloon/filter", filter) &&
	       tracing_write("events/balloon/enable", "1");
}

void probes_stop(void)
{
	write_file(EVENTS "/enable", "0");
}

/* Probes of a module stay behind when it goes, so they are removed by name */
void probes_clear(void)
{
	probes_stop();
	write_file(TRACING "/kprobe_events", "");
	write_file(TRACING "/trace", "");
}

/*
 * "  task-pid [cpu] flags time: event: field=value ...", with "(where)" first if
 * it is a kprobe event.
 */
static bool parse_event(char *line, char **name, char **fields)
{
	char *time = strstr(line, ": ");
	char *end = time ? strstr(time + 2, ": ") : NULL;

	if (line[0] == '#' || !end)
		return false;
	*end = '\0';
	*name = time + 2;
	*fields = end + 2;
	return true;
}

void probes_each(void (*each)(const char *name, const char *fields, void *data),
		 void *data)
{
	FILE *trace = fopen(TRACING "/trace", "re");
	char line[512], *name, *fields;

	while (trace && fgets(line, sizeof(line), trace))
		if (parse_event(line, &name, &fields))
			each(name, fields, data);
	if (trace)
		fclose(trace);
}

struct tally {
	const char *name;
	const char *field;
	long hits;
	long long sum;
};

static void tally_one(const char *name, const char *fields, void *data)
{
	struct tally *tally = data;

	if (strcmp(name, tally->name))
		return;
	tally->hits++;
	if (tally->field)
		tally->sum += host_field(fields, tally->field);
}

long probe_hits(const char *name)
{
	struct tally tally = { .name = name };

	probes_each(tally_one, &tally);
	return tally.hits;
}

long long probe_sum(const char *name, const char *field)
{
	struct tally tally = { .name = name, .field = field };

	probes_each(tally_one, &tally);
	return tally.sum;
}
