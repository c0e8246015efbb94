// SPDX-License-Identifier: GPL-2.0
/* A guest that is short of memory stays alive, and the balloon does not fight it. */
#include <linux/mempolicy.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define TARGET		(220 * MIB)
#define ROOMY		(500 * MIB)	/* there is free memory */
#define EDGE		(124 * MIB)	/* below the kernel's watermarks: never reached */
#define IMPOSSIBLE	(16 * MIB)
#define SYSTEM		"virtio_balloon"
#define DISK		"/dev/vda"
#define HOG_SECONDS	120

/* The largest batch: what may be on its way to the device when memory runs out */
#define BATCH		(32 * MIB)

/* A part of the machine for the processes that join */
#define GROUPS	"/sys/fs/cgroup"
#define GROUP	GROUPS "/balloon_test"

static bool group_add(const char *controller, const char *limit, const char *value)
{
	char enable[32], path[128];

	mount("none", GROUPS, "cgroup2", 0, NULL);
	snprintf(enable, sizeof(enable), "+%s", controller);
	snprintf(path, sizeof(path), GROUP "/%s", limit);
	return write_file(GROUPS "/cgroup.subtree_control", enable) &&
	       !mkdir(GROUP, 0755) && write_file(path, value);
}

static bool group_join(void)
{
	return write_file(GROUP "/cgroup.procs", "0");
}

static void group_leave(void)
{
	write_file(GROUPS "/cgroup.procs", "0");
}

static void group_remove(void)
{
	group_leave();
	WAIT_FOR(!rmdir(GROUP) || access(GROUP, F_OK), 10);
	umount(GROUPS);
}

FIXTURE(pressure)
{
	long long kills;
	long long inflated;
	long long deflated;
	struct hog hog;
};

FIXTURE_SETUP(pressure)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->kills = vm_counter("oom_kill");
	self->inflated = vm_counter("balloon_inflate");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(pressure)
{
	host_number("stats-interval 0");
	trace_stop(SYSTEM);
	group_remove();
	hog_end(&self->hog);
	start_over();
}

#define KILLS()		(vm_counter("oom_kill") - self->kills)
#define INFLATED()	((vm_counter("balloon_inflate") - self->inflated) * getpagesize())
#define DEFLATED()	((vm_counter("balloon_deflate") - self->deflated) * getpagesize())

/* As a Java heap: mapped at once, touched all over by four threads */
TEST_F_TIMEOUT(pressure, scattered_heap, 240)
{
	ASSERT_TRUE(target_reach(TARGET));
	EXPECT_EQ(0, program_run("memtouch -t 4 -r 800"));
	EXPECT_GT(DEFLATED(), 500 * MIB);
	EXPECT_EQ(0, KILLS());
}

TEST_F_TIMEOUT(pressure, huge_pages, 240)
{
	ASSERT_TRUE(target_reach(TARGET));
	EXPECT_EQ(0, program_run("memtouch -h 700"));
	EXPECT_GT(DEFLATED(), 400 * MIB);
	EXPECT_EQ(0, KILLS());
}

/* As a compiler's: in all that the balloon leaves, four processes at a time */
TEST_F_TIMEOUT(pressure, short_processes, 240)
{
	if (access(DISK, R_OK))
		SKIP(return, "no disk to read (" DISK " is missing)");
	ASSERT_TRUE(target_set(EDGE));
	ASSERT_TRUE(WAIT_FOR(debugfs_number("counters", "allocations failed, order 0") > 0,
			     SETTLE_SECONDS));
	EXPECT_EQ(0, program_run("forkload 60 4 " DISK));
	EXPECT_GT(DEFLATED(), 0);
	EXPECT_EQ(0, KILLS());
}

/* U6: the balloon is still growing, from early to nearly done */
TEST_F_TIMEOUT(pressure, while_inflating, 240)
{
	int i, all = rounds(4);

	for (i = 0; i < all; i++) {
		long long begun = (memory_bytes() - TARGET) * (2 * i + 1) / (2 * all);

		ASSERT_TRUE(start_at(memory_bytes(), ""));
		ASSERT_TRUE(target_set(EDGE));
		ASSERT_TRUE(WAIT_FOR(balloon_pages() * getpagesize() >= begun, SETTLE_SECONDS));
		EXPECT_EQ(0, program_run("memtouch 700"));
		EXPECT_EQ(0, KILLS());
	}
	EXPECT_GT(DEFLATED(), 0);
}

/* The kernel log from here on */
static int log_open(void)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (log >= 0)
		lseek(log, 0, SEEK_END);
	return log;
}

/* How many new lines are the driver's; one at a read */
static int log_lines(int log)
{
	char line[2048];
	ssize_t length;
	int count = 0;

	while ((length = read(log, line, sizeof(line) - 1)) > 0) {
		line[length] = '\0';
		if (strstr(line, "virtio_balloon virtio")) {
			printf("# %s", strchr(line, ';') ?: line);
			count++;
		}
	}
	return count;
}

static long long attempts(void)
{
	return debugfs_number("counters", "allocations failed, order 0");
}

/*
 * U7: what cannot be had is asked for ever more seldom, the log has it once, and
 * whatever changes is noticed.
 */
TEST_F_TIMEOUT(pressure, impossible_target, 240)
{
	long long locked = 200 * MIB, tries;
	char status[4096];
	int log = log_open();
	int lines;

	ASSERT_GE(log, 0);
	ASSERT_TRUE(hog_start(&self->hog, locked, true));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	ASSERT_TRUE(target_set(IMPOSSIBLE));
	/* Not a look until memory is free again: it may be too much for the guest */
	sleep(15);
	lines = log_lines(log);
	hog_end(&self->hog);
	/* After 0.2 s, 0.4 s, ... 5 s: seven times */
	tries = attempts();
	EXPECT_GT(tries, 0);
	EXPECT_LE(tries, 25);
	EXPECT_GE(lines, 1);
	EXPECT_LE(lines, 2);
	close(log);
	ASSERT_GT(debugfs_read("status", status, sizeof(status)), 0);
	EXPECT_NE(NULL, strstr(status, "last error: -ENOMEM\n"));
	EXPECT_EQ(pages_for(IMPOSSIBLE), debugfs_number("status", "target"));

	/* What came free is taken without a word from the host; before, so much was not there */
	EXPECT_TRUE(WAIT_FOR(INFLATED() > memory_bytes() - locked - 50 * MIB, SETTLE_SECONDS));
	ASSERT_TRUE(target_reach(500 * MIB));
	EXPECT_EQ(0, KILLS());
}

/* What was inflated while inflation rested, and how often it did */
struct rest {
	bool now;
	int begun;
	int ended;
	long long inflated;
};

static void add_rest(const char *name, const char *fields, void *data)
{
	struct rest *rest = data;

	if (!strcmp(name, "virtio_balloon_oom") || !strcmp(name, "virtio_balloon_pause"))
		rest->now = true;
	rest->begun += !strcmp(name, "virtio_balloon_pause");
	if (!strcmp(name, "virtio_balloon_resume")) {
		rest->now = false;
		rest->ended++;
	}
	if (rest->now && !strcmp(name, "virtio_balloon_batch") && strstr(fields, " inflate "))
		rest->inflated += host_field(fields, "pages");
}

/*
 * F33: from the first OOM call until the rest is over nothing is inflated but
 * what was announced already.  Then the target is reached without a word from
 * the host, for the program has ended.
 */
TEST_F_TIMEOUT(pressure, rests_and_comes_back, 240)
{
	struct rest rest = { 0 };

	ASSERT_TRUE(trace_start(SYSTEM));
	ASSERT_TRUE(target_set(TARGET));
	ASSERT_TRUE(WAIT_FOR(balloon_pages() * getpagesize() > 300 * MIB, SETTLE_SECONDS));
	ASSERT_TRUE(hog_start(&self->hog, 700 * MIB, false));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	hog_end(&self->hog);
	/* The rest is 10 s, and 20 s should memory run out once more */
	EXPECT_TRUE(WAIT_FOR(target_settled(TARGET), 2 * SETTLE_SECONDS));
	trace_stop(SYSTEM);
	probes_each(add_rest, &rest);
	EXPECT_GT(rest.begun, 0);
	EXPECT_EQ(rest.begun, rest.ended);
	EXPECT_LE(rest.inflated * getpagesize(), BATCH);
	EXPECT_EQ(0, KILLS());
}

static long long rest_ms(void)
{
	return debugfs_number("status", "rest");
}

static bool rest_is_firm(void)
{
	char status[4096];

	return debugfs_read("status", status, sizeof(status)) > 0 && strstr(status, ", firm\n");
}

/* True if the program got all, with the balloon's help */
static bool run_out(struct hog *hog)
{
	long long calls = debugfs_number("counters", "oom calls");
	bool full = hog_start(hog, 500 * MIB, false) && hog_wait(hog, HOG_SECONDS) == HOG_FULL;

	hog_end(hog);
	return full && debugfs_number("counters", "oom calls") > calls;
}

/*
 * A new target ends the rest, and a target that deflates is followed anyway.
 * Where memory runs out again at once, targets that want more wait.  "At once"
 * is 10 s, which a busy machine may miss: that is tried a few times, and the
 * rest is longer each time.
 */
TEST_F_TIMEOUT(pressure, targets_while_resting, 240)
{
	bool deflated = false, firm = false;
	long long inflated;
	double end;
	int i;

	ASSERT_TRUE(target_reach(TARGET));
	ASSERT_TRUE(run_out(&self->hog));
	ASSERT_TRUE(target_reach(900 * MIB));
	for (i = 0; i < 4 && !firm; i++) {
		ASSERT_TRUE(target_reach(TARGET));
		ASSERT_TRUE(run_out(&self->hog));
		firm = rest_is_firm();
		ASSERT_TRUE(target_reach(900 * MIB));
		deflated |= rest_ms() > 0;
	}
	EXPECT_TRUE(deflated);
	ASSERT_TRUE(firm);

	/* What is seen before its end was in the rest */
	end = now();
	end += rest_ms() / 1000.0;
	for (i = 1; i <= 5; i++) {
		inflated = INFLATED();
		ASSERT_TRUE(target_set(TARGET - i * 5 * MIB));
		sleep(1);
		inflated = INFLATED() - inflated;
		if (now() < end)
			EXPECT_EQ(0, inflated);
	}
	EXPECT_TRUE(target_reach(950 * MIB));
	EXPECT_EQ(0, KILLS());
}

/*
 * U24: hypervisors allow a second for an answer.  The device asks a second after
 * it got the last one.  One good time of three will do: the machine may be busy.
 */
TEST_F_TIMEOUT(pressure, statistics, 240)
{
	long long best = 1000000;
	int i;

	ASSERT_NE(-1, host_number("stats-interval 1"));
	for (i = 0; i < 3 && best > 2300; i++) {
		long long longest;

		ASSERT_TRUE(start_at(TARGET, ""));
		ASSERT_NE(-1, host_number("stats-fresh 1"));
		ASSERT_NE(-1, host_number("stats-watch"));
		EXPECT_EQ(0, program_run("memtouch 700"));
		longest = host_number("stats-longest");
		ASSERT_GT(longest, 0);
		if (longest < best)
			best = longest;
	}
	EXPECT_LE(best, 2300);
	EXPECT_GT(DEFLATED(), 0);
	EXPECT_EQ(0, KILLS());
}

/* A container at its own limit is no business of the balloon's */
TEST_F_TIMEOUT(pressure, container, 150)
{
	/* Enough for all, and more for the one in it than it may have */
	ASSERT_TRUE(target_reach(ROOMY));
	ASSERT_TRUE(group_add("memory", "memory.max", "64M"));
	ASSERT_TRUE(group_join());
	ASSERT_TRUE(hog_start(&self->hog, 200 * MIB, false));
	group_leave();
	EXPECT_EQ(HOG_KILLED, hog_wait(&self->hog, HOG_SECONDS));
	EXPECT_EQ(1, KILLS());
	EXPECT_EQ(0, DEFLATED());
	EXPECT_EQ(0, debugfs_number("counters", "oom calls"));
	EXPECT_EQ(0, rest_ms());
	EXPECT_TRUE(target_settled(ROOMY));
}

/*
 * The kernel asks the balloon when one node is full, too, and does not say which
 * one.  More than the node has is not to be had: the balloon gives what it has,
 * once, and then the kernel kills.
 */
#define NODE_SETTLES()	({						\
	EXPECT_EQ(HOG_KILLED, hog_wait(&self->hog, HOG_SECONDS));	\
	EXPECT_EQ(1, KILLS());						\
	EXPECT_GT(DEFLATED(), 0);					\
	EXPECT_LE(DEFLATED(), memory_bytes() - ROOMY + BATCH);		\
	EXPECT_LE(INFLATED(), BATCH);					\
	EXPECT_TRUE(WAIT_FOR(target_settled(ROOMY), SETTLE_SECONDS)); })

#define NODES_MISSING	access("/sys/devices/system/node/node1", F_OK)

TEST_F_TIMEOUT(pressure, policy, 240)
{
	unsigned long node = BIT(1);

	if (NODES_MISSING)
		SKIP(return, "the machine has one node only");
	ASSERT_TRUE(target_reach(ROOMY));
	self->inflated = vm_counter("balloon_inflate");
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_BIND, &node, 8 * sizeof(node)));
	ASSERT_TRUE(hog_start(&self->hog, memory_bytes() * 6 / 10, false));
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
	NODE_SETTLES();
}

TEST_F_TIMEOUT(pressure, cpuset, 240)
{
	if (NODES_MISSING)
		SKIP(return, "the machine has one node only");
	ASSERT_TRUE(target_reach(ROOMY));
	self->inflated = vm_counter("balloon_inflate");
	ASSERT_TRUE(group_add("cpuset", "cpuset.mems", "1"));
	ASSERT_TRUE(group_join());
	ASSERT_TRUE(hog_start(&self->hog, memory_bytes() * 6 / 10, false));
	group_leave();
	NODE_SETTLES();
}

TEST_HARNESS_MAIN
