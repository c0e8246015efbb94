// SPDX-License-Identifier: GPL-2.0
/* Page cache and the balloon: dropping and filling it leaves the balloon alone. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>

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
	pid_t dropper;
	int *passes;	/* shared with the reader */
};

static int *passes_map(void)
{
	void *passes = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return passes == MAP_FAILED ? NULL : passes;
}

static int passes_done(int *passes)
{
	return __atomic_load_n(passes, __ATOMIC_RELAXED);
}

static void child_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

FIXTURE_SETUP(cache)
{
	const char *missing = balloon_missing();

	if (!missing && access(DISK, R_OK))
		missing = "no disk to read (" DISK " is missing)";
	if (missing)
		SKIP(return, "%s", missing);
	self->disk = open(DISK, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	self->passes = passes_map();
	ASSERT_NE(NULL, self->passes);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->inflated = vm_counter("balloon_inflate");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(cache)
{
	child_end(self->dropper);
	child_end(self->reader);
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
 * 53/64.  The cache must make room for the balloon, never the other way.  One
 * page that goes back decides it.
 */
TEST_F_TIMEOUT(cache, filling, 240)
{
	long long target = memory_bytes() * 11 / 64;
	int passes;

	ASSERT_GE(read_disk(self->disk, memory_bytes()), memory_bytes() * 42 / 64);
	self->reader = start_reader(self->disk, self->passes);
	ASSERT_GT(self->reader, 0);

	ASSERT_TRUE(target_set(target));
	WAIT_FOR(DEFLATED() || target_settled(target), SETTLE_SECONDS);
	ASSERT_EQ(0, DEFLATED());
	ASSERT_TRUE(target_reach(target));
	passes = passes_done(self->passes);
	ASSERT_TRUE(WAIT_FOR(passes_done(self->passes) > passes, SETTLE_SECONDS));
	EXPECT_TRUE(target_settled(target));
	EXPECT_EQ(pages_for(target), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

static pid_t start_dropper(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;) {
		write_file("/proc/sys/vm/drop_caches", "3");
		usleep(20000);
	}
}

/* U4: all caches are dropped again and again while they are being filled */
TEST_F_TIMEOUT(cache, dropping_in_a_loop, 150)
{
	int passes;

	self->reader = start_reader(self->disk, self->passes);
	ASSERT_GT(self->reader, 0);
	self->dropper = start_dropper();
	ASSERT_GT(self->dropper, 0);

	ASSERT_TRUE(target_reach(400 * MIB));
	passes = passes_done(self->passes);
	ASSERT_TRUE(WAIT_FOR(passes_done(self->passes) > passes, SETTLE_SECONDS));
	EXPECT_TRUE(target_settled(400 * MIB));
	EXPECT_EQ(pages_for(400 * MIB), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

#define WORKING_SET	(400 * MIB)
#define LEFT		(300 * MIB)

FIXTURE(swapping)
{
	long long kills;
	long long swapped;
	long long deflated;
	bool swap;
	struct hog worker;
};

FIXTURE_SETUP(swapping)
{
	const char *missing = balloon_missing();

	if (!missing && access(DISK, R_OK))
		missing = "no disk to swap to (" DISK " is missing)";
	if (missing)
		SKIP(return, "%s", missing);
	self->swap = !system("mkswap " DISK " >/dev/null") && !swapon(DISK, 0);
	ASSERT_TRUE(self->swap);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->kills = vm_counter("oom_kill");
	self->swapped = vm_counter("pswpout");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(swapping)
{
	hog_end(&self->worker);
	start_over();
	if (self->swap)
		swapoff(DISK);
}

/*
 * What programs work with is more than what the host leaves: reclaim has to
 * swap, and does; that is no reason for the balloon to give way.
 */
TEST_F_TIMEOUT(swapping, working_set_does_not_fit, 240)
{
	ASSERT_TRUE(churn_start(&self->worker, WORKING_SET));
	ASSERT_TRUE(WAIT_FOR(meminfo_bytes("AnonPages") > WORKING_SET / 2, 30));
	ASSERT_TRUE(target_reach(LEFT));
	EXPECT_TRUE(WAIT_FOR((vm_counter("pswpout") - self->swapped) * getpagesize() >
			     WORKING_SET - LEFT, 60));
	EXPECT_TRUE(target_settled(LEFT));
	EXPECT_EQ(self->deflated, vm_counter("balloon_deflate"));
	EXPECT_EQ(self->kills, vm_counter("oom_kill"));
	EXPECT_TRUE(hog_alive(&self->worker));
}

#define PLACE		"/tmp/disk"
#define WRITERS		2
#define FILE_BYTES	(8 * MIB)

FIXTURE(writes)
{
	long long kills;
	bool mounted;
	pid_t writers[WRITERS];
	int *passes[WRITERS];
};

FIXTURE_SETUP(writes)
{
	const char *missing = balloon_missing();

	if (!missing) {
		mkdir(PLACE, 0700);
		self->mounted = !mount(DISK, PLACE, "ext4", 0, NULL);
		if (!self->mounted)
			missing = "no ext4 filesystem on " DISK;
	}
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->kills = vm_counter("oom_kill");
}

FIXTURE_TEARDOWN(writes)
{
	int i;

	for (i = 0; i < WRITERS; i++)
		child_end(self->writers[i]);
	start_over();
	if (self->mounted)
		umount(PLACE);
}

/* A file whose every word is known; to the disk, and back from there */
static bool write_and_read(const char *path, unsigned long long seed)
{
	struct buffer buffer;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool good;

	if (fd < 0 || !buffer_map(&buffer, FILE_BYTES))
		return false;
	buffer_fill(&buffer, seed);
	good = write(fd, buffer.words, buffer.bytes) == (ssize_t)buffer.bytes &&
	       !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	memset(buffer.words, 0, buffer.bytes);
	good = good && pread(fd, buffer.words, buffer.bytes, 0) == (ssize_t)buffer.bytes &&
	       buffer_intact(&buffer);
	buffer_unmap(&buffer);
	close(fd);
	unlink(path);
	return good;
}

static pid_t start_writer(int number, int *passes)
{
	char path[64];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(path, sizeof(path), PLACE "/%d", number);
	while (write_and_read(path, passes_done(passes)))
		__atomic_add_fetch(passes, 1, __ATOMIC_RELAXED);
	_exit(1);
}

/*
 * U5: who is out of memory must not wait for who allocates memory, nor for
 * writeback.  So more is wanted for a while than there is.
 */
static bool squeeze(void)
{
	if (!target_set(100 * MIB))
		return false;
	sleep(2);
	return target_reach(260 * MIB);
}

TEST_F_TIMEOUT(writes, under_inflation, 240)
{
	int i, round, before[WRITERS];

	for (i = 0; i < WRITERS; i++) {
		self->passes[i] = passes_map();
		ASSERT_NE(NULL, self->passes[i]);
		self->writers[i] = start_writer(i, self->passes[i]);
		ASSERT_GT(self->writers[i], 0);
	}
	for (round = 0; round < rounds(4); round++) {
		ASSERT_TRUE(round % 2 ? target_reach(memory_bytes()) : squeeze());
		for (i = 0; i < WRITERS; i++)
			before[i] = passes_done(self->passes[i]);
		for (i = 0; i < WRITERS; i++)
			EXPECT_TRUE(WAIT_FOR(passes_done(self->passes[i]) > before[i] + 1, 60));
	}
	for (i = 0; i < WRITERS; i++)
		EXPECT_EQ(0, waitpid(self->writers[i], NULL, WNOHANG));
	EXPECT_EQ(self->kills, vm_counter("oom_kill"));
}

TEST_HARNESS_MAIN
