/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A virtio balloon device for tests: a transport with real virtqueues, and
 * behind it a device that plays those of hypervisors, and broken ones.
 *
 * The device reads the rings itself and keeps its own books: which pages it has
 * been given, and what it was told.  It trusts the driver in nothing.  Every
 * rule that the driver breaks is noted, with its number in the list of what the
 * specification requires (S), of what portability asks for (V) or of faults that
 * balloon drivers have had (F); a test that ends with such a note has failed.
 *
 * A test gets its device by fake_new(), which registers it, so that the driver
 * is bound as to any device, and which takes care that in the end it is removed,
 * that no rule was broken and that no page is missing.  Then it moves targets,
 * asks for statistics or hints, withholds answers and gives them later, and
 * reads what the device knows.
 *
 * The device works in a thread of its own, or in the driver's notification,
 * where the personality says so.  Interrupts come with interrupts disabled.
 *
 * All of this is part of the driver's file, see there: it uses its static names
 * for the queues and the block size, but for nothing that is checked.
 */
#ifndef _FAKE_BALLOON_H
#define _FAKE_BALLOON_H

#include <kunit/device.h>
#include <kunit/resource.h>
#include <kunit/test.h>
#include <linux/alloc_tag.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/kthread.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgalloc_tag.h>
#include <linux/sched/mm.h>

/* As long as no test waits: longer than every bound of the driver together. */
#define FAKE_PATIENCE_MS	120000

/**
 * enum fake_trait - what is odd about a device
 * @FAKE_IN_KICK: does the work while the driver notifies it
 * @FAKE_REVERSES: answers the last request first
 * @FAKE_SHUFFLES: answers in any order
 * @FAKE_IRQ_EACH: interrupts for every answer, where others do for a pass
 * @FAKE_IRQ_IDLE: interrupts without anything to say, too
 * @FAKE_USED_FIRST: answers before it drops the pages
 * @FAKE_GARBAGE_LEN: used lengths that mean nothing
 * @FAKE_NEVER_ANSWERS: neither inflation nor deflation
 * @FAKE_KEEPS_STATS: never asks for statistics
 * @FAKE_WRITES_ACTUAL: changes actual itself
 * @FAKE_RETARGETS: asks for half as much in the middle of the first batch
 * @FAKE_TWICE: gives one token back twice
 * @FAKE_BREAKS: breaks after some requests
 * @FAKE_LEGACY_STATS: leaves the first statistics buffer unread
 */
enum fake_trait {
	FAKE_IN_KICK		= BIT(0),
	FAKE_REVERSES		= BIT(1),
	FAKE_SHUFFLES		= BIT(2),
	FAKE_IRQ_EACH		= BIT(3),
	FAKE_IRQ_IDLE		= BIT(4),
	FAKE_USED_FIRST		= BIT(5),
	FAKE_GARBAGE_LEN	= BIT(6),
	FAKE_NEVER_ANSWERS	= BIT(7),
	FAKE_KEEPS_STATS	= BIT(8),
	FAKE_WRITES_ACTUAL	= BIT(9),
	FAKE_RETARGETS		= BIT(10),
	FAKE_TWICE		= BIT(11),
	FAKE_BREAKS		= BIT(12),
	FAKE_LEGACY_STATS	= BIT(13),
};

/**
 * struct fake_like - a device to be like
 * @name: whose
 * @offered: features, those of the ring included
 * @size: of its queues, 0 for the first one's
 * @config_len: bytes of configuration space
 * @loses_above: a request of more PFNs is never answered; 0 for none
 * @skips_above: what goes beyond is answered, and not done; 0 for none
 * @stats_tag_max: a higher tag ends statistics for good; 0 for none
 * @delay_ms: what one request takes
 * @traits: the rest, as enum fake_trait
 */
struct fake_like {
	const char *name;
	u64 offered;
	unsigned int size[QUEUE_NR];
	unsigned int config_len;
	unsigned int loses_above;
	unsigned int skips_above;
	unsigned int stats_tag_max;
	unsigned int delay_ms;
	unsigned int traits;
};

/* Whose a page is, as the device knows it. */
enum fake_page {
	FAKE_GUESTS,
	FAKE_ANNOUNCED,
	FAKE_HELD,
	FAKE_RECALLED,
};

/**
 * struct fake_buffer - one descriptor
 * @data: where
 * @len: bytes
 * @writable: by the device
 */
struct fake_buffer {
	void *data;
	u32 len;
	bool writable;
};

/**
 * struct fake_request - one chain of descriptors that the device has
 * @node: in the queue's pending list
 * @head: the first descriptor
 * @nr: how many
 * @sum: of what stood in the readable ones
 * @busy: the device has it
 * @lost: it will never be answered
 * @buf: the descriptors
 */
struct fake_request {
	struct list_head node;
	u16 head;
	unsigned int nr;
	u32 sum;
	bool busy;
	bool lost;
	struct fake_buffer buf[PAGE_REPORTING_CAPACITY];
};

/**
 * struct fake_queue - the device's side of a virtqueue
 * @fake: the device
 * @role: what the device takes it for
 * @vq: the driver's side, NULL where there is none
 * @vring: the memory between them
 * @bytes: of that memory
 * @seen: the avail ring up to here
 * @at_reset: what the avail index was then
 * @used: index of the used ring
 * @request: by head
 * @pending: requests that are not answered yet, oldest first
 * @nr_pending: length of @pending
 * @nr_seen: requests so far
 * @nr_answered: of these
 * @nr_kicks: notifications so far
 * @last_pfn: highest PFN of the pass
 */
struct fake_queue {
	struct fake_balloon *fake;
	enum balloon_queue_id role;
	struct virtqueue *vq;
	struct vring vring;
	size_t bytes;
	u16 seen;
	u16 at_reset;
	u16 used;
	struct fake_request *request;
	struct list_head pending;
	unsigned int nr_pending;
	unsigned long nr_seen;
	unsigned long nr_answered;
	unsigned long nr_kicks;
	u32 last_pfn;
};

/**
 * struct fake_balloon - a device
 * @vdev: what the driver sees of it
 * @test: whose it is
 * @like: its personality
 * @name: of @parent
 * @parent: vdev's
 * @registered: with the virtio bus
 * @released: the last reference to @vdev is gone
 * @thread: where it works
 * @work: looks at all queues
 * @later: answers what is withheld, or breaks the device, after a while
 * @busy: held while it works, and while it is reset
 * @status: the virtio status
 * @config: the configuration space; words of 32 bits, never torn
 * @poison_set: poison_val was written since the reset
 * @actual: what the driver last wrote
 * @nr_actual: how many times
 * @queue: by role
 * @roles: the device's own numbering of its queues
 * @nr_roles: length of @roles
 * @withheld: roles that are not answered, a bit each
 * @rations: answers that are left until a role is withheld, 0 for no limit
 * @breaks_later: @later breaks the device instead
 * @broken: does nothing any more
 * @fail_find: fail the next find_vqs() with this
 * @shrink: the next find_vqs() makes the queues of this size
 * @no_config: a task that must not touch the configuration
 * @lax: pages may be freed unanswered: a deflation timed out, and the driver
 *	need not tell
 * @late: PFNs that were answered and are yet to be dropped
 * @nr_late: length of @late
 * @pages: whose each page is, by PFN
 * @reported: pages in an unanswered report, by PFN
 * @nr_pages: length of @pages and of @reported
 * @nr_held: of these, FAKE_HELD
 * @nr_inflated: pages taken so far
 * @nr_deflated: pages given back so far
 * @nr_dropped: pages whose content is gone, as a real device would count
 * @nr_forgotten: pages that were not the guest's at the last reset
 * @nr_disorder: requests that go back behind an earlier one of the same pass
 * @stat: as last reported, by tag
 * @stat_tags: which, a bit each
 * @nr_stats: buffers seen
 * @stats_dead: the device has given up on statistics
 * @hinting: between a start and a stop command
 * @hint_id: of the last start command
 * @nr_hint_starts: start commands seen
 * @nr_hint_stops: stop commands seen
 * @nr_hinted: blocks
 * @nr_reports: requests
 * @nr_reported: pages
 * @reported_first: of these, before the first page was announced
 * @blame_lock: protects the rest
 * @nr_blames: rules broken
 * @blame: the first of them, in words
 */
struct fake_balloon {
	struct virtio_device vdev;
	struct kunit *test;
	const struct fake_like *like;
	char name[24];
	struct device *parent;
	bool registered;
	struct completion released;
	struct kthread_worker *thread;
	struct kthread_work work;
	struct kthread_delayed_work later;
	struct mutex busy; /* see above */
	u8 status;
	__le32 config[5];
	bool poison_set;
	u32 actual;
	unsigned long nr_actual;
	struct fake_queue queue[QUEUE_NR];
	enum balloon_queue_id roles[QUEUE_NR];
	unsigned int nr_roles;
	unsigned long withheld;
	unsigned int rations[QUEUE_NR];
	bool breaks_later;
	bool broken;
	int fail_find;
	unsigned int shrink;
	struct task_struct *no_config;
	bool lax;
	u32 late[512];
	unsigned int nr_late;
	u8 *pages;
	u8 *reported;
	unsigned long nr_pages;
	unsigned long nr_held;
	unsigned long nr_inflated;
	unsigned long nr_deflated;
	unsigned long nr_dropped;
	unsigned long nr_forgotten;
	unsigned long nr_disorder;
	u64 stat[VIRTIO_BALLOON_S_NR];
	u32 stat_tags;
	unsigned long nr_stats;
	bool stats_dead;
	bool hinting;
	u32 hint_id;
	unsigned long nr_hint_starts;
	unsigned long nr_hint_stops;
	unsigned long nr_hinted;
	unsigned long nr_reports;
	unsigned long nr_reported;
	unsigned long reported_first;
	spinlock_t blame_lock; /* see above */
	unsigned int nr_blames;
	char blame[8][128];
};

/* Waits until @what, or for @ms of the test's time; says whether it came. */
#define fake_wait(what, ms)						\
({									\
	unsigned long __end = jiffies + msecs_to_jiffies(ms);		\
	bool __came;							\
									\
	while (!(__came = (what)) && time_before(jiffies, __end))	\
		schedule_timeout_uninterruptible(1);			\
	__came;								\
})

/* The test goes on, or ends, where it did not come in time. */
#define FAKE_EXPECT_SOON(fake, what, ms)				\
	fake_expect_came(fake, fake_wait(what, ms), #what, __LINE__)
#define FAKE_ASSERT_SOON(fake, what, ms)				\
	fake_assert_came(fake, fake_wait(what, ms), #what, __LINE__)

#endif /* _FAKE_BALLOON_H */
