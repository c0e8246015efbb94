// SPDX-License-Identifier: GPL-2.0
/* Out of memory: with DEFLATE_ON_OOM the balloon is the first victim. */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define TARGET		(220 * MIB)
#define HOG_SECONDS	120
#define FORCED		5		/* times that a person asks for an OOM */
#define NOISE		(12 * MIB)
#define ULONG		(sizeof(long) == 8 ? "u64" : "u32")

/* With the feature */
FIXTURE(oom)
{
	long long kills;
	long long deflated;
	struct hog hog;
	struct hog other;
};

FIXTURE_SETUP(oom)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(TARGET, ""));
	self->kills = vm_counter("oom_kill");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(oom)
{
	write_file("/proc/sys/vm/panic_on_oom", "0");
	hog_end(&self->hog);
	hog_end(&self->other);
	start_over();
}

#define KILLS()		(vm_counter("oom_kill") - self->kills)
#define DEFLATED()	(vm_counter("balloon_deflate") - self->deflated)

/* U1: a program needs at once what the balloon has */
TEST_F_TIMEOUT(oom, program_lives, 240)
{
	long long need = 700 * MIB;
	long long missing = need - meminfo_bytes("MemAvailable");

	ASSERT_TRUE(hog_start(&self->hog, need, false));
	EXPECT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	EXPECT_EQ(0, KILLS());
	EXPECT_GE(DEFLATED() * getpagesize(), missing - 64 * MIB);
	/* Not all of it either: 64 MiB is the largest step */
	EXPECT_LE(DEFLATED() * getpagesize(), missing + 96 * MIB);
	EXPECT_TRUE(hog_alive(&self->hog));
	EXPECT_TRUE(WAIT_FOR(host_number("actual") ==
			     memory_bytes() - balloon_pages() * getpagesize(), 10));

	/* The rest that follows an OOM ends with the next new target */
	hog_end(&self->hog);
	EXPECT_TRUE(target_reach(TARGET + 20 * MIB));
}

static bool probe_notifier(void)
{
	const char *notifier = module_symbol("", "balloon_oom_notify");

	return notifier &&
	       probe_add("oom_in", "p %s freed=+0($arg3):%s", notifier, ULONG) &&
	       probe_add("oom_out", "r %s freed=+0($arg3):%s", notifier, ULONG) &&
	       probes_start(0);
}

/*
 * The kernel believes what the notifier says: *freed must grow by the pages
 * that came out of the balloon, whatever unit the device counts in.
 */
TEST_F_TIMEOUT(oom, freed_counts_pages, 240)
{
	ASSERT_TRUE(probe_notifier());
	ASSERT_TRUE(hog_start(&self->hog, 400 * MIB, false));
	EXPECT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	probes_stop();
	EXPECT_GT(probe_hits("oom_out"), 0);
	EXPECT_EQ(probe_hits("oom_in"), probe_hits("oom_out"));
	EXPECT_GT(DEFLATED(), 0);
	EXPECT_EQ(DEFLATED(), probe_sum("oom_out", "freed") - probe_sum("oom_in", "freed"));
	EXPECT_EQ(0, KILLS());
}

/*
 * The same against free memory, which nobody uses here: what is killed in
 * addition was not there before.  The steps double from 2 MiB.
 */
TEST_F_TIMEOUT(oom, freed_is_free_memory, 240)
{
	long long free, freed;
	int i;

	ASSERT_TRUE(probe_notifier());
	caches_drop();
	free = free_bytes();
	for (i = 1; i <= FORCED; i++) {
		ASSERT_TRUE(hog_start(&self->hog, 20 * MIB, false));
		ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
		ASSERT_TRUE(write_file("/proc/sysrq-trigger", "f"));
		ASSERT_TRUE(WAIT_FOR(KILLS() >= i && !hog_alive(&self->hog), 30));
		hog_end(&self->hog);
	}
	probes_stop();
	freed = probe_sum("oom_out", "freed") - probe_sum("oom_in", "freed");
	EXPECT_EQ(FORCED, probe_hits("oom_out"));
	EXPECT_EQ(DEFLATED(), freed);
	EXPECT_GE(freed * getpagesize(), 60 * MIB);
	caches_drop();
	EXPECT_TRUE(WAIT_FOR(llabs(free_bytes() - free - freed * getpagesize()) < NOISE, 10));
	TH_LOG("freed %lld KiB, free memory grew by %lld KiB",
	       freed * getpagesize() / 1024, (free_bytes() - free) / 1024);
}

/* U8: 70 % of memory is locked, and the host wants nearly all of it */
TEST_F_TIMEOUT(oom, locked_memory, 240)
{
	ASSERT_TRUE(target_reach(memory_bytes()));
	ASSERT_TRUE(hog_start(&self->hog, memory_bytes() * 7 / 10, true));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	self->deflated = vm_counter("balloon_deflate");

	ASSERT_TRUE(target_set(124 * MIB));
	ASSERT_TRUE(WAIT_FOR(meminfo_bytes("MemAvailable") < 40 * MIB, SETTLE_SECONDS));
	ASSERT_TRUE(hog_start(&self->other, 100 * MIB, false));
	EXPECT_EQ(HOG_FULL, hog_wait(&self->other, HOG_SECONDS));
	EXPECT_GT(DEFLATED(), 0);
	EXPECT_EQ(0, KILLS());
	EXPECT_TRUE(hog_alive(&self->hog));
}

/*
 * U2: every forced OOM takes from the balloon.  The kernel goes on to kill all
 * the same, for it ignores what notifiers freed when a person asked for it.
 */
TEST_F_TIMEOUT(oom, sysrq, 240)
{
	int i;

	for (i = 1; i <= 3; i++) {
		long long deflated = DEFLATED();

		ASSERT_TRUE(hog_start(&self->hog, 20 * MIB, false));
		ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
		ASSERT_TRUE(write_file("/proc/sysrq-trigger", "f"));
		ASSERT_TRUE(WAIT_FOR(KILLS() >= i, 30));
		EXPECT_GT(DEFLATED(), deflated);
		EXPECT_EQ(i, KILLS());
		EXPECT_TRUE(WAIT_FOR(!hog_alive(&self->hog), 30));
		self->hog.pid = 0;
		close(self->hog.said);
	}
	EXPECT_TRUE(WAIT_FOR(host_number("actual") ==
			     memory_bytes() - balloon_pages() * getpagesize(), 10));
}

/* An OOM that the balloon ends is none */
TEST_F_TIMEOUT(oom, no_panic, 240)
{
	ASSERT_TRUE(write_file("/proc/sys/vm/panic_on_oom", "1"));
	ASSERT_TRUE(hog_start(&self->hog, 400 * MIB, false));
	EXPECT_EQ(HOG_FULL, hog_wait(&self->hog, HOG_SECONDS));
	EXPECT_GT(DEFLATED(), 0);
	EXPECT_EQ(0, KILLS());
}

/* Without the feature: S6, the driver must not take back what is wanted */
FIXTURE(off)
{
	long long kills;
	long long deflated;
	struct hog hog;
};

FIXTURE_SETUP(off)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(300 * MIB, ""));
	self->kills = vm_counter("oom_kill");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(off)
{
	hog_end(&self->hog);
	start_over();
}

TEST_F_TIMEOUT(off, program_is_killed, 240)
{
	ASSERT_TRUE(hog_start(&self->hog, 700 * MIB, false));
	EXPECT_EQ(HOG_KILLED, hog_wait(&self->hog, HOG_SECONDS));
	EXPECT_EQ(1, KILLS());
	EXPECT_EQ(0, DEFLATED());
	EXPECT_TRUE(target_settled(300 * MIB));
}

TEST_HARNESS_MAIN
