// SPDX-License-Identifier: GPL-2.0
/* The statistics that the host gets are those that /proc shows. */
#include <linux/virtio_balloon.h>
#include <signal.h>
#include <sys/swap.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define TAGS		VIRTIO_BALLOON_S_NR
#define FIRST_TEN	10
#define TAG(name)	VIRTIO_BALLOON_S_##name
#define DISK		"/dev/vda"
#define HUGE_PAGES	"/proc/sys/vm/nr_hugepages"

/* How far a gauge may move while it is looked at */
#define GAUGE_SLACK	(16 * MIB)

FIXTURE(stats)
{
	struct hog hog;
	bool swap;
};

FIXTURE_SETUP(stats)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	ASSERT_NE(-1, host_number("stats-interval 1"));
}

FIXTURE_TEARDOWN(stats)
{
	host_number("stats-interval 0");
	write_file(HUGE_PAGES, "0");
	hog_end(&self->hog);
	if (self->swap)
		swapoff(DISK);
	start_over();
}

/* What /proc shows for each tag: counters are exact, gauges are not */
static void proc_stats(long long value[TAGS])
{
	long long page = getpagesize();

	value[TAG(SWAP_IN)] = vm_counter("pswpin") * page;
	value[TAG(SWAP_OUT)] = vm_counter("pswpout") * page;
	value[TAG(MAJFLT)] = vm_counter("pgmajfault");
	value[TAG(MINFLT)] = vm_counter("pgfault");
	value[TAG(MEMFREE)] = meminfo_bytes("MemFree");
	value[TAG(MEMTOT)] = meminfo_bytes("MemTotal");
	value[TAG(AVAIL)] = meminfo_bytes("MemAvailable");
	value[TAG(CACHES)] = vm_counter("nr_file_pages") * page;
	value[TAG(HTLB_PGALLOC)] = vm_counter("htlb_buddy_alloc_success");
	value[TAG(HTLB_PGFAIL)] = vm_counter("htlb_buddy_alloc_fail");
	value[TAG(OOM_KILL)] = vm_counter("oom_kill");
	value[TAG(ALLOC_STALL)] = vm_counter_sum("allocstall");
	value[TAG(ASYNC_SCAN)] = vm_counter("pgscan_kswapd") * page;
	value[TAG(DIRECT_SCAN)] = vm_counter("pgscan_direct") * page;
	value[TAG(ASYNC_RECLAIM)] = vm_counter("pgsteal_kswapd") * page;
	value[TAG(DIRECT_RECLAIM)] = vm_counter("pgsteal_direct") * page;
}

/* What is in the buffer that the driver sent last: "TAG=VALUE TAG=VALUE ..." */
struct sent {
	int entries;
	int tag[2 * TAGS];
	long long value[2 * TAGS];
};

static bool read_sent(struct sent *sent)
{
	char answer[2048];
	char *word;

	memset(sent, 0, sizeof(*sent));
	if (!host_request(answer, sizeof(answer), "stats-raw"))
		return false;
	for (word = strtok(answer, " "); word && sent->entries < 2 * TAGS;
	     word = strtok(NULL, " "), sent->entries++)
		sscanf(word, "%d=%lld", &sent->tag[sent->entries],
		       &sent->value[sent->entries]);
	return true;
}

/* The device asks once a second; the second time is surely from now on */
static bool wait_fresh(void)
{
	return host_number("stats-fresh 2") != -1;
}

static bool plausible(int tag, long long value, long long before, long long after)
{
	bool moves = tag == TAG(MEMFREE) || tag == TAG(AVAIL) || tag == TAG(CACHES);
	long long slack = moves ? GAUGE_SLACK : 0;
	long long low = before < after ? before : after;
	long long high = before < after ? after : before;

	if (value >= low - slack && value <= high + slack)
		return true;
	printf("# tag %d: %lld sent, %lld to %lld in /proc\n", tag, value, low, high);
	return false;
}

static bool has_huge_pages(void)
{
	return !access(HUGE_PAGES, F_OK);
}

/*
 * Swapping, faults, reclaim, huge pages: there must be something to count.  In
 * what a balloon leaves, it does not take much.
 */
static bool make_history(struct hog *hog, bool *swap)
{
	long long more;

	*swap = !system("mkswap " DISK " >/dev/null") && !swapon(DISK, 0);
	if (!*swap)
		return false;
	if (!target_reach(300 * MIB))
		return false;
	more = meminfo_bytes("MemAvailable") + 60 * MIB;
	if (!hog_start(hog, more, false) ||
	    hog_wait(hog, 120) != HOG_FULL)
		return false;
	hog_end(hog);
	/* More than there can be: some are got and some are not */
	return !has_huge_pages() || (write_file(HUGE_PAGES, "200") &&
				     write_file(HUGE_PAGES, "0"));
}

/*
 * Zero against zero would prove little, but direct reclaim may not happen, and
 * not every machine has huge pages.
 */
static bool may_be_zero(int tag)
{
	bool huge = tag == TAG(HTLB_PGALLOC) || tag == TAG(HTLB_PGFAIL);

	return tag == TAG(OOM_KILL) || tag == TAG(ALLOC_STALL) ||
	       tag == TAG(DIRECT_SCAN) || tag == TAG(DIRECT_RECLAIM) ||
	       (huge && !has_huge_pages());
}

TEST_F_TIMEOUT(stats, every_tag, 240)
{
	long long before[TAGS], after[TAGS];
	char answer[1024];
	struct sent sent;
	int i;

	if (access(DISK, W_OK))
		SKIP(return, "no disk to swap to (" DISK " is missing)");
	ASSERT_TRUE(make_history(&self->hog, &self->swap));
	proc_stats(before);
	ASSERT_TRUE(wait_fresh());
	ASSERT_TRUE(read_sent(&sent));
	ASSERT_TRUE(host_request(answer, sizeof(answer), "stats"));
	proc_stats(after);

	ASSERT_EQ(TAGS, sent.entries);
	for (i = 0; i < TAGS; i++) {
		EXPECT_EQ(i, sent.tag[i]);
		EXPECT_TRUE(plausible(i, sent.value[i], before[i], after[i]));
		if (!may_be_zero(i))
			EXPECT_GT(sent.value[i], 0);
	}
	/* What QEMU shows to its users is the same */
	EXPECT_EQ(sent.value[TAG(SWAP_OUT)], host_field(answer, "stat-swap-out"));
	EXPECT_EQ(sent.value[TAG(MINFLT)], host_field(answer, "stat-minor-faults"));
	EXPECT_EQ(sent.value[TAG(MEMFREE)], host_field(answer, "stat-free-memory"));
	EXPECT_EQ(sent.value[TAG(MEMTOT)], host_field(answer, "stat-total-memory"));
	EXPECT_EQ(sent.value[TAG(HTLB_PGFAIL)], host_field(answer, "stat-htlb-pgfail"));
}

/* An OOM kill is counted; the balloon is empty, so there is nothing to take */
TEST_F_TIMEOUT(stats, oom_kills, 120)
{
	long long kills = vm_counter("oom_kill");
	struct sent sent;

	ASSERT_TRUE(hog_start(&self->hog, 20 * MIB, false));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, 60));
	ASSERT_TRUE(write_file("/proc/sysrq-trigger", "f"));
	ASSERT_TRUE(WAIT_FOR(vm_counter("oom_kill") > kills, 30));
	ASSERT_TRUE(wait_fresh());
	ASSERT_TRUE(read_sent(&sent));
	ASSERT_EQ(TAGS, sent.entries);
	EXPECT_EQ(kills + 1, sent.value[TAG(OOM_KILL)]);
}

/* U23 */
TEST_F_TIMEOUT(stats, fresh_after_reload, 120)
{
	struct sent sent, later;

	ASSERT_TRUE(wait_fresh());
	ASSERT_TRUE(read_sent(&sent));
	ASSERT_TRUE(module_unload());
	ASSERT_TRUE(hog_start(&self->hog, 200 * MIB, false));
	ASSERT_EQ(HOG_FULL, hog_wait(&self->hog, 60));
	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(wait_fresh());
	ASSERT_TRUE(read_sent(&later));
	ASSERT_EQ(sent.entries, later.entries);
	EXPECT_LT(later.value[TAG(MEMFREE)], sent.value[TAG(MEMFREE)] - 150 * MIB);
	EXPECT_TRUE(plausible(TAG(MEMFREE), later.value[TAG(MEMFREE)], meminfo_bytes("MemFree"),
			      meminfo_bytes("MemFree")));
}

/* V10: some hypervisors cannot bear more than ten tags */
TEST_F_TIMEOUT(stats, first_ten_only, 120)
{
	static const char parameter[] =
		"/sys/module/virtio_balloon/parameters/first_ten_stats";
	struct sent sent;
	char text[8];
	int i;

	ASSERT_GT(read_file(parameter, text, sizeof(text)), 0);
	EXPECT_EQ('N', text[0]);
	ASSERT_TRUE(start_at(memory_bytes(), "first_ten_stats=1"));
	ASSERT_GT(read_file(parameter, text, sizeof(text)), 0);
	EXPECT_EQ('Y', text[0]);
	/* S18: the subset never changes, so neither does the parameter */
	EXPECT_FALSE(write_file(parameter, "0"));
	ASSERT_TRUE(wait_fresh());
	ASSERT_TRUE(read_sent(&sent));
	ASSERT_EQ(FIRST_TEN, sent.entries);
	for (i = 0; i < FIRST_TEN; i++)
		EXPECT_EQ(i, sent.tag[i]);
	EXPECT_TRUE(plausible(TAG(MEMTOT), sent.value[TAG(MEMTOT)], meminfo_bytes("MemTotal"),
			      meminfo_bytes("MemTotal")));
}

TEST_HARNESS_MAIN
