// SPDX-License-Identifier: GPL-2.0
/* Free page hinting, through real migrations to nowhere. */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define DIRTY	(500 * MIB)	/* freed memory that migration would have to send */
#define SLACK	(8 * MIB)
#define BLOCK	(2 * MIB)
#define COMMAND	4		/* bytes of a command id */

FIXTURE(hint)
{
	long long free;
	long long kills;
	struct hog hog;
};

FIXTURE_SETUP(hint)
{
	struct buffer buffer;
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->kills = vm_counter("oom_kill");
	ASSERT_TRUE(buffer_map(&buffer, DIRTY));
	buffer_fill(&buffer, 3);
	buffer_unmap(&buffer);
	caches_drop();
	self->free = free_bytes();
	/* Only the hint queue has buffers that the device may write to */
	ASSERT_TRUE(probe_add("in", "p virtqueue_add_inbuf vq=$arg1 len=+12($arg2):u32"));
	ASSERT_TRUE(probe_add("out", "p virtqueue_add_outbuf vq=$arg1 len=+12($arg2):u32"));
}

/* Frees what a failed test has left in the device's hands, too */
FIXTURE_TEARDOWN(hint)
{
	char answer[128];

	host_request(answer, sizeof(answer), "migrate-finish");
	hog_end(&self->hog);
	start_over();
}

/*
 * What was put on the queue that has blocks, in its order: an id, blocks and
 * STOP, and perhaps the same again, as migration goes over memory in rounds.
 */
struct run {
	char vq[32];
	long commands;
	long blocks;
	long blocks_outside;	/* not between an id and STOP */
	long wrong_sizes;
};

/* No other device has buffers of that size */
static void find_queue(const char *name, const char *fields, void *data)
{
	struct run *run = data;
	const char *vq = strstr(fields, "vq=");

	if (!strcmp(name, "in") && vq && host_field(fields, "len") >= MIB)
		sscanf(vq, "%31s", run->vq);
}

static void follow_queue(const char *name, const char *fields, void *data)
{
	struct run *run = data;
	bool block = !strcmp(name, "in");

	if (!strstr(fields, run->vq))
		return;
	if (host_field(fields, "len") != (block ? BLOCK : COMMAND))
		run->wrong_sizes++;
	if (!block)
		run->commands++;
	else if (run->commands % 2)
		run->blocks++;
	else
		run->blocks_outside++;
}

static struct run look_at_run(void)
{
	struct run run = { .vq = "" };

	probes_each(find_queue, &run);
	if (run.vq[0])
		probes_each(follow_queue, &run);
	return run;
}

/* S19, S20, S24: one id, blocks, STOP; all memory back when it is over */
TEST_F_TIMEOUT(hint, migration, 240)
{
	struct run run;
	char answer[128];

	ASSERT_TRUE(probes_start(0));
	ASSERT_NE(-1, host_number("migrate-start 20"));
	EXPECT_TRUE(WAIT_FOR(look_at_run().commands >= 2, 60));
	ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-finish"));
	EXPECT_EQ(0, strcmp(answer, "completed"));
	probes_stop();
	run = look_at_run();
	EXPECT_GE(run.commands, 2);
	EXPECT_EQ(0, run.commands % 2);
	EXPECT_EQ(0, run.blocks_outside);
	EXPECT_EQ(0, run.wrong_sizes);
	EXPECT_GE(run.blocks * BLOCK, self->free / 2);
	/* What the device took last is the command STOP, four bytes of zero */
	ASSERT_TRUE(host_request(answer, sizeof(answer), "hint-last"));
	EXPECT_EQ(COMMAND, host_field(answer, "len"));
	EXPECT_EQ(0, host_field(answer, "value"));
	/* The device believed it: most of the free memory was not sent */
	EXPECT_LT(host_number("ram-normal") * WIRE_PAGE, DIRTY / 2);
	EXPECT_TRUE(WAIT_FOR(free_bytes() >= self->free - SLACK, 20));
	EXPECT_EQ(0, balloon_pages());
}

/*
 * While the run has nearly all memory, somebody needs it: reclaim takes it
 * back through the shrinker.  The balloon proper has nothing to do with it.
 */
TEST_F_TIMEOUT(hint, memory_wanted_in_between, 240)
{
	const char *scan = module_symbol("shrink", "scan");
	long long deflated, need = 300 * MIB;
	char answer[128];

	ASSERT_NE(NULL, scan);
	ASSERT_TRUE(probe_add("scan", "r %s freed=$retval:s64", scan));
	ASSERT_TRUE(target_reach(memory_bytes() - 100 * MIB));
	deflated = vm_counter("balloon_deflate");
	ASSERT_TRUE(probes_start(0));
	ASSERT_NE(-1, host_number("migrate-start 4"));
	ASSERT_TRUE(WAIT_FOR(free_bytes() < need / 2, 30));
	ASSERT_TRUE(hog_start(&self->hog, need, false));
	EXPECT_EQ(HOG_FULL, hog_wait(&self->hog, 120));
	probes_stop();
	ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-status"));
	EXPECT_EQ(0, strncmp(answer, "active", 6));
	EXPECT_GE(probe_sum("scan", "freed") * getpagesize(), need / 4);
	EXPECT_EQ(self->kills, vm_counter("oom_kill"));
	EXPECT_EQ(deflated, vm_counter("balloon_deflate"));
	EXPECT_TRUE(target_settled(memory_bytes() - 100 * MIB));

	ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-finish"));
	hog_end(&self->hog);
	EXPECT_TRUE(WAIT_FOR(free_bytes() >= self->free - 100 * MIB - SLACK, 20));
}

/* F11: hinted blocks must not be lost with the driver */
TEST_F_TIMEOUT(hint, unload_in_between, 240)
{
	char answer[128];

	ASSERT_NE(-1, host_number("migrate-start 4"));
	ASSERT_TRUE(WAIT_FOR(free_bytes() < self->free / 2, 30));
	ASSERT_TRUE(module_unload());
	EXPECT_TRUE(WAIT_FOR(free_bytes() >= self->free - SLACK, 20));
	ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-finish"));
}

TEST_HARNESS_MAIN
