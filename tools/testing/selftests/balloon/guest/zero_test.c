// SPDX-License-Identifier: GPL-2.0
/*
 * Zeroing pages costs most of an inflation, and is left out for the balloon's
 * pages where the kernel honours __GFP_SKIP_ZERO; everybody else still gets
 * zeroes.  For a kernel with init_on_alloc=1 and the module kmod/skip_zero.c.
 */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define MODULE		"/mod/skip_zero.ko"
#define PARAMETERS	"/sys/module/skip_zero/parameters/"
#define DIRTY		(600 * MIB)
#define TARGET		(300 * MIB)
#define LOOKED_AT	(500 * MIB)

FIXTURE(zero)
{
	long long pages;
};

FIXTURE_SETUP(zero)
{
	const char *missing = balloon_missing();

	if (!missing && access(MODULE, R_OK))
		missing = "this guest's kernel does not zero what it allocates";
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
}

FIXTURE_TEARDOWN(zero)
{
	if (system("rmmod skip_zero"))
		TH_LOG("the module was not loaded");
	start_over();
}

static bool load(long long pages)
{
	char command[96];

	snprintf(command, sizeof(command), "insmod " MODULE " pages=%lld", pages);
	return !system(command);
}

TEST_F(zero, flag_is_honoured)
{
	ASSERT_TRUE(load(1024));
	EXPECT_GE(read_number(PARAMETERS "skipped"), 512);
	EXPECT_EQ(0, read_number(PARAMETERS "normal"));
	EXPECT_EQ(0, read_number(PARAMETERS "both"));
}

/* Pages that went through the balloon unzeroed are zeroed for their next user */
TEST_F_TIMEOUT(zero, deflated_pages, 120)
{
	struct buffer dirty;

	ASSERT_TRUE(buffer_map(&dirty, DIRTY));
	buffer_fill(&dirty, 5);
	buffer_unmap(&dirty);
	ASSERT_TRUE(target_reach(TARGET));
	ASSERT_TRUE(target_reach(memory_bytes()));
	ASSERT_TRUE(load(LOOKED_AT / getpagesize()));
	EXPECT_GT(read_number(PARAMETERS "skipped"), 0);
	EXPECT_EQ(0, read_number(PARAMETERS "normal"));
}

TEST_HARNESS_MAIN
