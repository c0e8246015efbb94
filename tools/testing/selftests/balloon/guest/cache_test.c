// SPDX-License-Identifier: GPL-2.0
/* Page cache and the balloon: dropping and filling it leaves the balloon alone. */
#include <fcntl.h>
#include <signal.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define DISK	"/dev/vda"

/*
 * @disk stays open all the time: the last to close a block device drops its
 * page cache.
 */
FIXTURE(cache)
{
	long long inflated;
	long long deflated;
	int disk;
	pid_t reader;
	int *passes;	/* shared with the reader */
};

FIXTURE_SETUP(cache)
{
	const char *missing = balloon_missing();

	if (!missing && access(DISK, R_OK))
		missing = "no disk to read (" DISK " is missing)";
	if (missing)
		SKIP(return, "%s", missing);
	self->disk = open(DISK, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->inflated = vm_counter("balloon_inflate");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(cache)
{
	if (self->reader > 0) {
		kill(self->reader, SIGKILL);
		waitpid(self->reader, NULL, 0);
	}
	close(self->disk);
	start_over();
}

#define INFLATED()	(vm_counter("balloon_inflate") - self->inflated)
#define DEFLATED()	(vm_counter("balloon_deflate") - self->deflated)

/*
 * Brings the first @bytes of the disk, or what there is, into the page cache.
 * A byte of each page does: copying all of them is what takes the time.
 */
static long long read_disk(int disk, long long bytes)
{
	long long done = 0;
	char byte;

	while (done < bytes && pread(disk, &byte, 1, done) == 1)
		done += getpagesize();
	return done;
}

static long long cached_bytes(void)
{
	return meminfo_bytes("Cached") + meminfo_bytes("Buffers");
}

/* U4 */
TEST_F_TIMEOUT(cache, dropping, 150)
{
	static const char *const what[] = { "1", "2", "3" };
	size_t i;

	ASSERT_TRUE(target_reach(500 * MIB));
	for (i = 0; i < ARRAY_SIZE(what); i++) {
		long long cached;

		ASSERT_GE(read_disk(self->disk, 100 * MIB), 100 * MIB);
		cached = cached_bytes();
		ASSERT_TRUE(write_file("/proc/sys/vm/drop_caches", what[i]));
		if (what[i][0] != '2')
			EXPECT_LT(cached_bytes(), cached - 80 * MIB);
	}
	EXPECT_TRUE(target_settled(500 * MIB));
	EXPECT_EQ(pages_for(500 * MIB), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

static int passes_read(int *passes)
{
	return __atomic_load_n(passes, __ATOMIC_RELAXED);
}

static pid_t start_reader(int disk, int *passes)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;) {
		read_disk(disk, memory_bytes());
		__atomic_add_fetch(passes, 1, __ATOMIC_RELAXED);
	}
}

/*
 * U3, scaled: 42/64 of memory is read again and again, and the host wants
 * 53/64.  The cache must make room for the balloon, never the other way.
 */
TEST_F_TIMEOUT(cache, filling, 240)
{
	long long target = memory_bytes() * 11 / 64;
	int passes;

	ASSERT_GE(read_disk(self->disk, memory_bytes()), memory_bytes() * 42 / 64);
	self->passes = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->passes);
	self->reader = start_reader(self->disk, self->passes);
	ASSERT_GT(self->reader, 0);

	ASSERT_TRUE(target_reach(target));
	passes = passes_read(self->passes);
	ASSERT_TRUE(WAIT_FOR(passes_read(self->passes) > passes, SETTLE_SECONDS));
	EXPECT_TRUE(target_settled(target));
	EXPECT_EQ(pages_for(target), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

TEST_HARNESS_MAIN
