// SPDX-License-Identifier: GPL-2.0
/* The kernel's counters, the line to the host, the module and its target. */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "balloon_test.h"

#define HOST_PORT	"/dev/virtio-ports/vb.host"
#define DEVICES		"/sys/bus/virtio/devices"
#define DRIVER		"/sys/bus/virtio/drivers/virtio_balloon"
#define MODULE_DIR	"/sys/module/virtio_balloon"
#define DEBUGFS		"/sys/kernel/debug/virtio_balloon"
#define BALLOON_ID	5	/* VIRTIO_ID_BALLOON */

/* Longer than the longest that a request may take: the end of a migration */
#define HOST_SECONDS	150

/* The driver itself waits less for a device that does not answer */
#define UNPLUG_SECONDS	45

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

ssize_t read_file(const char *path, char *text, size_t size)
{
	size_t length = 0;
	ssize_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	do {
		length += got;
		got = read(fd, text + length, size - 1 - length);
	} while (got > 0);
	close(fd);
	text[length] = '\0';
	return got < 0 ? -1 : (ssize_t)length;
}

bool write_file(const char *path, const char *text)
{
	ssize_t length = strlen(text);
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	bool written;

	if (fd < 0)
		return false;
	written = write(fd, text, length) == length;
	close(fd);
	return written;
}

long long read_number(const char *path)
{
	char text[64];

	return read_file(path, text, sizeof(text)) > 0 ? atoll(text) : -1;
}

/* The number after @name at the start of a line, as in vmstat and meminfo */
static long long find_number(char *text, const char *name)
{
	size_t length = strlen(name);
	char *line;

	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, name, length) && strchr(" :", line[length]))
			return atoll(line + length + 1);
	return -1;
}

static long long number_in(const char *path, const char *name)
{
	static char text[65536];

	return read_file(path, text, sizeof(text)) < 0 ? -1 : find_number(text, name);
}

long long vm_counter(const char *name)
{
	return number_in("/proc/vmstat", name);
}

/* A counter that is kept by zone: the sum of all that begin with @prefix */
long long vm_counter_sum(const char *prefix)
{
	static char text[65536];
	long long sum = 0;
	char *line;

	if (read_file("/proc/vmstat", text, sizeof(text)) < 0)
		return -1;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, prefix, strlen(prefix)) && strchr(line, ' '))
			sum += atoll(strchr(line, ' '));
	return sum;
}

long long meminfo_bytes(const char *name)
{
	long long kib = number_in("/proc/meminfo", name);

	return kib < 0 ? -1 : kib * 1024;
}

/*
 * After a big resize tens of MiB are in the lists that each CPU keeps of free
 * pages; MemFree does not count them, zoneinfo does.
 */
long long free_bytes(void)
{
	static char text[262144];
	long long pages = 0;
	char *line;

	if (read_file("/proc/zoneinfo", text, sizeof(text)) < 0)
		return -1;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		line += strspn(line, " ");
		if (!strncmp(line, "count:", 6))
			pages += atoll(line + 6);
	}
	return meminfo_bytes("MemFree") + pages * getpagesize();
}

void caches_drop(void)
{
	sync();
	write_file("/proc/sys/vm/drop_caches", "3");
}

/* True if a whole line has come within the time that the host is given */
static bool read_line(int fd, char *line, size_t size)
{
	double end = now() + HOST_SECONDS;
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	size_t length = 0;

	while (length < size - 1 && now() < end) {
		if (poll(&poller, 1, 1000) <= 0)
			continue;
		if (read(fd, line + length, 1) != 1)
			return false;
		if (line[length] == '\n') {
			line[length] = '\0';
			return true;
		}
		length++;
	}
	return false;
}

bool host_request(char *answer, size_t size, const char *format, ...)
{
	char line[4096] = "";
	va_list arguments;
	bool answered;
	int fd = open(HOST_PORT, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	va_start(arguments, format);
	vdprintf(fd, format, arguments);
	va_end(arguments);
	dprintf(fd, "\n");
	answered = read_line(fd, line, sizeof(line));
	close(fd);
	if (!answered || strncmp(line, "ok", 2)) {
		printf("# the host said: %s\n", answered ? line : "(nothing)");
		return false;
	}
	snprintf(answer, size, "%s", line + 2 + (line[2] == ' '));
	return true;
}

long long host_number(const char *format, ...)
{
	char request[128], answer[4096];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(request, sizeof(request), format, arguments);
	va_end(arguments);
	if (!host_request(answer, sizeof(answer), "%s", request))
		return -1;
	return atoll(answer);
}

/* The number after "name=" in an answer that has several */
long long host_field(const char *answer, const char *name)
{
	size_t length = strlen(name);
	const char *field;

	for (field = answer; field; field = strchr(field, ' ')) {
		field += strspn(field, " ");
		if (!strncmp(field, name, length) && field[length] == '=')
			return atoll(field + length + 1);
	}
	return -1;
}

const char *device_name(void)
{
	static char name[32];
	char path[96], id[32];
	int i;

	for (i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "virtio%d", i);
		snprintf(path, sizeof(path), DEVICES "/%s/device", name);
		if (read_file(path, id, sizeof(id)) > 0 &&
		    strtol(id, NULL, 16) == BALLOON_ID)
			return name;
	}
	return NULL;
}

const char *balloon_missing(void)
{
	if (access(HOST_PORT, R_OK | W_OK))
		return "no host to talk to (" HOST_PORT " is missing)";
	if (!device_name())
		return "no virtio balloon device";
	if (!module_loaded() && access("/mod/virtio_balloon.ko", R_OK))
		return "no module to load (/mod/virtio_balloon.ko is missing)";
	return NULL;
}

/* sysfs shows the negotiated bits as a row of digits, bit 0 first */
unsigned long long device_features(void)
{
	char path[96], digits[128];
	unsigned long long bits = 0;
	int i;

	snprintf(path, sizeof(path), DEVICES "/%s/features", device_name());
	if (read_file(path, digits, sizeof(digits)) < 0)
		return 0;
	for (i = 0; i < 64 && digits[i]; i++)
		if (digits[i] == '1')
			bits |= BIT(i);
	return bits;
}

bool device_bound(void)
{
	char path[96];

	snprintf(path, sizeof(path), DRIVER "/%s", device_name());
	return !access(path, F_OK);
}

/* The link to the driver is there before its probe is over */
static bool device_ready(void)
{
	char path[96], status[32];

	snprintf(path, sizeof(path), DEVICES "/%s/status", device_name());
	return device_bound() && read_file(path, status, sizeof(status)) > 0 &&
	       strtol(status, NULL, 16) & VIRTIO_CONFIG_S_DRIVER_OK;
}

bool device_bind(void)
{
	return write_file(DRIVER "/bind", device_name()) && device_bound();
}

bool device_unbind(void)
{
	return write_file(DRIVER "/unbind", device_name()) && !device_bound();
}

bool module_loaded(void)
{
	return !access(MODULE_DIR, F_OK);
}

bool module_load(const char *parameters)
{
	int fd = open("/mod/virtio_balloon.ko", O_RDONLY | O_CLOEXEC);
	long failed;

	if (fd < 0)
		return false;
	failed = syscall(SYS_finit_module, fd, parameters, 0);
	if (failed)
		printf("# finit_module: %s\n", strerror(errno));
	close(fd);
	return !failed;
}

bool module_unload(void)
{
	if (!module_loaded())
		return true;
	if (syscall(SYS_delete_module, "virtio_balloon", O_NONBLOCK)) {
		printf("# delete_module: %s\n", strerror(errno));
		return false;
	}
	return true;
}

const char *plug_missing(void)
{
	if (access(HOST_PORT, R_OK | W_OK))
		return "no host to talk to (" HOST_PORT " is missing)";
	if (!module_loaded() && access("/mod/virtio_balloon.ko", R_OK))
		return "no module to load (/mod/virtio_balloon.ko is missing)";
	return NULL;
}

/* Neither a device nor a driver, whatever a test before has left */
bool no_device(void)
{
	if (device_name())
		target_set(memory_bytes());
	return module_unload() && (!device_name() || device_unplug());
}

bool device_plug(const char *properties)
{
	return host_number("plug %s", properties) != -1 &&
	       WAIT_FOR(device_name() && device_ready(), 30);
}

/*
 * On PCI the host waits for the guest to let go.  A CCW device is gone at once;
 * the driver learns that later, and gets no answer any more.
 */
bool device_unplug(void)
{
	int wait = access("/sys/bus/pci", F_OK) ? UNPLUG_SECONDS : 0;

	return host_number("unplug") != -1 &&
	       WAIT_FOR(!device_name() && !balloon_pages(), wait);
}

/* What the guest's own part of an unplugging is, also where QEMU refuses one */
bool pci_remove(void)
{
	char path[96];

	snprintf(path, sizeof(path), DEVICES "/%s/../remove", device_name());
	return write_file(path, "1") && !device_name();
}

bool pci_rescan(void)
{
	return write_file("/sys/bus/pci/rescan", "1") &&
	       WAIT_FOR(device_name() && device_ready(), 30);
}

/* Buffers that the device has used of a queue, by its own number for it */
long long queue_used(int number)
{
	char answer[128], name[8];

	snprintf(name, sizeof(name), "q%d", number);
	if (!host_request(answer, sizeof(answer), "queues"))
		return -1;
	return host_field(answer, name);
}

ssize_t debugfs_read(const char *file, char *text, size_t size)
{
	char path[96];

	snprintf(path, sizeof(path), DEBUGFS "/%s/%s", device_name(), file);
	return read_file(path, text, size);
}

long long debugfs_number(const char *file, const char *name)
{
	char text[4096];

	return debugfs_read(file, text, sizeof(text)) < 0 ? -1 : find_number(text, name);
}

static bool ends_with(const char *text, const char *ending)
{
	size_t length = strlen(text), end = strlen(ending);

	return length >= end && !strcmp(text + length - end, ending);
}

/* A function of the module by parts of its name; "module:function", or NULL */
const char *module_symbol(const char *part, const char *ending)
{
	static char found[128];
	char line[512], name[128], module[64];
	FILE *symbols = fopen("/proc/kallsyms", "re");
	bool seen = false;

	while (symbols && !seen && fgets(line, sizeof(line), symbols)) {
		if (sscanf(line, "%*s %*c %100s [%60[^]]", name, module) != 2)
			continue;
		seen = !strcmp(module, "virtio_balloon") &&
		       strstr(name, part) && ends_with(name, ending);
	}
	if (symbols)
		fclose(symbols);
	if (!seen)
		return NULL;
	snprintf(found, sizeof(found), "virtio_balloon:%s", name);
	return found;
}

long long memory_bytes(void)
{
	static long long bytes;

	if (!bytes)
		bytes = host_number("mem");
	return bytes;
}

/* Exact: every page that enters or leaves a balloon is counted here */
long long balloon_pages(void)
{
	return vm_counter("balloon_inflate") - vm_counter("balloon_deflate");
}

/*
 * How many pages a balloon has that leaves @target bytes to the guest: QEMU
 * rounds the balloon down to wire pages, and the driver that up to its own.
 */
long long pages_for(long long target)
{
	long long wire = (memory_bytes() - target) / WIRE_PAGE;
	long long per_page = getpagesize() / WIRE_PAGE;

	return (wire + per_page - 1) / per_page;
}

bool target_set(long long target)
{
	return host_number("target-bytes %lld", target) != -1;
}

/* Both sides agree that the target is reached, to the page */
bool target_settled(long long target)
{
	long long pages = pages_for(target);

	return balloon_pages() == pages &&
	       host_number("actual") == memory_bytes() - pages * getpagesize();
}

bool target_reach(long long target)
{
	if (target_set(target) && WAIT_FOR(target_settled(target), SETTLE_SECONDS))
		return true;
	printf("# target %lld MiB: balloon %lld pages of %lld, actual %lld MiB\n",
	       target / MIB, balloon_pages(), pages_for(target),
	       host_number("actual") / MIB);
	return false;
}

/* A driver that knows nothing of earlier tests, its balloon at @target */
bool start_at(long long target, const char *parameters)
{
	return module_unload() && target_set(memory_bytes()) &&
	       module_load(parameters) && target_reach(target);
}

/* Leaves nothing behind that the next test could trip over */
void start_over(void)
{
	probes_clear();
	target_set(memory_bytes());
	module_unload();
}

/*
 * After a first use of all that is tested, so that what stays allocated from
 * then on is not counted.
 */
struct baseline baseline_take(void)
{
	struct baseline now_is;

	caches_drop();
	now_is.free = free_bytes();
	now_is.total = meminfo_bytes("MemTotal");
	return now_is;
}

bool baseline_back(const struct baseline *before, long long slack)
{
	caches_drop();
	if (!balloon_pages() && meminfo_bytes("MemTotal") == before->total &&
	    WAIT_FOR(free_bytes() >= before->free - slack, 10))
		return true;
	printf("# balloon %lld pages, free %lld of %lld KiB, MemTotal %lld of %lld KiB\n",
	       balloon_pages(), free_bytes() / 1024, before->free / 1024,
	       meminfo_bytes("MemTotal") / 1024, before->total / 1024);
	return false;
}

int rounds(int normal)
{
	const char *wanted = getenv("ROUNDS");

	return wanted ? atoi(wanted) : normal;
}
