// SPDX-License-Identifier: GPL-2.0
/* What an operator can see: the tracepoints and debugfs tell what really was. */
#include <linux/virtio_balloon.h>
#include <string.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define SYSTEM	"virtio_balloon"
#define LOW	(300 * MIB)
#define FEATURES	"statistics deflate-on-oom free-page-hint free-page-reporting"

FIXTURE(observe)
{
	struct hog hog;
};

FIXTURE_SETUP(observe)
{
	const char *missing = plug_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(no_device());
	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(device_plug("deflate-on-oom=on free-page-hint=on free-page-reporting=on"));
}

FIXTURE_TEARDOWN(observe)
{
	char answer[128];

	host_request(answer, sizeof(answer), "migrate-finish");
	hog_end(&self->hog);
	if (module_loaded())
		trace_stop(SYSTEM);
	no_device();
}

/* The sums over all batches of one direction */
struct batches {
	const char *way;
	long hits;
	long long pages;
	long long blocks;
	long errors;
};

static void add_batch(const char *name, const char *fields, void *data)
{
	struct batches *sum = data;

	if (strcmp(name, "virtio_balloon_batch") || !strstr(fields, sum->way))
		return;
	sum->hits++;
	sum->pages += host_field(fields, "pages");
	sum->blocks += host_field(fields, "blocks");
	sum->errors += host_field(fields, "err") != 0;
	sum->errors += host_field(fields, "ns") <= 0;
	sum->errors += !strstr(fields, device_name());
}

static struct batches batches(const char *way)
{
	struct batches sum = { .way = way };

	probes_each(add_batch, &sum);
	return sum;
}

TEST_F_TIMEOUT(observe, resizes_are_traced, 150)
{
	long long inflated = vm_counter("balloon_inflate");
	long long deflated = vm_counter("balloon_deflate");
	struct batches down, up;

	ASSERT_TRUE(trace_start(SYSTEM));
	ASSERT_TRUE(target_reach(LOW));
	ASSERT_TRUE(target_reach(800 * MIB));
	trace_stop(SYSTEM);
	down = batches(" inflate ");
	up = batches(" deflate ");
	EXPECT_EQ(vm_counter("balloon_inflate") - inflated, down.pages);
	EXPECT_EQ(vm_counter("balloon_deflate") - deflated, up.pages);
	EXPECT_EQ(0, down.errors + up.errors);
	EXPECT_EQ(debugfs_number("counters", "inflate batches"), down.hits);
	EXPECT_EQ(debugfs_number("counters", "deflate batches"), up.hits);
	EXPECT_EQ(debugfs_number("counters", "whole blocks inflated"), down.blocks);
	EXPECT_GT(down.blocks, 100);
	EXPECT_EQ(2, probe_hits("virtio_balloon_target"));
	EXPECT_EQ(pages_for(LOW) + pages_for(800 * MIB),
		  probe_sum("virtio_balloon_target", "target"));
	EXPECT_EQ(pages_for(LOW), probe_sum("virtio_balloon_target", "ballooned"));
}

/* An OOM pauses inflation, and a new target resumes it */
TEST_F_TIMEOUT(observe, pressure_is_traced, 240)
{
	long long deflated, freed;

	ASSERT_TRUE(target_reach(LOW));
	deflated = vm_counter("balloon_deflate");
	ASSERT_TRUE(trace_start(SYSTEM));
	ASSERT_TRUE(hog_start(&self->hog, 500 * MIB, false));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, 120));
	EXPECT_EQ(1, probe_hits("virtio_balloon_pause"));
	EXPECT_GT(probe_sum("virtio_balloon_pause", "ms"), 0);
	EXPECT_EQ(0, probe_hits("virtio_balloon_resume"));
	freed = vm_counter("balloon_deflate") - deflated;
	EXPECT_GT(freed, 0);
	EXPECT_GT(probe_hits("virtio_balloon_oom"), 0);
	EXPECT_EQ(freed, probe_sum("virtio_balloon_oom", "freed"));
	EXPECT_EQ(freed, debugfs_number("counters", "oom pages"));
	EXPECT_EQ(probe_hits("virtio_balloon_oom"), debugfs_number("counters", "oom calls"));
	EXPECT_GT(debugfs_number("status", "rest"), 0);

	hog_end(&self->hog);
	ASSERT_TRUE(target_reach(LOW + 20 * MIB));
	trace_stop(SYSTEM);
	EXPECT_EQ(1, probe_hits("virtio_balloon_resume"));
	EXPECT_EQ(0, debugfs_number("status", "rest"));
}

static void add_runs(const char *name, const char *fields, void *data)
{
	long long *wrong = data;
	long long runs;

	if (strcmp(name, "virtio_balloon_report"))
		return;
	runs = host_field(fields, "runs");
	if (runs < 1 || runs > 32 ||
	    host_field(fields, "pages") * getpagesize() < runs * 2 * MIB ||
	    host_field(fields, "err") || host_field(fields, "ns") <= 0)
		++*wrong;
}

TEST_F_TIMEOUT(observe, reports_are_traced, 150)
{
	long long before = debugfs_number("counters", "pages reported");
	long long wrong = 0, used;
	struct buffer buffer;

	ASSERT_TRUE(trace_start(SYSTEM));
	used = queue_used(4) - probe_hits("virtio_balloon_report");
	before = debugfs_number("counters", "pages reported") -
		 probe_sum("virtio_balloon_report", "pages");
	ASSERT_TRUE(buffer_map(&buffer, 200 * MIB));
	buffer_fill(&buffer, 37);
	buffer_unmap(&buffer);
	EXPECT_TRUE(WAIT_FOR(probe_sum("virtio_balloon_report", "pages") * getpagesize() >
			     150 * MIB, 60));
	/* Each report is one buffer, and all are counted once the core rests */
	EXPECT_TRUE(WAIT_FOR(queue_used(4) - used == probe_hits("virtio_balloon_report"), 30));
	EXPECT_TRUE(WAIT_FOR(debugfs_number("counters", "pages reported") - before ==
			     probe_sum("virtio_balloon_report", "pages"), 30));
	trace_stop(SYSTEM);
	probes_each(add_runs, &wrong);
	EXPECT_EQ(0, wrong);
}

TEST_F_TIMEOUT(observe, hints_are_traced, 240)
{
	long long free;
	char answer[128];

	ASSERT_TRUE(trace_start(SYSTEM));
	free = free_bytes();
	ASSERT_NE(-1, host_number("migrate-start 4"));
	ASSERT_TRUE(WAIT_FOR(probe_hits("virtio_balloon_hint") > 0, 30));
	ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-finish"));
	trace_stop(SYSTEM);
	EXPECT_EQ(0, probe_sum("virtio_balloon_hint", "err"));
	EXPECT_GT(probe_sum("virtio_balloon_hint", "pages") * getpagesize(), free / 2);
	EXPECT_EQ(debugfs_number("counters", "pages hinted"),
		  probe_sum("virtio_balloon_hint", "pages"));
	EXPECT_TRUE(WAIT_FOR(!debugfs_number("status", "hinted"), 30));
}

/* Nothing is on its way */
static bool status_settled(long long target)
{
	return debugfs_number("status", "target") == pages_for(target) &&
	       debugfs_number("status", "actual") == balloon_pages() &&
	       debugfs_number("status", "actual") * getpagesize() ==
	       memory_bytes() - host_number("actual") &&
	       !debugfs_number("status", "held") && !debugfs_number("status", "announced") &&
	       !debugfs_number("status", "recalled") && !debugfs_number("status", "isolated");
}

TEST_F_TIMEOUT(observe, status_agrees, 150)
{
	static const long long targets[] = { LOW, 777 * MIB, 1024 * MIB };
	char status[4096];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		ASSERT_TRUE(target_reach(targets[i]));
		EXPECT_TRUE(WAIT_FOR(status_settled(targets[i]), 10));
	}
	ASSERT_GT(debugfs_read("status", status, sizeof(status)), 0);
	EXPECT_NE(NULL, strstr(status, "stalled: no\n"));
	EXPECT_NE(NULL, strstr(status, "last error: none\n"));
	EXPECT_NE(NULL, strstr(status, "features: " FEATURES "\n"));
	EXPECT_EQ(getpagesize(), debugfs_number("status", "page size"));
}

/* Looking costs nothing: the device hears nothing of it, and nothing moves */
TEST_F_TIMEOUT(observe, reading_changes_nothing, 150)
{
	char before[4096], after[4096], status[4096];
	long long inflate, deflate;
	int i;

	ASSERT_TRUE(target_reach(LOW));
	/* Reports may be about, and are counted */
	ASSERT_TRUE(WAIT_FOR(debugfs_read("counters", before, sizeof(before)) > 0 &&
			     usleep(500000) == 0 &&
			     debugfs_read("counters", after, sizeof(after)) > 0 &&
			     !strcmp(before, after), 60));
	inflate = queue_used(0);
	deflate = queue_used(1);
	for (i = 0; i < 200; i++) {
		ASSERT_GT(debugfs_read("status", status, sizeof(status)), 0);
		ASSERT_GT(debugfs_read("counters", after, sizeof(after)), 0);
	}
	EXPECT_EQ(0, strcmp(before, after));
	EXPECT_EQ(inflate, queue_used(0));
	EXPECT_EQ(deflate, queue_used(1));
	EXPECT_TRUE(target_settled(LOW));
}

/* The directory comes and goes with the device */
TEST_F_TIMEOUT(observe, debugfs_goes_with_the_device, 60)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/kernel/debug/virtio_balloon/%s", device_name());
	EXPECT_TRUE(WAIT_FOR(!access(path, F_OK), 10));
	ASSERT_TRUE(device_unbind());
	EXPECT_NE(0, access(path, F_OK));
	ASSERT_TRUE(device_bind());
	EXPECT_EQ(0, access(path, F_OK));
	ASSERT_TRUE(module_unload());
	EXPECT_NE(0, access("/sys/kernel/debug/virtio_balloon", F_OK));
}

/* U30: all features on, statistics polled, and memory in use in between */
#define CYCLES	10

TEST_F_TIMEOUT(observe, ten_cycles, 240)
{
	struct baseline before;
	struct buffer buffer;
	int i;

	ASSERT_NE(-1, host_number("stats-interval 1"));
	ASSERT_TRUE(target_reach(LOW));
	ASSERT_TRUE(target_reach(memory_bytes()));
	before = baseline_take();
	for (i = 0; i < rounds(CYCLES); i++) {
		ASSERT_TRUE(buffer_map(&buffer, 50 * MIB));
		buffer_fill(&buffer, i);
		ASSERT_TRUE(target_reach(LOW + i % CYCLES * 7 * MIB));
		ASSERT_EQ(pages_for(LOW + i % CYCLES * 7 * MIB), balloon_pages());
		ASSERT_TRUE(buffer_intact(&buffer));
		buffer_unmap(&buffer);
		ASSERT_TRUE(target_reach(memory_bytes()));
	}
	EXPECT_NE(-1, host_number("stats-fresh 1"));
	EXPECT_TRUE(baseline_back(&before, 2 * MIB));
}

TEST_HARNESS_MAIN
