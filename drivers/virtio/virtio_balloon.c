// SPDX-License-Identifier: GPL-2.0
/*
 * Guest driver for the virtio memory balloon.
 *
 * A balloon is memory that the guest has allocated and promised not to touch,
 * so that the hypervisor can use it elsewhere.  The hypervisor writes a target
 * into the configuration space; the driver inflates or deflates towards it.
 *
 * Two units.  The device counts in wire pages of 4 KiB: PFNs on the wire,
 * num_pages and actual.  Linux counts in pages of PAGE_SIZE: everything that
 * the memory management sees, the OOM notifier's result included.  Wire counts
 * end in _wire; the functions below "Units" are the only ones that convert.
 *
 * The life of a page:
 *
 *   free -> (reporting -> held ->) announced -> ballooned -> recalled -> free
 *
 *   reporting  a whole block in an unanswered report; nobody may touch it
 *   held       a block whose report is over, waiting to be announced; whoever
 *              unlinks it has it: the size worker or the OOM notifier
 *   announced  its PFN is in an inflate request that was not answered yet;
 *              nobody may touch it
 *   ballooned  on the kernel's balloon list, from where deflation, the OOM
 *              notifier and page migration take it
 *   recalled   its PFN is in an unanswered deflate request; freed when answered
 *
 * Report first, then inflate: where the device takes reports, whole blocks go
 * there first, all that the target wants, as it drops them with one call each;
 * only then are they announced, page by page as the specification wants it.  So
 * the host has its memory long before "actual" says so.
 *
 * Announced and recalled pages hang on their request.  A request that is late
 * keeps them, and its buffer, until the device answers or has been reset.
 *
 * The unit of work is a batch: many requests in flight, one kick, one wait, one
 * write of "actual".  Each batch has an owner: the size worker (or removal, once
 * the worker is disabled), who holds the OOM lock, who holds the migration lock.
 * Every owner has its own slots of a ring, so that posting never fails for want
 * of room.  The size worker has two batches: while the device has one, it fills
 * the other, and sends that before it settles the first.
 *
 * Locks, outermost first:
 *
 *   publish_lock          one writer of "actual"
 *   migration.lock        moves of ballooned pages, and who waits for one
 *   report.lock           one report at a time
 *   oom_mutex             the OOM batch; never held across an allocation
 *   balloon_queue.lock    one per virtqueue, irq-safe: every add, get and
 *                         callback switch, and what hangs on the answers
 *   pressure.lock         irq-safe leaf: OOM step and rest
 *   held_lock             irq-safe leaf: the held blocks
 *
 * The OOM notifier runs with the kernel's oom_lock held, in any task that
 * allocates.  Of the driver's locks it takes only the last four.  It allocates
 * nothing and writes no configuration: on some transports that allocates.
 */

#include <linux/atomic.h>
#include <linux/balloon_compaction.h>
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/list_sort.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/oom.h>
#include <linux/page_reporting.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/suspend.h>
#include <linux/swap.h>
#include <linux/virtio.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#define CREATE_TRACE_POINTS
#include <trace/events/virtio_balloon.h>

/* 2 MiB, the huge page that hypervisors back guests with. */
#define BLOCK_BYTES		SZ_2M
#define BLOCK_ORDER		min_t(unsigned int, ilog2(BLOCK_BYTES) - PAGE_SHIFT, MAX_PAGE_ORDER)
#define BLOCK_PAGES		BIT(BLOCK_ORDER)

#define WIRE_SHIFT		(PAGE_SHIFT - VIRTIO_BALLOON_PFN_SHIFT)
#define WIRE_PER_PAGE		((unsigned int)BIT(WIRE_SHIFT))

/*
 * PFNs in one request.  Devices that cap a descriptor lose a longer one, or
 * never answer it; their cap is 256, and none of them offers indirect
 * descriptors.  Those that do can free a 2 MiB host page only if all of it
 * stands in one request.
 */
#define REQUEST_WIRE_MIN	256U
#define REQUEST_WIRE_BLOCK	512U

/* 32 MiB: some 10 ms of work for a device that discards page by page. */
#define BATCH_WIRE_MAX		8192U
/* One slot for the worker, two for OOM, one for migration, and none to spare. */
#define RING_MIN		4U
/* A batch slower than this halves the next: device and guest stay responsive. */
#define BATCH_SLOW_MS		20
/* Moves under way for page migration, where an eighth of the ring is as much. */
#define MOVES_MAX		16U
/*
 * Who must not wait looks so long for the answer, which takes a tenth of that:
 * contiguous allocations begin asynchronously, and fail over an old page that is
 * not free at their end.
 */
#define MOVE_POLL_NS		(200 * NSEC_PER_USEC)
/* balloon_page_list_*() run with interrupts off: no more pages at a call. */
#define LIST_CALL_PAGES		512UL

/* The kernel only asks whether memory came back: steps grow while it asks. */
#define OOM_STEP_MIN_BYTES	BLOCK_BYTES
#define OOM_STEP_MAX_BYTES	SZ_64M
#define OOM_QUIET		(10 * HZ)
/* Above the default, so that memory nobody uses goes before other reserves. */
#define OOM_PRIORITY		64

/* How long inflation rests after an OOM, and how long that is remembered. */
#define REST_MIN		(10 * HZ)
#define REST_MAX		(300 * HZ)

/* Waits look again this often: breaking a device wakes nobody. */
#define WAIT_SLICE		(HZ / 5)
/* oom_lock is held: nobody else's allocation can call for help meanwhile. */
#define OOM_TIMEOUT		(5UL * HZ)
/* Compaction and memory offlining wait behind it, with a page locked. */
#define MIGRATE_TIMEOUT		(5UL * HZ)
/* Removal must end: so long for one answer, and for telling all of it. */
#define REMOVE_TIMEOUT		(5UL * HZ)
#define REMOVE_TELL_TIMEOUT	(30UL * HZ)
/* A loaded host swaps to make room for its guests; give it time. */
#define WORKER_TIMEOUT		(30UL * HZ)

/* Memory is short: look again after 200 ms, 400 ms, ... 5 s. */
#define BACKOFF_MIN		(HZ / 5)
#define BACKOFF_MAX		(5 * HZ)
/* Pages are isolated for migration: they are back within a few passes. */
#define ISOLATED_DELAY		(HZ / 20)

/* Chunks set aside in one batch because their PFNs do not fit the wire. */
#define UNFIT_MAX		256U

/*
 * Holding blocks stops before the guest has less free than this, or than 1/32 of
 * its memory: what is missing then comes page by page, with reclaim.
 */
#define HOLD_RESERVE_BYTES	SZ_64M
#define HOLD_RESERVE_SHIFT	5

/* Reclaim may be slow: a batch is filled no longer than this. */
#define FILL_TIME		(HZ / 10)

/* Hinted blocks that the device has not answered; see hint_run(). */
#define HINT_POSTED_MAX		32U
/* Most held or hinted blocks that are unlinked with interrupts off. */
#define TAKE_MAX		32UL
/* Left in the hint ring for the two commands. */
#define HINT_SLOTS_CMD		2U

/*
 * Chunks are taken where they lie free.  Single pages may reclaim, mildly: never
 * compact, never kill.  Movable memory only where balloon pages can move.
 */
#define BALLOON_GFP	(balloon_mapping_gfp_mask() | __GFP_NOMEMALLOC | \
			 __GFP_NOWARN | __GFP_SKIP_ZERO)
#define CHUNK_GFP	(BALLOON_GFP & ~__GFP_RECLAIM)
#define PAGE_GFP	(BALLOON_GFP | __GFP_NORETRY)

static bool first_ten_stats;
module_param(first_ten_stats, bool, 0444);
MODULE_PARM_DESC(first_ten_stats,
		 "Send statistics 0 to 9 only, for hypervisors that fail on more");

struct virtio_balloon;

enum balloon_queue_id {
	QUEUE_INFLATE,
	QUEUE_DEFLATE,
	QUEUE_STATS,
	QUEUE_HINT,
	QUEUE_REPORT,
	QUEUE_NR,
};

/* What debugfs counts since the device was probed; names in counter_names[]. */
enum balloon_counter {
	COUNT_INFLATE_BATCHES,
	COUNT_DEFLATE_BATCHES,
	COUNT_KICKS,
	COUNT_CONFIG_WRITES,
	COUNT_BLOCKS,
	COUNT_OOM_CALLS,
	COUNT_OOM_PAGES,
	COUNT_MIGRATED,
	COUNT_MIGRATE_DECLINED,
	COUNT_STALLS,
	COUNT_REPORTED,
	COUNT_HINTED,
	COUNT_NR,
};

/**
 * struct balloon_queue - a virtqueue and what its answers need
 * @vb: the balloon; never changes
 * @vq: the ring, NULL where the feature is not negotiated; never changes while
 *	the device is ready
 * @lock: every add, get and callback switch of @vq, and the fields below
 * @owners: batches with unanswered requests, or a hint run
 * @late: whose answer somebody gave up waiting for
 * @late_for: how long that waited, in seconds
 * @late_said: the log has that; by the publish worker
 * @dead: nothing may be added any more
 * @wait: who waits for an answer
 * @answered: takes a token that the device has given back; under @lock
 */
struct balloon_queue {
	struct virtio_balloon *vb;
	struct virtqueue *vq;
	spinlock_t lock; /* see above */
	unsigned int owners;
	unsigned int late;
	unsigned int late_for;
	bool late_said;
	bool dead;
	wait_queue_head_t wait;
	void (*answered)(struct balloon_queue *q, void *token);
};

/**
 * enum request_state - what has become of a request
 * @REQUEST_IDLE: empty
 * @REQUEST_PACKED: has its pages; the device has not seen it
 * @REQUEST_POSTED: the device's: neither the pages nor the buffer may be used
 * @REQUEST_ANSWERED: given back by the device
 * @REQUEST_SETTLING: its owner is moving the pages to where they belong now
 */
enum request_state {
	REQUEST_IDLE,
	REQUEST_PACKED,
	REQUEST_POSTED,
	REQUEST_ANSWERED,
	REQUEST_SETTLING,
};

/**
 * struct balloon_request - one descriptor's worth of PFNs
 * @batch: the batch it belongs to; never changes
 * @state: to and from POSTED and ANSWERED under the queue's lock, else by the
 *	batch's owner
 * @pages: the chunks behind @pfns, by the batch's owner
 * @nr_pages: pages in @pages
 * @nr_wire: length of @pfns
 * @pfns: physically contiguous, within one page
 */
struct balloon_request {
	struct balloon_batch *batch;
	enum request_state state;
	struct list_head pages;
	unsigned int nr_pages;
	unsigned int nr_wire;
	__virtio32 *pfns;
};

/**
 * struct balloon_batch - requests that are submitted and waited for together
 * @late: the owner gave up waiting; under the queue's lock
 * @moving: part of a move; never changes
 * @inflating: which way the pages go; by the owner
 * @requests: preallocated: none of this may allocate under pressure
 * @nr_requests: length of @requests; never changes
 * @request_wire: PFNs that fit one request; never changes
 * @used: requests that are not idle, from the first; by the owner
 * @blocks: whole blocks among the pages; by the owner
 * @begun_ns: when it was submitted; by the owner
 * @answered_ns: when the last answer came; under the queue's lock
 * @took_ns: from the one to the other; by the owner
 * @unanswered: requests that the device has; under the queue's lock
 */
struct balloon_batch {
	bool late;
	bool moving;
	bool inflating;
	struct balloon_request *requests;
	unsigned int nr_requests;
	unsigned int request_wire;
	unsigned int used;
	unsigned int blocks;
	u64 begun_ns;
	u64 answered_ns;
	u64 took_ns;
	unsigned int unanswered;
};

/**
 * struct balloon_pressure - what out-of-memory calls have taught us
 * @lock: protects the rest
 * @step_pages: what the next call gets
 * @seen: there was a call; @last is valid
 * @last: 64-bit jiffies of the last call
 * @resting: inflation pauses until @until
 * @until: end of the rest, or when the last one ended
 * @length: of the rest
 * @cut: a new target ended the last rest, at @until
 * @firm: OOM recurred right after a cut: new targets do not end this rest
 * @gentle: inflation must not reclaim, until there is a new target
 * @said: the log has this rest
 */
struct balloon_pressure {
	spinlock_t lock; /* see above */
	unsigned long step_pages;
	bool seen;
	u64 last;
	bool resting;
	u64 until;
	u64 length;
	bool cut;
	bool firm;
	bool gentle;
	bool said;
};

/**
 * struct hint_command - a command id on its way to the device
 * @id: what the device reads, perhaps late: start and stop have one each
 * @posted: the device has it; under the hint queue's lock
 */
struct hint_command {
	__virtio32 id;
	bool posted;
};

#define HINT_RECHECK	0	/* the configuration changed: read the id again */
#define HINT_YIELD	1	/* memory is short: the run ends */

/**
 * struct balloon_hint - free page hinting
 * @wq: its own: a run takes as long as there is free memory
 * @work: reads the command id and does what it says
 * @shrinker: gives answered blocks back to reclaim
 * @flags: HINT_*
 * @current_id: the id last read; by @work
 * @sent_id: the id of the last run, never sent again; by @work
 * @sent_pages: in that run; by @work
 * @start: the command that begins a run
 * @stop: the command that ends it
 * @answered: blocks that the device has answered; under the queue's lock
 * @nr_answered: length of @answered
 * @nr_posted: blocks that the device has; under the queue's lock
 * @release: DONE was read: answers free their block; under the queue's lock
 */
struct balloon_hint {
	struct workqueue_struct *wq;
	struct work_struct work;
	struct shrinker *shrinker;
	unsigned long flags;
	u32 current_id;
	u32 sent_id;
	unsigned long sent_pages;
	struct hint_command start;
	struct hint_command stop;
	struct list_head answered;
	unsigned long nr_answered;
	unsigned int nr_posted;
	bool release;
};

/**
 * struct balloon_stats - memory statistics
 * @wq: has a rescuer: hypervisors ask while the guest thrashes
 * @work: fills and supplies the buffer
 * @posted: the device has the buffer; under the queue's lock
 * @nr: entries sent, the same every time
 * @entry: the buffer; by @work while not @posted
 * @events: a snapshot, too large for the stack; by @work
 */
struct balloon_stats {
	struct workqueue_struct *wq;
	struct work_struct work;
	bool posted;
	unsigned int nr;
	struct virtio_balloon_stat entry[VIRTIO_BALLOON_S_NR];
	unsigned long events[NR_VM_EVENT_ITEMS];
};

/**
 * struct balloon_report - free page reporting
 * @core: the kernel's page_reporting core calls back through it
 * @lock: one report at a time: protects @sg and the queue's use
 * @registered: with the core; by probe, removal, freeze and restore
 * @posted: the device has a report; under the queue's lock
 * @late: the size worker gave up waiting for it; under the queue's lock
 * @blocks: the size worker's, in that report; by the size worker
 * @sg: as much of a report as the ring takes at a time
 */
struct balloon_report {
	struct page_reporting_dev_info core;
	struct mutex lock; /* see above */
	bool registered;
	bool posted;
	bool late;
	struct list_head blocks;
	struct scatterlist sg[PAGE_REPORTING_CAPACITY];
};

/**
 * struct balloon_move - one page on its way to another place
 * @inflate: announces the new page
 * @deflate: recalls the old one
 * @to: the new page, while it is not on the balloon list
 * @from: the old page, while the device may think that it has it
 */
struct balloon_move {
	struct balloon_batch inflate;
	struct balloon_batch deflate;
	struct page *to;
	struct page *from;
};

/**
 * struct balloon_migration - moving ballooned pages elsewhere
 * @lock: protects the rest
 * @work: finishes moves that nobody waits for
 * @moves: used in turn
 * @nr_moves: how many there are; never changes
 * @next: the one to use next, the oldest under way
 */
struct balloon_migration {
	struct mutex lock; /* see above */
	struct work_struct work;
	struct balloon_move moves[MOVES_MAX];
	unsigned int nr_moves;
	unsigned int next;
};

/**
 * struct virtio_balloon - one device
 * @vdev: the virtio device
 * @queue: by enum balloon_queue_id
 * @stopping: removal or freeze has begun: nothing new is started
 * @was_reset: the device has been reset: it has nothing any more
 * @sleeping: the system prepares for sleep: no inflation
 * @wakeup: held while an adjustment is under way
 * @pm_nb: sets @sleeping before image memory is allocated
 * @info: the kernel's list of ballooned pages, with its own lock
 * @ballooned: pages on that list, or isolated from it for migration
 * @size_wq: for @size_work; no rescuer, it may wait for memory anyway
 * @size_work: one step towards the target
 * @batch: the size worker's, or removal's
 * @second: filled while the device has the other
 * @batch_max: most pages in one of them; never changes
 * @batch_pages: what the next batch may hold; by @size_work
 * @target: pages, as last read; by @size_work
 * @backoff: jiffies, 0 where memory was not short; by @size_work
 * @short_said: the log has this episode of short memory; by @size_work
 * @gone_said: the log has that the device is gone; by @size_work
 * @in_hand: pages in @batch and @second, from the first one taken until they are
 *	settled; by @size_work, and read by the notifier
 * @taken: of these, what has left the list but has not been recalled yet; by
 *	@size_work
 * @held_lock: protects @held and @nr_held
 * @held: whole blocks that wait to be announced
 * @nr_held: length of @held
 * @stuck: the notifier has waited for that in vain; cleared by @size_work
 * @idle: wakes the notifier
 * @publish_wq: for @publish_work
 * @publish_work: settles a late OOM batch and writes actual, for the notifier
 * @publish_lock: protects @published and the write
 * @published: what was last written to actual, -1 for nothing
 * @pressure: OOM step and rest
 * @oom_mutex: the owner of @oom_batch
 * @oom_batch: for the notifier, and for who settles a late one
 * @oom_nb: registered with DEFLATE_ON_OOM only
 * @hint: free page hinting
 * @stats: memory statistics
 * @report: free page reporting
 * @migration: of ballooned pages
 * @counter: for debugfs, by enum balloon_counter
 * @short_of: allocations that failed, by order
 * @last_error: of the size worker, 0 for none yet
 * @debugfs: this device's directory
 */
struct virtio_balloon {
	struct virtio_device *vdev;
	struct balloon_queue queue[QUEUE_NR];
	bool stopping;
	bool was_reset;
	bool sleeping;
	struct wakeup_source *wakeup;
	struct notifier_block pm_nb;

	struct balloon_dev_info info;
	atomic_long_t ballooned;

	struct workqueue_struct *size_wq;
	struct delayed_work size_work;
	struct balloon_batch batch;
	struct balloon_batch second;
	unsigned long batch_max;
	unsigned long batch_pages;
	unsigned long target;
	unsigned long backoff;
	bool short_said;
	bool gone_said;
	unsigned long in_hand;
	unsigned long taken;
	spinlock_t held_lock; /* see above */
	struct list_head held;
	unsigned long nr_held;
	bool stuck;
	wait_queue_head_t idle;

	struct workqueue_struct *publish_wq;
	struct work_struct publish_work;
	struct mutex publish_lock; /* see above */
	s64 published;

	struct balloon_pressure pressure;
	struct mutex oom_mutex; /* see above */
	struct balloon_batch oom_batch;
	struct notifier_block oom_nb;

	struct balloon_hint hint;
	struct balloon_stats stats;
	struct balloon_report report;
	struct balloon_migration migration;

	atomic_long_t counter[COUNT_NR];
	atomic_long_t short_of[NR_PAGE_ORDERS];
	int last_error;
	struct dentry *debugfs;
};

static_assert(PAGE_SHIFT >= VIRTIO_BALLOON_PFN_SHIFT);
static_assert(sizeof(struct virtio_balloon_stat) == 10);
static_assert(WIRE_PER_PAGE <= REQUEST_WIRE_MIN);

/* --- Units ------------------------------------------------------------- */

static unsigned long pages_to_wire(unsigned long pages)
{
	return pages << WIRE_SHIFT;
}

static unsigned long wire_to_pages(unsigned long wire)
{
	return wire >> WIRE_SHIFT;
}

/*
 * A target that is no multiple of a page is rounded up: the host gets what it
 * asked for, and the driver settles instead of going back and forth.  Written
 * so that a target near 2^32 does not wrap; with the shift as an argument, so
 * that it can be tested for all page sizes.
 */
static unsigned long wire_round_up(u32 wire, unsigned int shift)
{
	return (wire >> shift) + !!(wire & (BIT(shift) - 1));
}

static unsigned long target_to_pages(u32 target_wire)
{
	return wire_round_up(target_wire, WIRE_SHIFT);
}

static u32 page_to_wire_pfn(struct page *page)
{
	return (u32)pages_to_wire(page_to_pfn(page));
}

static unsigned long pages_to_mib(unsigned long pages)
{
	return pages >> (20 - PAGE_SHIFT);
}

static bool balloon_has(const struct virtio_balloon *vb, unsigned int feature)
{
	return virtio_has_feature(vb->vdev, feature);
}

static void balloon_count(struct virtio_balloon *vb, enum balloon_counter which,
			  unsigned long nr)
{
	atomic_long_add(nr, &vb->counter[which]);
}

/* --- Queues ------------------------------------------------------------ */

static bool queue_gone(struct balloon_queue *q)
{
	return READ_ONCE(q->dead) || virtqueue_is_broken(q->vq);
}

static void queue_set_dead(struct balloon_queue *q, bool dead)
{
	spin_lock_irq(&q->lock);
	WRITE_ONCE(q->dead, dead);
	spin_unlock_irq(&q->lock);
}

/*
 * Returns false where answers came in meanwhile.  The ring has one event for
 * all: delayed callbacks are only for an owner who waits alone, or else a short
 * request would wait for a long one.  Statistics, reports and the end of a hint
 * run have no owner.
 */
static bool queue_arm(struct balloon_queue *q)
{
	lockdep_assert_held(&q->lock);
	return q->owners == 1 ? virtqueue_enable_cb_delayed(q->vq) :
				virtqueue_enable_cb(q->vq);
}

/* Used lengths mean nothing: some devices leave garbage there. */
static void queue_reap(struct balloon_queue *q)
{
	unsigned int len;
	void *token;

	lockdep_assert_held(&q->lock);
	do {
		virtqueue_disable_cb(q->vq);
		while ((token = virtqueue_get_buf(q->vq, &len)))
			q->answered(q, token);
	} while (!queue_gone(q) && !queue_arm(q));
}

static void queue_poll(struct balloon_queue *q)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (!queue_gone(q))
		queue_reap(q);
	spin_unlock_irqrestore(&q->lock, flags);
}

/* The virtqueues' callback, in interrupt context. */
static void queue_used(struct virtqueue *vq)
{
	struct virtio_balloon *vb = vq->vdev->priv;
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++) {
		if (vb->queue[id].vq == vq)
			queue_poll(&vb->queue[id]);
	}
}

/**
 * queue_post() - give one request to the device
 * @q: the queue
 * @sg: its buffers
 * @nr: how many, one descriptor each
 * @writable: the device may write to it
 * @token: what the answer will carry
 *
 * Nothing is allocated: INDIRECT_DESC is never negotiated.
 *
 * Context: under @q's lock.
 * Return: 0, -EIO on a queue that is broken or dead, -ENOSPC on a full one.
 */
static int queue_post(struct balloon_queue *q, struct scatterlist *sg,
		      unsigned int nr, bool writable, void *token)
{
	lockdep_assert_held(&q->lock);
	if (queue_gone(q))
		return -EIO;
	if (writable)
		return virtqueue_add_inbuf(q->vq, sg, nr, token, GFP_ATOMIC);
	return virtqueue_add_outbuf(q->vq, sg, nr, token, GFP_ATOMIC);
}

/* After posting.  Returns whether to queue_notify(). */
static bool queue_commit(struct balloon_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (queue_gone(q))
		return false;
	if (!queue_arm(q))
		queue_reap(q);
	return virtqueue_kick_prepare(q->vq);
}

/*
 * Said by the publish worker: here may be an OOM notifier or an interrupt, and
 * the console may be slow.
 */
static void queue_stalled(struct balloon_queue *q, unsigned long timeout)
{
	lockdep_assert_held(&q->lock);
	q->late_for = timeout / HZ;
	WRITE_ONCE(q->late, q->late + 1);
	balloon_count(q->vb, COUNT_STALLS, 1);
	trace_virtio_balloon_stall(&q->vb->vdev->dev);
	queue_work(q->vb->publish_wq, &q->vb->publish_work);
}

static void queue_recovered(struct balloon_queue *q)
{
	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->late, q->late - 1);
	trace_virtio_balloon_recover(&q->vb->vdev->dev);
	queue_work(q->vb->publish_wq, &q->vb->publish_work);
}

/* Once a stall, and once its end. */
static void queue_say(struct balloon_queue *q)
{
	struct device *dev = &q->vb->vdev->dev;
	bool late = READ_ONCE(q->late);

	if (late == q->late_said)
		return;
	q->late_said = late;
	if (late)
		dev_warn(dev, "no answer on the %s queue for %u s; waiting for the device\n",
			 q->vq->name, q->late_for);
	else
		dev_info(dev, "the device answers on the %s queue again\n",
			 q->vq->name);
}

/* Without the lock: some hypervisors do the work while we notify. */
static void queue_notify(struct balloon_queue *q)
{
	balloon_count(q->vb, COUNT_KICKS, 1);
	virtqueue_notify(q->vq);
}

/**
 * queue_wait() - wait for answers, in slices
 * @q: the queue
 * @enough: what is waited for
 * @arg: its argument
 * @timeout: jiffies; removal shortens it
 *
 * Context: process context, no spinlocks.
 * Return: 0, -EIO where the queue broke first, -ETIMEDOUT.
 */
static int queue_wait(struct balloon_queue *q, bool (*enough)(void *arg),
		      void *arg, unsigned long timeout)
{
	unsigned long begun = jiffies;

	for (;;) {
		wait_event_timeout(q->wait, enough(arg) || queue_gone(q),
				   WAIT_SLICE);
		queue_poll(q);
		if (enough(arg))
			return 0;
		if (queue_gone(q))
			return -EIO;
		if (READ_ONCE(q->vb->stopping))
			timeout = min(timeout, REMOVE_TIMEOUT);
		if (time_after(jiffies, begun + timeout))
			return -ETIMEDOUT;
	}
}

/* --- Chunks: naturally aligned runs of pages ----------------------------- */

static struct page *chunk_alloc(unsigned int order, bool gentle)
{
	gfp_t gfp = order || gentle ? CHUNK_GFP : PAGE_GFP;
	struct page *page = alloc_pages(gfp, order);

	if (page)
		set_page_private(page, order);
	return page;
}

/* PFNs are 32 bits on the wire: pages beyond that are not ballooned. */
static bool chunk_fits_wire(struct page *page, unsigned int order)
{
	u64 last_pfn = page_to_pfn(page) + BIT(order) - 1;

	return last_pfn <= U32_MAX >> WIRE_SHIFT;
}

static unsigned int chunk_order(struct page *page)
{
	return page_private(page);
}

static void chunks_free(struct list_head *chunks)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, chunks, lru) {
		unsigned int order = chunk_order(page);

		list_del(&page->lru);
		set_page_private(page, 0);
		__free_pages(page, order);
	}
}

/* Those of a request: split, but still one entry of the list each. */
static void chunks_put(struct list_head *chunks)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, chunks, lru) {
		unsigned long left = BIT(chunk_order(page));

		list_del(&page->lru);
		for (; left; left--, page++) {
			set_page_private(page, 0);
			__free_page(page);
		}
	}
}

static int chunk_compare(void *priv, const struct list_head *a,
			 const struct list_head *b)
{
	unsigned long pfn_a = page_to_pfn(list_entry(a, struct page, lru));
	unsigned long pfn_b = page_to_pfn(list_entry(b, struct page, lru));

	return pfn_a < pfn_b ? -1 : pfn_a > pfn_b;
}

static bool chunks_sorted(struct list_head *chunks)
{
	struct list_head *pos;

	list_for_each(pos, chunks) {
		if (!list_is_last(pos, chunks) &&
		    chunk_compare(NULL, pos, pos->next) > 0)
			return false;
	}
	return true;
}

/* Hypervisors merge neighbours: PFNs ascend.  Mostly they do already. */
static void chunks_sort(struct list_head *chunks)
{
	if (!chunks_sorted(chunks))
		list_sort(NULL, chunks, chunk_compare);
}

/* --- Batches ----------------------------------------------------------- */

static void batch_free(struct balloon_batch *b)
{
	unsigned int i;

	for (i = 0; i < b->nr_requests; i++)
		kfree(b->requests[i].pfns);
	kfree(b->requests);
	b->requests = NULL;
	b->nr_requests = 0;
}

/*
 * kmalloc() of a power of two is physically contiguous and within a page: the
 * device reads guest-physical addresses.
 */
static int batch_alloc(struct balloon_batch *b, unsigned int nr_requests,
		       unsigned int request_wire)
{
	b->requests = kcalloc(nr_requests, sizeof(*b->requests), GFP_KERNEL);
	if (!b->requests)
		return -ENOMEM;
	b->request_wire = request_wire;
	for (; b->nr_requests < nr_requests; b->nr_requests++) {
		struct balloon_request *req = &b->requests[b->nr_requests];

		INIT_LIST_HEAD(&req->pages);
		req->batch = b;
		req->pfns = kmalloc_array(request_wire, sizeof(*req->pfns),
					  GFP_KERNEL);
		if (!req->pfns) {
			batch_free(b);
			return -ENOMEM;
		}
	}
	return 0;
}

/* The request that takes @wire more PFNs, or NULL where all are full. */
static struct balloon_request *batch_request(struct balloon_batch *b,
					     unsigned int wire)
{
	struct balloon_request *req;

	if (b->used) {
		req = &b->requests[b->used - 1];
		if (req->nr_wire + wire <= b->request_wire)
			return req;
	}
	if (b->used == b->nr_requests)
		return NULL;
	req = &b->requests[b->used++];
	req->state = REQUEST_PACKED;
	req->nr_pages = 0;
	req->nr_wire = 0;
	return req;
}

static void request_add_pfns(struct virtio_balloon *vb,
			     struct balloon_request *req, struct page *page,
			     unsigned long pages)
{
	bool little = virtio_is_little_endian(vb->vdev);
	__virtio32 *pfns = req->pfns + req->nr_wire;
	unsigned long wire = pages_to_wire(pages), i;
	u32 pfn = page_to_wire_pfn(page);

	for (i = 0; i < wire; i++)
		pfns[i] = __cpu_to_virtio32(little, pfn + i);
	req->nr_wire += wire;
	req->nr_pages += pages;
}

/* A chunk that needs two requests begins a new one. */
static bool batch_add_split(struct virtio_balloon *vb, struct balloon_batch *b,
			    struct page *page)
{
	unsigned long pages = BIT(chunk_order(page));
	struct balloon_request *req;
	unsigned long i;

	if (b->used + DIV_ROUND_UP(pages_to_wire(pages), b->request_wire) >
	    b->nr_requests || !batch_request(b, b->request_wire))
		return false;
	list_del(&page->lru);
	split_page(page, chunk_order(page));
	for (i = 0; i < pages; i++) {
		req = batch_request(b, WIRE_PER_PAGE);
		request_add_pfns(vb, req, page + i, 1);
		/* Those behind the first have had no user to clear it. */
		set_page_private(page + i, 0);
		list_add_tail(&page[i].lru, &req->pages);
	}
	return true;
}

/*
 * A chunk that fits one request never straddles two, as a host page may lie in
 * it; and it is one entry of the list until the device has answered.
 */
static bool batch_add_chunk(struct virtio_balloon *vb, struct balloon_batch *b,
			    struct page *page)
{
	unsigned int order = chunk_order(page);
	unsigned long wire = pages_to_wire(BIT(order));
	struct balloon_request *req;

	b->blocks += order == BLOCK_ORDER;
	if (wire > b->request_wire)
		return batch_add_split(vb, b, page);
	req = batch_request(b, wire);
	if (!req)
		return false;
	if (order)
		split_page(page, order);
	request_add_pfns(vb, req, page, BIT(order));
	list_move_tail(&page->lru, &req->pages);
	return true;
}

/*
 * Moves chunks into requests.  Two neighbours hold more than one could, so that
 * twice as many as a full batch needs are always enough.
 */
static void batch_pack(struct virtio_balloon *vb, struct balloon_batch *b,
		       struct list_head *chunks)
{
	struct page *page, *next;

	b->blocks = 0;
	chunks_sort(chunks);
	list_for_each_entry_safe(page, next, chunks, lru) {
		if (!batch_add_chunk(vb, b, page))
			break;
	}
	WARN_ON_ONCE(!list_empty(chunks));
}

/* Without the queue's lock a hint only: batch_collect() looks again. */
static bool batch_answered(void *arg)
{
	struct balloon_batch *b = arg;

	return !READ_ONCE(b->unanswered);
}

static struct balloon_queue *batch_queue(struct virtio_balloon *vb,
					 struct balloon_batch *b)
{
	return &vb->queue[b->inflating ? QUEUE_INFLATE : QUEUE_DEFLATE];
}

static bool batch_is_workers(struct virtio_balloon *vb,
			     const struct balloon_batch *b)
{
	return b == &vb->batch || b == &vb->second;
}

/* Whoever gave up on @b learns that the device answered all of it after all. */
static void batch_recover(struct virtio_balloon *vb, struct balloon_batch *b)
{
	queue_recovered(batch_queue(vb, b));
	if (batch_is_workers(vb, b)) {
		mod_delayed_work(vb->size_wq, &vb->size_work, 0);
		return;
	}
	queue_work(vb->publish_wq, &vb->publish_work);
}

/* The inflate and deflate queues' answer.  Whoever reaps it wakes the owner. */
static void request_answered(struct balloon_queue *q, void *token)
{
	struct balloon_request *req = token;
	struct balloon_batch *b = req->batch;

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(req->state, REQUEST_ANSWERED);
	b->answered_ns = ktime_get_ns();
	WRITE_ONCE(b->unanswered, b->unanswered - 1);
	if (b->unanswered)
		return;
	q->owners--;
	if (b->late)
		batch_recover(q->vb, b);
	WRITE_ONCE(b->late, false);
	if (b->moving)
		queue_work(q->vb->publish_wq, &q->vb->migration.work);
	wake_up(&q->wait);
}

static int batch_post(struct balloon_queue *q, struct balloon_batch *b)
{
	unsigned int i;
	int err = 0;

	lockdep_assert_held(&q->lock);
	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];
		struct scatterlist sg;

		sg_init_one(&sg, req->pfns, req->nr_wire * sizeof(*req->pfns));
		err = queue_post(q, &sg, 1, false, req);
		if (err)
			break;
		WRITE_ONCE(req->state, REQUEST_POSTED);
		WRITE_ONCE(b->unanswered, b->unanswered + 1);
	}
	if (i)
		q->owners++;
	return i ? 0 : err;
}

static int batch_submit(struct balloon_queue *q, struct balloon_batch *b)
{
	unsigned long flags;
	bool notify;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	err = batch_post(q, b);
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		queue_notify(q);
	return err;
}

/*
 * From now on an answer calls batch_recover(); unless it has just come.  Nothing
 * more is posted before that: so it is said once.
 */
static int batch_give_up(struct balloon_queue *q, struct balloon_batch *b,
			 unsigned long timeout)
{
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&q->lock, flags);
	if (!batch_answered(b)) {
		WRITE_ONCE(b->late, true);
		queue_stalled(q, timeout);
		err = -ETIMEDOUT;
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return err;
}

/* Pages in requests of a state.  A glance: without ownership it may be old. */
static unsigned long batch_pages(const struct balloon_batch *b,
				 enum request_state state)
{
	unsigned long pages = 0;
	unsigned int i;

	for (i = 0; i < b->nr_requests; i++) {
		if (READ_ONCE(b->requests[i].state) == state)
			pages += READ_ONCE(b->requests[i].nr_pages);
	}
	return pages;
}

/* The device's time: the owner may have looked for the answer only later. */
static u64 batch_took_ns(struct balloon_queue *q, struct balloon_batch *b)
{
	unsigned long flags;
	u64 end;

	spin_lock_irqsave(&q->lock, flags);
	end = batch_answered(b) ? b->answered_ns : ktime_get_ns();
	spin_unlock_irqrestore(&q->lock, flags);
	return end - b->begun_ns;
}

/* What came of a batch, for those who look. */
static void batch_note(struct virtio_balloon *vb, struct balloon_batch *b,
		       int err)
{
	b->took_ns = batch_took_ns(batch_queue(vb, b), b);
	balloon_count(vb, b->inflating ? COUNT_INFLATE_BATCHES :
			  COUNT_DEFLATE_BATCHES, 1);
	balloon_count(vb, COUNT_BLOCKS, b->inflating ? b->blocks : 0);
	trace_virtio_balloon_batch(&vb->vdev->dev, b->inflating, b->used,
				   batch_pages(b, REQUEST_ANSWERED), b->blocks,
				   b->took_ns, err);
}

static int batch_send(struct virtio_balloon *vb, struct balloon_batch *b)
{
	b->begun_ns = ktime_get_ns();
	b->answered_ns = b->begun_ns;
	return batch_submit(batch_queue(vb, b), b);
}

/**
 * batch_await() - wait until a batch that was sent is answered
 * @vb: the balloon
 * @b: the batch, its owner's
 * @timeout: jiffies
 *
 * Whatever happens, batch_settle() comes next: it tells by each request's state
 * what became of the pages.  After -ETIMEDOUT batch_recover() will be called.
 *
 * Context: process context, no locks.
 * Return: 0, -EIO where the device is gone, -ETIMEDOUT.
 */
static int batch_await(struct virtio_balloon *vb, struct balloon_batch *b,
		       unsigned long timeout)
{
	struct balloon_queue *q = batch_queue(vb, b);
	int err = queue_wait(q, batch_answered, b, timeout);

	if (err == -ETIMEDOUT)
		err = batch_give_up(q, b, timeout);
	batch_note(vb, b, err);
	return err;
}

/* Send a packed batch, and wait until it is answered; see batch_await(). */
static int batch_run(struct virtio_balloon *vb, struct balloon_batch *b,
		     unsigned long timeout)
{
	int err = batch_send(vb, b);

	if (!err)
		return batch_await(vb, b, timeout);
	batch_note(vb, b, err);
	return err;
}

/*
 * MemTotal falls by the balloon, except with DEFLATE_ON_OOM, where the memory
 * is the guest's to take back at any time.  One call for a run of one zone.
 */
static void account_managed(struct virtio_balloon *vb, struct list_head *chunks,
			    long sign)
{
	struct page *page, *first = NULL;
	long nr = 0;

	if (balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		return;
	list_for_each_entry(page, chunks, lru) {
		if (first && page_zone(page) != page_zone(first)) {
			adjust_managed_page_count(first, sign * nr);
			first = NULL;
		}
		if (!first) {
			first = page;
			nr = 0;
		}
		nr += BIT(chunk_order(page));
	}
	if (first)
		adjust_managed_page_count(first, sign * nr);
}

/* The core's own function wants single pages, on a list of their own. */
static void chunk_insert(struct balloon_dev_info *info, struct page *page)
{
	struct page *end = page + BIT(chunk_order(page));
	bool locked;

	lockdep_assert_held(&info->pages_lock);
	for (; page < end; page++) {
		/* Those behind the first have had no user to clear it. */
		set_page_private(page, 0);
		locked = trylock_page(page);
		WARN_ON_ONCE(!locked);
		balloon_page_insert(info, page);
		if (locked)
			unlock_page(page);
	}
}

/*
 * The count goes up before the pages can be taken, and down after: it never
 * falls below what is there.
 */
static void balloon_put(struct virtio_balloon *vb, struct list_head *chunks,
			unsigned long nr)
{
	struct page *page, *next;
	unsigned long flags;

	atomic_long_add(nr, &vb->ballooned);
	spin_lock_irqsave(&vb->info.pages_lock, flags);
	list_for_each_entry_safe(page, next, chunks, lru)
		chunk_insert(&vb->info, page);
	spin_unlock_irqrestore(&vb->info.pages_lock, flags);
	INIT_LIST_HEAD(chunks);
	count_vm_events(BALLOON_INFLATE, nr);
}

static void pages_release(struct virtio_balloon *vb, struct list_head *pages)
{
	account_managed(vb, pages, 1);
	put_pages_list(pages);
}

/*
 * Announced pages join the balloon, recalled ones are free.  What the device has
 * not seen is free too: of a deflation that is so only after a reset.
 */
static void request_settle(struct virtio_balloon *vb,
			   struct balloon_request *req, bool answered)
{
	if (!req->batch->inflating) {
		pages_release(vb, &req->pages);
	} else if (answered) {
		account_managed(vb, &req->pages, -1);
		balloon_put(vb, &req->pages, req->nr_pages);
	} else {
		chunks_put(&req->pages);
	}
	req->nr_pages = 0;
	WRITE_ONCE(req->state, REQUEST_IDLE);
}

/* Under the queue's lock, so that the answering side has finished with them. */
static void batch_collect(struct balloon_queue *q, struct balloon_batch *b)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&q->lock, flags);
	for (i = 0; i < b->used; i++) {
		if (b->requests[i].state == REQUEST_ANSWERED)
			WRITE_ONCE(b->requests[i].state, REQUEST_SETTLING);
	}
	spin_unlock_irqrestore(&q->lock, flags);
}

/* Returns whether the request still has pages. */
static bool request_try_settle(struct virtio_balloon *vb,
			       struct balloon_request *req)
{
	enum request_state state = READ_ONCE(req->state);

	if (state == REQUEST_SETTLING)
		request_settle(vb, req, true);
	else if (state == REQUEST_PACKED && req->batch->inflating)
		request_settle(vb, req, false);
	return READ_ONCE(req->state) != REQUEST_IDLE;
}

/**
 * batch_settle() - give the pages of a batch to whom they belong now
 * @vb: the balloon
 * @b: the batch; the caller owns it
 *
 * Unanswered requests keep their pages and stay in the batch.  So do those of a
 * deflation that could not be posted because the device is gone: the pages are
 * the device's until it has been reset.
 *
 * Context: process context; no spinlocks.  Allocates nothing.
 * Return: wire pages that changed sides.
 */
static unsigned long batch_settle(struct virtio_balloon *vb,
				  struct balloon_batch *b)
{
	unsigned long moved_wire = 0;
	bool open = false;
	unsigned int i;

	batch_collect(batch_queue(vb, b), b);
	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];

		if (READ_ONCE(req->state) == REQUEST_SETTLING)
			moved_wire += pages_to_wire(req->nr_pages);
		open |= request_try_settle(vb, req);
	}
	if (!open)
		b->used = 0;
	return moved_wire;
}

/* The device has been reset: it will neither answer nor touch the pages. */
static void batch_abandon(struct virtio_balloon *vb, struct balloon_batch *b)
{
	unsigned int i;

	batch_settle(vb, b);
	for (i = 0; i < b->used; i++) {
		if (b->requests[i].state != REQUEST_IDLE)
			request_settle(vb, &b->requests[i], false);
	}
	b->used = 0;
	b->unanswered = 0;
	b->late = false;
}

/* --- Deflation ---------------------------------------------------------- */

/*
 * The list is a stack, and a call turns the order of what it takes: runs come
 * out ascending, the highest run first.  So each goes before the last.
 */
static unsigned long balloon_take(struct virtio_balloon *vb,
				  struct list_head *pages, unsigned long nr)
{
	unsigned long taken = 0;

	while (taken < nr) {
		LIST_HEAD(run);
		size_t n = balloon_page_list_dequeue(&vb->info, &run,
						     min(nr - taken, LIST_CALL_PAGES));

		if (!n)
			break;
		list_splice(&run, pages);
		taken += n;
	}
	atomic_long_sub(taken, &vb->ballooned);
	return taken;
}

/**
 * deflate() - take pages out of the balloon, tell the device, free them
 * @vb: the balloon
 * @b: an empty batch; the caller owns it
 * @nr: most pages to take, no more than @b holds
 * @timeout: how long to wait for the device, in jiffies
 * @freed_wire: wire pages that were freed are added
 *
 * Pages are freed only when the device has answered, also where it does not ask
 * for that: pipelining makes it cheap.
 *
 * Context: process context, no locks; allocates nothing.
 * Return: 0, -ENOENT where the list is empty, or as batch_run().
 */
static int deflate(struct virtio_balloon *vb, struct balloon_batch *b,
		   unsigned long nr, unsigned long timeout,
		   unsigned long *freed_wire)
{
	LIST_HEAD(pages);
	int err;

	if (queue_gone(&vb->queue[QUEUE_DEFLATE]))
		return -EIO;
	nr = balloon_take(vb, &pages, nr);
	if (!nr)
		return -ENOENT;
	b->inflating = false;
	batch_pack(vb, b, &pages);
	err = batch_run(vb, b, timeout);
	*freed_wire += batch_settle(vb, b);
	return err;
}

/* --- Pressure: what OOM calls ask of us --------------------------------- */

static void pressure_init(struct balloon_pressure *p)
{
	spin_lock_init(&p->lock);
	p->length = REST_MIN;
}

/* Returns whether a rest has just ended. */
static bool pressure_expire(struct balloon_pressure *p, u64 now)
{
	lockdep_assert_held(&p->lock);
	if (!p->resting || now < p->until)
		return false;
	WRITE_ONCE(p->resting, false);
	p->firm = false;
	return true;
}

/* Steps double while calls keep coming, and begin anew after a quiet time. */
static unsigned long pressure_step(struct balloon_pressure *p, u64 now)
{
	lockdep_assert_held(&p->lock);
	if (!p->seen || now > p->last + OOM_QUIET)
		p->step_pages = OOM_STEP_MIN_BYTES >> PAGE_SHIFT;
	else
		p->step_pages = min_t(unsigned long, p->step_pages * 2,
				      OOM_STEP_MAX_BYTES >> PAGE_SHIFT);
	return p->step_pages;
}

/* An OOM that follows a rest soon doubles the next one. */
static void pressure_rest(struct balloon_pressure *p, u64 now)
{
	lockdep_assert_held(&p->lock);
	if (!p->resting && p->seen) {
		p->length = now < p->until + REST_MAX ?
			    min_t(u64, p->length * 2, REST_MAX) : REST_MIN;
		p->firm = p->cut && now < p->until + REST_MIN;
	}
	if (!p->resting)
		p->said = false;
	p->cut = false;
	WRITE_ONCE(p->gentle, true);
	p->until = now + p->length;
	WRITE_ONCE(p->resting, true);
}

/**
 * pressure_oom() - note an OOM call
 * @vb: the balloon
 * @now: 64-bit jiffies
 *
 * Context: any; takes the pressure's lock.
 * Return: pages to take out of the balloon.
 */
static unsigned long pressure_oom(struct virtio_balloon *vb, u64 now)
{
	struct balloon_pressure *p = &vb->pressure;
	unsigned long flags, step;
	bool begins, firm;
	u64 length;

	spin_lock_irqsave(&p->lock, flags);
	pressure_expire(p, now);
	step = pressure_step(p, now);
	begins = !p->resting;
	pressure_rest(p, now);
	p->seen = true;
	p->last = now;
	length = p->length;
	firm = p->firm;
	spin_unlock_irqrestore(&p->lock, flags);
	if (begins)
		trace_virtio_balloon_pause(&vb->vdev->dev,
					   jiffies_to_msecs(length), firm);
	return step;
}

/**
 * pressure_resting() - how long inflation must still rest
 * @vb: the balloon
 * @now: 64-bit jiffies
 *
 * Context: any; takes the pressure's lock.
 * Return: jiffies, 0 where it need not.
 */
static unsigned long pressure_resting(struct virtio_balloon *vb, u64 now)
{
	struct balloon_pressure *p = &vb->pressure;
	unsigned long flags, left;
	bool ended;

	if (!READ_ONCE(p->resting))
		return 0;
	spin_lock_irqsave(&p->lock, flags);
	ended = pressure_expire(p, now);
	left = p->resting ? p->until - now : 0;
	spin_unlock_irqrestore(&p->lock, flags);
	if (ended)
		trace_virtio_balloon_resume(&vb->vdev->dev);
	return left;
}

/**
 * pressure_new_target() - a target that wants more inflation has come
 * @vb: the balloon
 * @now: 64-bit jiffies
 *
 * It ends the rest once.  Where OOM came back at once after that, somebody
 * moves targets all the time and the rest holds.
 *
 * Context: any; takes the pressure's lock.
 */
static void pressure_new_target(struct virtio_balloon *vb, u64 now)
{
	struct balloon_pressure *p = &vb->pressure;
	unsigned long flags;
	bool ends;

	spin_lock_irqsave(&p->lock, flags);
	pressure_expire(p, now);
	ends = p->resting && !p->firm;
	if (ends) {
		WRITE_ONCE(p->resting, false);
		p->cut = true;
		p->until = now;
	}
	if (!p->resting)
		WRITE_ONCE(p->gentle, false);
	spin_unlock_irqrestore(&p->lock, flags);
	if (ends)
		trace_virtio_balloon_resume(&vb->vdev->dev);
}

/* --- Held blocks --------------------------------------------------------- */

/*
 * Links blocks, unless OOM has begun a rest: then they are free memory again,
 * as those that the notifier found.
 */
static void held_add(struct virtio_balloon *vb, struct list_head *blocks,
		     unsigned long nr)
{
	unsigned long flags;

	spin_lock_irqsave(&vb->held_lock, flags);
	if (!READ_ONCE(vb->pressure.resting)) {
		list_splice_tail_init(blocks, &vb->held);
		WRITE_ONCE(vb->nr_held, vb->nr_held + nr);
	}
	spin_unlock_irqrestore(&vb->held_lock, flags);
	chunks_free(blocks);
}

/* Unlinks up to @max blocks, of which @keep stay; returns how many. */
static unsigned long held_take(struct virtio_balloon *vb,
			       struct list_head *blocks, unsigned long max,
			       unsigned long keep)
{
	unsigned long flags, taken = 0;

	spin_lock_irqsave(&vb->held_lock, flags);
	while (taken < max && vb->nr_held - taken > keep) {
		list_move_tail(vb->held.next, blocks);
		taken++;
	}
	WRITE_ONCE(vb->nr_held, vb->nr_held - taken);
	spin_unlock_irqrestore(&vb->held_lock, flags);
	return taken;
}

/**
 * held_trim() - free held blocks
 * @vb: the balloon
 * @keep: so many stay
 *
 * The device need not be asked: it was told that they are unused, and not yet
 * that they are ballooned.
 *
 * Context: process context; takes held_lock.  Allocates nothing.
 * Return: pages freed.
 */
static unsigned long held_trim(struct virtio_balloon *vb, unsigned long keep)
{
	unsigned long taken, sum = 0;
	LIST_HEAD(blocks);

	/* A glance at the number could miss blocks that are being linked. */
	while ((taken = held_take(vb, &blocks, TAKE_MAX, keep))) {
		chunks_free(&blocks);
		sum += taken;
		cond_resched();
	}
	return sum * BLOCK_PAGES;
}

static unsigned long held_release(struct virtio_balloon *vb)
{
	return held_trim(vb, 0);
}

/* --- Hinted blocks: what the device, reclaim and OOM may do with them ---- */

/*
 * Hinted blocks are movable memory that does not move.  PageOffline() lets an
 * attempt to offline them fail at once, instead of trying for ever.
 */
static struct page *hint_block_alloc(void)
{
	struct page *page = chunk_alloc(BLOCK_ORDER, true);

	if (page)
		__SetPageOffline(page);
	return page;
}

static void hint_blocks_free(struct list_head *blocks)
{
	struct page *page;

	list_for_each_entry(page, blocks, lru)
		__ClearPageOffline(page);
	chunks_free(blocks);
}

/* The hint queue's answer: a block, or a command. */
static void hint_answered(struct balloon_queue *q, void *token)
{
	struct balloon_hint *hint = &q->vb->hint;
	struct page *page = token;

	lockdep_assert_held(&q->lock);
	wake_up(&q->wait);
	if (token == &hint->start || token == &hint->stop) {
		struct hint_command *cmd = token;

		WRITE_ONCE(cmd->posted, false);
		return;
	}
	list_add(&page->lru, &hint->answered);
	WRITE_ONCE(hint->nr_posted, hint->nr_posted - 1);
	WRITE_ONCE(hint->nr_answered, hint->nr_answered + 1);
	if (hint->release)
		queue_work(hint->wq, &hint->work);
}

static unsigned long hint_take(struct virtio_balloon *vb,
			       struct list_head *blocks, unsigned long max)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];
	struct balloon_hint *hint = &vb->hint;
	unsigned long flags, taken = 0;

	spin_lock_irqsave(&q->lock, flags);
	if (!queue_gone(q))
		queue_reap(q);
	while (taken < max && !list_empty(&hint->answered)) {
		list_move(hint->answered.next, blocks);
		taken++;
	}
	WRITE_ONCE(hint->nr_answered, hint->nr_answered - taken);
	spin_unlock_irqrestore(&q->lock, flags);
	return taken;
}

/**
 * hint_release() - free hinted blocks that the device has answered
 * @vb: the balloon
 * @max: most blocks to free
 *
 * A block whose descriptor is still the device's stays: some hypervisors
 * discard late, and would discard what the next user wrote.
 *
 * Context: process context, no locks.  Waits for nothing, allocates nothing.
 * Return: pages freed; 0 also where hinting is not negotiated.
 */
static unsigned long hint_release(struct virtio_balloon *vb, unsigned long max)
{
	unsigned long taken, sum = 0;
	LIST_HEAD(blocks);

	if (!vb->queue[QUEUE_HINT].vq)
		return 0;
	do {
		taken = hint_take(vb, &blocks, min(max - sum, TAKE_MAX));
		hint_blocks_free(&blocks);
		sum += taken;
		cond_resched();
	} while (taken == TAKE_MAX && sum < max);
	return sum * BLOCK_PAGES;
}

/* Memory is short: a run that goes on would take the blocks again at once. */
static void hint_yield(struct virtio_balloon *vb)
{
	set_bit(HINT_YIELD, &vb->hint.flags);
}

/* Shrinker objects are pages, as reclaim counts them. */
static unsigned long balloon_shrink_count(struct shrinker *shrinker,
					  struct shrink_control *sc)
{
	struct virtio_balloon *vb = shrinker->private_data;

	if (READ_ONCE(vb->hint.nr_posted))
		queue_poll(&vb->queue[QUEUE_HINT]);
	return READ_ONCE(vb->hint.nr_answered) * BLOCK_PAGES;
}

/**
 * balloon_shrink_scan() - reclaim wants hinted blocks
 * @shrinker: registered with FREE_PAGE_HINT, always and only
 * @sc: how many pages
 *
 * Nothing but hinted blocks is ever returned: ballooned pages leave on OOM, or
 * inflating against page cache becomes a busy no-op.
 *
 * Context: reclaim; waits for nothing.
 * Return: pages freed, SHRINK_STOP where there was none.
 */
static unsigned long balloon_shrink_scan(struct shrinker *shrinker,
					 struct shrink_control *sc)
{
	struct virtio_balloon *vb = shrinker->private_data;
	unsigned long pages;

	pages = hint_release(vb, DIV_ROUND_UP(sc->nr_to_scan, BLOCK_PAGES));
	if (!pages)
		return SHRINK_STOP;
	hint_yield(vb);
	return pages;
}

/* --- Migration ----------------------------------------------------------- */

/*
 * The new page joins the list.  It has been counted as ballooned, and isolated,
 * since the old one went.
 */
static void move_join(struct virtio_balloon *vb, struct balloon_move *move,
		      bool locked)
{
	unsigned long flags;

	/* The core may not have let go of it yet. */
	if (!locked)
		lock_page(move->to);
	spin_lock_irqsave(&vb->info.pages_lock, flags);
	balloon_page_insert(&vb->info, move->to);
	vb->info.isolated_pages--;
	spin_unlock_irqrestore(&vb->info.pages_lock, flags);
	if (!locked)
		unlock_page(move->to);
	move->to = NULL;
}

/* A request that the device never saw, as it is gone, was not answered. */
static bool batch_seen(const struct balloon_batch *b)
{
	return READ_ONCE(b->requests[0].state) == REQUEST_ANSWERED;
}

/*
 * Moves on what has been answered.  @locked: the caller holds the page lock of
 * the new page.  Returns whether the move is over.
 */
static bool move_settle(struct virtio_balloon *vb, struct balloon_move *move,
			bool locked)
{
	lockdep_assert_held(&vb->migration.lock);
	if (move->to && batch_seen(&move->inflate))
		move_join(vb, move, locked);
	if (move->from && batch_seen(&move->deflate)) {
		put_page(move->from);
		move->from = NULL;
	}
	return !move->to && !move->from;
}

/* Returns whether moves are still under way. */
static bool moves_settle(struct virtio_balloon *vb)
{
	struct balloon_migration *m = &vb->migration;
	bool over = true;
	unsigned int i;

	lockdep_assert_held(&m->lock);
	for (i = 0; i < m->nr_moves; i++)
		over &= move_settle(vb, &m->moves[i], false);
	return !over;
}

static bool migration_settle(struct virtio_balloon *vb)
{
	bool under_way;

	mutex_lock(&vb->migration.lock);
	under_way = moves_settle(vb);
	mutex_unlock(&vb->migration.lock);
	return under_way;
}

/*
 * It does not queue for the lock, as callers who only try would find it taken
 * until this has run.  Whoever has it now queues this work again afterwards.
 */
static void migration_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(work, struct virtio_balloon,
						 migration.work);

	if (!mutex_trylock(&vb->migration.lock))
		return;
	moves_settle(vb);
	mutex_unlock(&vb->migration.lock);
}

#ifdef CONFIG_BALLOON_COMPACTION
/* The page is named by pointer: its lru is on the core's list. */
static int move_tell(struct virtio_balloon *vb, struct balloon_batch *b,
		     struct page *page)
{
	int err;

	request_add_pfns(vb, batch_request(b, WIRE_PER_PAGE), page, 1);
	err = batch_submit(batch_queue(vb, b), b);
	/* Its request stays, but batch_settle() has no business with it. */
	b->used = 0;
	return err;
}

static int move_wait(struct virtio_balloon *vb, struct balloon_batch *b)
{
	struct balloon_queue *q = batch_queue(vb, b);
	int err = queue_wait(q, batch_answered, b, MIGRATE_TIMEOUT);

	return err == -ETIMEDOUT ? batch_give_up(q, b, MIGRATE_TIMEOUT) : err;
}

static void move_count(struct virtio_balloon *vb, struct page *to,
		       struct page *from)
{
	balloon_count(vb, COUNT_MIGRATED, 1);
	count_vm_event(BALLOON_MIGRATE);
	if (balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM) ||
	    page_zone(to) == page_zone(from))
		return;
	adjust_managed_page_count(from, 1);
	adjust_managed_page_count(to, -1);
}

/*
 * From the moment that the new page is announced the move succeeds: told that it
 * had not, the core would come back with the same page.  How late the answers
 * are only decides when the old page is free.
 */
static int move_begin(struct virtio_balloon *vb, struct balloon_move *move,
		      struct page *to, struct page *from)
{
	int err;

	get_page(to);
	err = move_tell(vb, &move->inflate, to);
	if (err) {
		put_page(to);
		return err;
	}
	move->to = to;
	move->from = from;
	balloon_page_finalize(from);
	move_count(vb, to, from);
	/* Where the device has gone, the page waits for the reset. */
	move_tell(vb, &move->deflate, from);
	return 0;
}

/* The oldest move's place, or NULL.  Callers who may wait do. */
static struct balloon_move *move_get(struct virtio_balloon *vb, bool wait)
{
	struct balloon_migration *m = &vb->migration;
	struct balloon_move *move = &m->moves[m->next];

	lockdep_assert_held(&m->lock);
	if (!move_settle(vb, move, false)) {
		if (!wait || move_wait(vb, &move->inflate) ||
		    move_wait(vb, &move->deflate) ||
		    !move_settle(vb, move, false))
			return NULL;
	}
	m->next = (m->next + 1) % m->nr_moves;
	return move;
}

static bool move_answered(const struct balloon_move *move)
{
	return !READ_ONCE(move->inflate.unanswered) &&
	       !READ_ONCE(move->deflate.unanswered);
}

static void move_poll(const struct balloon_move *move)
{
	u64 end = ktime_get_ns() + MOVE_POLL_NS;

	while (!move_answered(move) && !need_resched() && ktime_get_ns() < end)
		cpu_relax();
}

/* Somebody has waited in vain: it need not be found out again for each move. */
static bool move_device_late(struct virtio_balloon *vb)
{
	return READ_ONCE(vb->queue[QUEUE_INFLATE].late) ||
	       READ_ONCE(vb->queue[QUEUE_DEFLATE].late);
}

static int migration_move(struct virtio_balloon *vb, struct page *to,
			  struct page *from, bool wait)
{
	struct balloon_move *move;

	if (READ_ONCE(vb->stopping) || !chunk_fits_wire(to, 0))
		return -EBUSY;
	wait = wait && !move_device_late(vb);
	move = move_get(vb, wait);
	if (!move)
		return -EAGAIN;
	if (move_begin(vb, move, to, from))
		return -EBUSY;
	if (!wait)
		move_poll(move);
	else if (!move_wait(vb, &move->inflate))
		move_wait(vb, &move->deflate);
	move_settle(vb, move, true);
	return MIGRATEPAGE_SUCCESS;
}

/**
 * balloon_migrate() - move a ballooned page for compaction or memory offline
 * @info: our list
 * @to: the new page, locked
 * @from: the old page, locked and isolated from the list
 * @mode: how patient the caller is
 *
 * The new page is announced before the old one is recalled.  A move is not
 * refused if it can be helped: where none succeeds, direct compaction comes back
 * to the same pages without end.  So asynchronous callers, who must not wait for
 * the host, look for the answer for a moment and then go on with the move under
 * way: the old page is free once the device has answered.
 *
 * Context: process context, both pages locked.  Waits for the device, except for
 * asynchronous callers, who never sleep for it.  Allocates nothing.
 * Return: MIGRATEPAGE_SUCCESS, -EAGAIN while others are moving, -EBUSY; always
 * before anything has been told.
 */
static int balloon_migrate(struct balloon_dev_info *info, struct page *to,
			   struct page *from, enum migrate_mode mode)
{
	struct virtio_balloon *vb = container_of(info, struct virtio_balloon,
						 info);
	struct balloon_migration *m = &vb->migration;
	int ret;

	if (mode == MIGRATE_SYNC)
		mutex_lock(&m->lock);
	else if (!mutex_trylock(&m->lock))
		return -EAGAIN;
	ret = migration_move(vb, to, from, mode != MIGRATE_ASYNC);
	mutex_unlock(&m->lock);
	queue_work(vb->publish_wq, &m->work);
	if (ret)
		balloon_count(vb, COUNT_MIGRATE_DECLINED, 1);
	return ret;
}

static void migration_register(struct virtio_balloon *vb)
{
	vb->info.migratepage = balloon_migrate;
}
#else
static void migration_register(struct virtio_balloon *vb)
{
}
#endif

static void migration_free(struct virtio_balloon *vb)
{
	struct balloon_migration *m = &vb->migration;
	unsigned int i;

	for (i = 0; i < MOVES_MAX; i++) {
		batch_free(&m->moves[i].inflate);
		batch_free(&m->moves[i].deflate);
	}
}

static int migration_alloc(struct virtio_balloon *vb, unsigned int nr_moves)
{
	struct balloon_migration *m = &vb->migration;
	int err = 0;

	for (; !err && m->nr_moves < nr_moves; m->nr_moves++) {
		struct balloon_move *move = &m->moves[m->nr_moves];

		err = batch_alloc(&move->inflate, 1, WIRE_PER_PAGE) ?:
		      batch_alloc(&move->deflate, 1, WIRE_PER_PAGE);
		move->inflate.inflating = true;
		move->inflate.moving = true;
		move->deflate.moving = true;
	}
	return err;
}

/* After the reset: the new pages are on the list, the old ones free. */
static void migration_abandon(struct virtio_balloon *vb)
{
	struct balloon_migration *m = &vb->migration;
	unsigned int i;

	mutex_lock(&m->lock);
	for (i = 0; i < m->nr_moves; i++) {
		struct balloon_move *move = &m->moves[i];

		if (move->to)
			move_join(vb, move, false);
		if (move->from)
			put_page(move->from);
		move->from = NULL;
		batch_abandon(vb, &move->inflate);
		batch_abandon(vb, &move->deflate);
	}
	mutex_unlock(&m->lock);
}

/* --- Publishing "actual" ------------------------------------------------ */

/*
 * The one writer of "actual".  Our own count is the truth, never the field: some
 * devices change or ignore it.
 *
 * Context: process context, no locks but those of a caller that no memory
 * allocation waits for: on s390 the access allocates.
 */
static void publish_actual(struct virtio_balloon *vb)
{
	u32 actual_wire;

	mutex_lock(&vb->publish_lock);
	actual_wire = pages_to_wire(atomic_long_read(&vb->ballooned) +
				    READ_ONCE(vb->taken));
	/* Some transports wait without a bound for a device that has gone. */
	if (vb->published != actual_wire &&
	    !queue_gone(&vb->queue[QUEUE_INFLATE])) {
		virtio_cwrite_le(vb->vdev, struct virtio_balloon_config,
				 actual, &actual_wire);
		balloon_count(vb, COUNT_CONFIG_WRITES, 1);
		vb->published = actual_wire;
	}
	mutex_unlock(&vb->publish_lock);
}

/* Once a rest.  Not from the notifier: the console may be slow. */
static void pressure_say(struct virtio_balloon *vb)
{
	struct balloon_pressure *p = &vb->pressure;
	u64 length;
	bool say;

	spin_lock_irq(&p->lock);
	say = p->resting && !p->said;
	p->said = true;
	length = p->length;
	spin_unlock_irq(&p->lock);
	if (say)
		dev_info(&vb->vdev->dev,
			 "out of memory: the balloon gives way, and rests for %u s\n",
			 jiffies_to_msecs(length) / 1000);
}

/* After OOM calls: settle, publish, and let the worker see what is to be done. */
static void publish_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(work, struct virtio_balloon,
						 publish_work);
	enum balloon_queue_id id;

	/* Whoever has the lock now queues this work again afterwards. */
	if (mutex_trylock(&vb->oom_mutex)) {
		batch_settle(vb, &vb->oom_batch);
		mutex_unlock(&vb->oom_mutex);
	}
	publish_actual(vb);
	pressure_say(vb);
	for (id = 0; id < QUEUE_NR; id++)
		queue_say(&vb->queue[id]);
	/* No delay, or a deflation under way would come to rest with inflation. */
	queue_delayed_work(vb->size_wq, &vb->size_work, 0);
}

/* --- Out of memory ------------------------------------------------------- */

/*
 * The device did not answer in time.  Where it does not insist on being told
 * first, a timed-out request's pages may be used: the guest lives though the
 * host is stuck.  The request's buffer stays the device's.
 */
static unsigned long oom_free_late(struct virtio_balloon *vb)
{
	struct balloon_batch *b = &vb->oom_batch;
	unsigned long freed_wire = 0;
	unsigned int i;

	if (balloon_has(vb, VIRTIO_BALLOON_F_MUST_TELL_HOST))
		return 0;
	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];

		freed_wire += pages_to_wire(req->nr_pages);
		pages_release(vb, &req->pages);
		req->nr_pages = 0;
	}
	return freed_wire;
}

static unsigned long batch_room(const struct balloon_batch *b)
{
	return wire_to_pages(b->nr_requests * b->request_wire);
}

static bool worker_idle(struct virtio_balloon *vb)
{
	return !READ_ONCE(vb->in_hand);
}

/*
 * The list is empty, but the worker has pages in a batch: in a moment they are
 * on the list, or free.  Returns how many it had, if it let go of them, and what
 * is left of the time.
 */
static unsigned long oom_wait_worker(struct virtio_balloon *vb, long *left)
{
	unsigned long in_hand = READ_ONCE(vb->in_hand);

	if (!in_hand || READ_ONCE(vb->stuck))
		return 0;
	/* On s390 its access to the configuration allocates. */
	if (current_work() == &vb->size_work.work)
		return 0;
	*left = wait_event_timeout(vb->idle, worker_idle(vb), *left);
	if (*left)
		return in_hand;
	WRITE_ONCE(vb->stuck, true);
	return 0;
}

/* One step.  Returns wire pages. */
static unsigned long oom_deflate_step(struct virtio_balloon *vb,
				      unsigned long step)
{
	struct balloon_batch *b = &vb->oom_batch;
	unsigned long freed_wire = 0, in_hand;
	long left = OOM_TIMEOUT;
	int err;

	err = deflate(vb, b, step, left, &freed_wire);
	if (err == -ENOENT) {
		in_hand = oom_wait_worker(vb, &left);
		err = in_hand ? deflate(vb, b, step, left, &freed_wire) : 0;
		if (err == -ENOENT)
			freed_wire = pages_to_wire(in_hand);
	}
	if (err == -ETIMEDOUT)
		freed_wire += oom_free_late(vb);
	return freed_wire;
}

/*
 * A late batch is settled first, and while the device still has it there is no
 * other: the kernel's killer gets its chance.  Returns wire pages.
 */
static unsigned long oom_deflate(struct virtio_balloon *vb, unsigned long step)
{
	struct balloon_batch *b = &vb->oom_batch;
	unsigned long freed_wire;

	mutex_lock(&vb->oom_mutex);
	freed_wire = batch_settle(vb, b);
	if (!b->used)
		freed_wire += oom_deflate_step(vb, min(step, batch_room(b)));
	mutex_unlock(&vb->oom_mutex);
	return freed_wire;
}

/**
 * balloon_oom_notify() - the guest is out of memory: give some back
 * @nb: our notifier block
 * @unused: always 0
 * @parm: unsigned long, grows by the pages that were freed
 *
 * Hinted and held blocks go first: the device need not be asked.  The notifier
 * is registered with DEFLATE_ON_OOM only: without it a driver must not take back
 * pages that the target still wants.
 *
 * Context: any task that allocates, with oom_lock held.
 * Return: NOTIFY_OK.
 */
static int balloon_oom_notify(struct notifier_block *nb, unsigned long unused,
			      void *parm)
{
	struct virtio_balloon *vb = container_of(nb, struct virtio_balloon,
						 oom_nb);
	unsigned long step = pressure_oom(vb, get_jiffies_64());
	unsigned long *freed = parm;
	unsigned long pages;

	pages = hint_release(vb, OOM_STEP_MAX_BYTES / BLOCK_BYTES);
	if (pages)
		hint_yield(vb);
	pages += held_release(vb);
	if (!pages)
		pages = wire_to_pages(oom_deflate(vb, step));
	*freed += pages;
	trace_virtio_balloon_oom(&vb->vdev->dev, step,
				 min(step, batch_room(&vb->oom_batch)), pages);
	balloon_count(vb, COUNT_OOM_CALLS, 1);
	balloon_count(vb, COUNT_OOM_PAGES, pages);
	queue_work(vb->publish_wq, &vb->publish_work);
	return NOTIFY_OK;
}

/* --- Free page reporting --------------------------------------------------- */

static void report_answered(struct balloon_queue *q, void *token)
{
	struct balloon_report *report = token;

	lockdep_assert_held(&q->lock);
	/* Pairs with report_over(): the device is done with the pages. */
	smp_store_release(&report->posted, false);
	if (report->late) {
		queue_recovered(q);
		mod_delayed_work(q->vb->size_wq, &q->vb->size_work, 0);
	}
	report->late = false;
	wake_up(&q->wait);
}

/* A broken queue alone is not enough: the device may still discard the pages. */
static bool report_over(void *arg)
{
	struct virtio_balloon *vb = arg;

	/* Pairs with report_answered(). */
	return !smp_load_acquire(&vb->report.posted) || READ_ONCE(vb->was_reset);
}

static int report_post(struct virtio_balloon *vb, unsigned int nr)
{
	struct balloon_queue *q = &vb->queue[QUEUE_REPORT];
	struct balloon_report *report = &vb->report;
	unsigned long flags;
	bool notify;
	int err;

	lockdep_assert_held(&report->lock);
	spin_lock_irqsave(&q->lock, flags);
	err = report->posted || READ_ONCE(vb->stopping) ? -EBUSY :
	      queue_post(q, report->sg, nr, true, report);
	if (!err)
		report->posted = true;
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		queue_notify(q);
	return err;
}

/* Returns whether it is late now. */
static bool report_give_up(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_REPORT];
	struct balloon_report *report = &vb->report;
	unsigned long flags;
	bool late;

	spin_lock_irqsave(&q->lock, flags);
	late = report->posted;
	if (late && !report->late) {
		report->late = true;
		queue_stalled(q, WORKER_TIMEOUT);
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return late;
}

/* Pages of our own: they may stay the device's, and the wait has a bound. */
static int report_wait(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_REPORT];
	int err = queue_wait(q, report_over, vb, WORKER_TIMEOUT);

	if (err == -ETIMEDOUT && !report_give_up(vb))
		return 0;
	return err;
}

/* The core's pages: until the device is done or has been reset. */
static int report_wait_unbounded(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_REPORT];
	unsigned long begun = jiffies;

	while (!report_over(vb)) {
		wait_event_timeout(q->wait, report_over(vb), WAIT_SLICE);
		queue_poll(q);
		if (time_after(jiffies, begun + WORKER_TIMEOUT))
			report_give_up(vb);
	}
	return READ_ONCE(vb->was_reset) ? -EIO : 0;
}

static unsigned long report_pages(struct scatterlist *sg, unsigned int nr)
{
	unsigned long pages = 0;

	for (; nr; nr--, sg = sg_next(sg))
		pages += sg->length >> PAGE_SHIFT;
	return pages;
}

static int report_send(struct virtio_balloon *vb, unsigned int nr,
		       int (*wait)(struct virtio_balloon *vb))
{
	unsigned long pages = report_pages(vb->report.sg, nr);
	u64 begun = ktime_get_ns();
	int err = report_post(vb, nr);

	if (!err)
		err = wait(vb);
	if (!err)
		balloon_count(vb, COUNT_REPORTED, pages);
	trace_virtio_balloon_report(&vb->vdev->dev, nr, pages,
				    ktime_get_ns() - begun, err);
	return err;
}

static unsigned int report_capacity(struct virtio_balloon *vb)
{
	return min_t(unsigned int, PAGE_REPORTING_CAPACITY,
		     virtqueue_get_vring_size(vb->queue[QUEUE_REPORT].vq));
}

/* As much of @from as the ring holds; returns how many entries. */
static unsigned int report_cut(struct virtio_balloon *vb,
			       struct scatterlist *from, unsigned int nr)
{
	struct scatterlist *to = vb->report.sg;
	unsigned int i;

	nr = min(nr, report_capacity(vb));
	sg_init_table(to, nr);
	for (i = 0; i < nr; i++, from = sg_next(from))
		sg_set_page(&to[i], sg_page(from), from->length, 0);
	return nr;
}

/**
 * balloon_report() - tell the hypervisor about large unused runs
 * @core: the page_reporting core's handle
 * @sg: the runs, isolated from the free lists by the core
 * @nents: how many, at most PAGE_REPORTING_CAPACITY
 *
 * The core frees the pages as soon as this returns, so it returns only when the
 * device is done with them or has been reset, however long that takes.
 *
 * Context: the core's worker.
 * Return: 0, -EBUSY where no report may begin now, -EIO.
 */
static int balloon_report(struct page_reporting_dev_info *core,
			  struct scatterlist *sg, unsigned int nents)
{
	struct virtio_balloon *vb = container_of(core, struct virtio_balloon,
						 report.core);
	int err;

	if (!mutex_trylock(&vb->report.lock))
		return -EBUSY;
	/* A frozen device has no queue to ask how much it holds. */
	err = READ_ONCE(vb->stopping) ? -EBUSY : 0;
	while (nents && !err) {
		unsigned int nr = report_cut(vb, sg, nents);

		err = report_send(vb, nr, report_wait_unbounded);
		nents -= nr;
		while (nr--)
			sg = sg_next(sg);
	}
	mutex_unlock(&vb->report.lock);
	return err;
}

/*
 * Where memory must keep a value other than zero, devices answer reports without
 * dropping anything; and a batch must be able to take a block.
 */
static bool report_pays(struct virtio_balloon *vb)
{
	return balloon_has(vb, VIRTIO_BALLOON_F_REPORTING) &&
	       vb->batch_max >= BLOCK_PAGES && !page_poisoning_enabled_static();
}

/* Returns how many blocks were taken, without reclaim and within reason. */
static unsigned long report_take_blocks(struct virtio_balloon *vb,
					unsigned long max)
{
	unsigned long reserve = min_t(unsigned long,
				      HOLD_RESERVE_BYTES >> PAGE_SHIFT,
				      totalram_pages() >> HOLD_RESERVE_SHIFT);
	unsigned long nr = 0;
	LIST_HEAD(unfit);
	struct page *page;

	max = min(max, report_capacity(vb));
	while (nr < max && !READ_ONCE(vb->pressure.resting) &&
	       global_zone_page_state(NR_FREE_PAGES) >= reserve + BLOCK_PAGES) {
		WRITE_ONCE(vb->in_hand, (nr + 1) * BLOCK_PAGES);
		page = chunk_alloc(BLOCK_ORDER, true);
		if (!page)
			break;
		if (!chunk_fits_wire(page, BLOCK_ORDER)) {
			list_add(&page->lru, &unfit);
			break;
		}
		list_add_tail(&page->lru, &vb->report.blocks);
		nr++;
	}
	chunks_free(&unfit);
	WRITE_ONCE(vb->in_hand, nr * BLOCK_PAGES);
	return nr;
}

/*
 * The core's reports have no bound: the size worker does not wait for more than
 * an ordinary one.
 */
static bool report_try_lock(struct virtio_balloon *vb)
{
	unsigned long end = jiffies + HZ / 10;

	while (!mutex_trylock(&vb->report.lock)) {
		if (time_after(jiffies, end))
			return false;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

static int report_blocks(struct virtio_balloon *vb, unsigned long nr)
{
	struct balloon_report *report = &vb->report;
	struct page *page;
	unsigned int i = 0;

	lockdep_assert_held(&report->lock);
	sg_init_table(report->sg, nr);
	list_for_each_entry(page, &report->blocks, lru)
		sg_set_page(&report->sg[i++], page, PAGE_SIZE << BLOCK_ORDER, 0);
	return report_send(vb, nr, report_wait);
}

/*
 * Only one device of a kernel can report, so failing here must not cost the
 * balloon.  The order makes 2 MiB on every page size: the core's default is
 * 512 MiB on 64 KiB pages, and nothing would ever be reported.
 */
static void report_register(struct virtio_balloon *vb)
{
	int err;

	if (!balloon_has(vb, VIRTIO_BALLOON_F_REPORTING))
		return;
	vb->report.core.report = balloon_report;
	vb->report.core.order = BLOCK_ORDER;
	err = page_reporting_register(&vb->report.core);
	if (err)
		dev_warn(&vb->vdev->dev,
			 "no free page reporting: %s (%pe)\n",
			 err == -EBUSY ? "another device reports already" :
					 "registration failed", ERR_PTR(err));
	vb->report.registered = !err;
}

static void report_unregister(struct virtio_balloon *vb)
{
	if (vb->report.registered)
		page_reporting_unregister(&vb->report.core);
	vb->report.registered = false;
}

/* --- Suspend --------------------------------------------------------------- */

static void adjustment_begins(struct virtio_balloon *vb)
{
	__pm_stay_awake(vb->wakeup);
}

/* Not where a configuration change has just queued the next one. */
static void adjustment_ends(struct virtio_balloon *vb)
{
	if (!delayed_work_pending(&vb->size_work))
		__pm_relax(vb->wakeup);
}

/*
 * Before a hibernation image is made, memory is needed for it: inflation stops
 * with the batch that is under way, and hinting with the block; both go on after
 * the wake-up.
 */
static int balloon_pm_notify(struct notifier_block *nb, unsigned long event,
			     void *unused)
{
	struct virtio_balloon *vb = container_of(nb, struct virtio_balloon,
						 pm_nb);

	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		WRITE_ONCE(vb->sleeping, true);
		flush_work(&vb->size_work.work);
		held_release(vb);
		flush_work(&vb->hint.work);
		hint_release(vb, ULONG_MAX);
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		WRITE_ONCE(vb->sleeping, false);
		queue_delayed_work(vb->size_wq, &vb->size_work, 0);
		if (vb->hint.wq)
			queue_work(vb->hint.wq, &vb->hint.work);
		break;
	}
	return NOTIFY_DONE;
}

static void suspend_init(struct virtio_balloon *vb)
{
	vb->wakeup = wakeup_source_register(&vb->vdev->dev,
					    dev_name(&vb->vdev->dev));
	vb->pm_nb.notifier_call = balloon_pm_notify;
}

/* --- The size worker ----------------------------------------------------- */

/*
 * The notifier may have freed the pages of a request that the device has yet to
 * answer: announced again meanwhile, they would be recalled by that request.
 */
static bool oom_is_late(struct virtio_balloon *vb)
{
	return READ_ONCE(vb->oom_batch.late);
}

static bool inflate_must_rest(struct virtio_balloon *vb)
{
	return READ_ONCE(vb->sleeping) || oom_is_late(vb) ||
	       pressure_resting(vb, get_jiffies_64());
}

/* A batch that takes long to fill goes as it is; the target may have changed. */
static bool inflate_fill_ends(struct virtio_balloon *vb, unsigned long end)
{
	return READ_ONCE(vb->pressure.resting) || READ_ONCE(vb->stopping) ||
	       time_after(jiffies, end);
}

/*
 * Held blocks first, then the largest chunks, and smaller ones as memory
 * is fragmented.  Adds to vb->in_hand.
 * Returns -ENOMEM where not even a page was to be had.
 */
static int inflate_fill(struct virtio_balloon *vb, struct list_head *chunks,
			struct list_head *unfit, unsigned long nr)
{
	bool gentle = READ_ONCE(vb->pressure.gentle);
	unsigned long end = jiffies + FILL_TIME, base = vb->in_hand, have;
	unsigned int order = BLOCK_ORDER;
	unsigned int nr_unfit = 0;
	struct page *page;

	WRITE_ONCE(vb->in_hand, base + nr);
	have = held_take(vb, chunks, nr / BLOCK_PAGES, 0) * BLOCK_PAGES;
	WRITE_ONCE(vb->in_hand, base + have);
	while (have < nr && !inflate_fill_ends(vb, end)) {
		order = min_t(unsigned int, order, ilog2(nr - have));
		page = chunk_alloc(order, gentle);
		if (page && chunk_fits_wire(page, order)) {
			list_add_tail(&page->lru, chunks);
			have += BIT(order);
			WRITE_ONCE(vb->in_hand, base + have);
		} else if (page) {
			list_add(&page->lru, unfit);
			if (++nr_unfit == UNFIT_MAX)
				return -ENOMEM;
		} else {
			atomic_long_inc(&vb->short_of[order]);
			if (!order--)
				return -ENOMEM;
		}
		cond_resched();
	}
	return 0;
}

static void batch_pace(struct virtio_balloon *vb, const struct balloon_batch *b)
{
	u64 ms = div_u64(b->took_ns, NSEC_PER_MSEC);
	unsigned long least = min(BLOCK_PAGES, vb->batch_max);

	if (ms > BATCH_SLOW_MS)
		vb->batch_pages = max(vb->batch_pages / 2, least);
	else if (ms < BATCH_SLOW_MS / 2)
		vb->batch_pages = min(vb->batch_pages * 2, vb->batch_max);
}

/* Settles what has been answered.  Returns the batch that is late, if one is. */
static struct balloon_batch *worker_settle(struct virtio_balloon *vb)
{
	batch_settle(vb, &vb->batch);
	batch_settle(vb, &vb->second);
	if (vb->batch.used)
		return &vb->batch;
	return vb->second.used ? &vb->second : NULL;
}

/* A notifier that found the list empty may wait for this. */
static void worker_lets_go(struct virtio_balloon *vb)
{
	WRITE_ONCE(vb->in_hand, 0);
	WRITE_ONCE(vb->stuck, false);
	wake_up(&vb->idle);
}

/*
 * The blocks of a report that is over are held: also those of a failed one, they
 * are merely announced without.  Those of a late one stay the device's.
 */
static void hold_reported(struct virtio_balloon *vb)
{
	struct list_head *blocks = &vb->report.blocks;

	if (!list_empty(blocks) && report_over(vb))
		held_add(vb, blocks, list_count_nodes(blocks));
}

/* Takes blocks and reports them; returns how many. */
static unsigned long hold_blocks(struct virtio_balloon *vb, unsigned long max)
{
	unsigned long nr;

	if (!report_try_lock(vb))
		return 0;
	nr = report_take_blocks(vb, max);
	if (inflate_must_rest(vb))
		chunks_free(&vb->report.blocks);
	else if (nr)
		report_blocks(vb, nr);
	mutex_unlock(&vb->report.lock);
	return nr;
}

/**
 * hold_step() - report whole blocks, before any of them is announced
 * @vb: the balloon
 * @nr: pages that the target wants
 *
 * Context: the size worker.
 * Return: 0 where no more blocks are wanted or to be had, or a report is late;
 * -EAGAIN after a report, -EBUSY while inflation rests, -EIO.
 */
static int hold_step(struct virtio_balloon *vb, unsigned long nr)
{
	unsigned long blocks = nr / BLOCK_PAGES, have = READ_ONCE(vb->nr_held);

	if (queue_gone(&vb->queue[QUEUE_INFLATE]))
		return -EIO;
	if (!report_pays(vb) || blocks <= have ||
	    !list_empty(&vb->report.blocks))
		return 0;
	if (inflate_must_rest(vb))
		return -EBUSY;
	nr = hold_blocks(vb, blocks - have);
	hold_reported(vb);
	worker_lets_go(vb);
	return nr ? -EAGAIN : 0;
}

static void target_read(struct virtio_balloon *vb)
{
	unsigned long target;
	u32 target_wire;

	virtio_cread_le(vb->vdev, struct virtio_balloon_config, num_pages,
			&target_wire);
	target = target_to_pages(target_wire);
	if (target == vb->target)
		return;
	trace_virtio_balloon_target(&vb->vdev->dev, target,
				    atomic_long_read(&vb->ballooned));
	vb->target = target;
	vb->backoff = 0;
	vb->short_said = false;
	if (target > atomic_long_read(&vb->ballooned))
		pressure_new_target(vb, get_jiffies_64());
}

/*
 * Fills and packs a batch.  An OOM call in the meantime wins: what is not
 * announced yet goes back.  Returns how many pages it has; @err says why it is
 * not full.
 */
static unsigned long inflate_pack(struct virtio_balloon *vb,
				  struct balloon_batch *b, unsigned long nr,
				  int *err)
{
	unsigned long base = vb->in_hand;
	LIST_HEAD(chunks);
	LIST_HEAD(unfit);

	*err = -EBUSY;
	if (inflate_must_rest(vb))
		return 0;
	*err = inflate_fill(vb, &chunks, &unfit, nr);
	chunks_free(&unfit);
	if (inflate_must_rest(vb) || list_empty(&chunks)) {
		chunks_free(&chunks);
		WRITE_ONCE(vb->in_hand, base);
		*err = *err ?: -EBUSY;
		return 0;
	}
	b->inflating = true;
	batch_pack(vb, b, &chunks);
	return vb->in_hand - base;
}

static unsigned long deflate_pack(struct virtio_balloon *vb,
				  struct balloon_batch *b, unsigned long nr,
				  int *err)
{
	unsigned long base = vb->in_hand;
	LIST_HEAD(pages);

	*err = -EIO;
	if (queue_gone(&vb->queue[QUEUE_DEFLATE]))
		return 0;
	WRITE_ONCE(vb->in_hand, base + nr);
	nr = balloon_take(vb, &pages, nr);
	WRITE_ONCE(vb->taken, nr);
	WRITE_ONCE(vb->in_hand, base + nr);
	*err = nr ? 0 : -ENOENT;
	b->inflating = false;
	b->blocks = 0;
	batch_pack(vb, b, &pages);
	return nr;
}

/* The device has not seen it: its pages go back to where they came from. */
static void batch_unpack(struct virtio_balloon *vb, struct balloon_batch *b)
{
	unsigned int i;

	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];

		WRITE_ONCE(vb->in_hand, vb->in_hand - req->nr_pages);
		if (b->inflating)
			chunks_put(&req->pages);
		else
			balloon_put(vb, &req->pages, req->nr_pages);
		req->nr_pages = 0;
		WRITE_ONCE(req->state, REQUEST_IDLE);
	}
	b->used = 0;
	WRITE_ONCE(vb->taken, 0);
}

/*
 * How many pages the next batch is to have, while @flying are on their way to
 * the balloon.  None where the target has changed: whoever sets out for another
 * one has more to decide.
 */
static unsigned long pipe_wants(struct virtio_balloon *vb, bool inflating,
				unsigned long flying)
{
	unsigned long target = vb->target;
	unsigned long have = atomic_long_read(&vb->ballooned);

	if (READ_ONCE(vb->stopping) || READ_ONCE(vb->sleeping))
		return 0;
	target_read(vb);
	if (vb->target != target)
		return 0;
	if (inflating)
		have += flying;
	if (inflating ? have >= target : have <= target)
		return 0;
	return min(inflating ? target - have : have - target, vb->batch_pages);
}

static unsigned long pipe_pack(struct virtio_balloon *vb,
			       struct balloon_batch *b, bool inflating,
			       unsigned long nr, int *err)
{
	if (!nr)
		return 0;
	return inflating ? inflate_pack(vb, b, nr, err) :
			   deflate_pack(vb, b, nr, err);
}

/*
 * @now is answered, or late; @next is packed, or empty.  The next is sent first,
 * so that the device is at work while the pages of the last are settled.
 * Returns whether @next is with the device.
 */
static bool pipe_turn(struct virtio_balloon *vb, struct balloon_batch *now,
		      struct balloon_batch *next, unsigned long pages, int err)
{
	bool sent;

	if (next->used && (err || READ_ONCE(vb->stopping) ||
			   (next->inflating && inflate_must_rest(vb))))
		batch_unpack(vb, next);
	sent = next->used;
	if (sent)
		batch_send(vb, next);
	batch_pace(vb, now);
	batch_settle(vb, now);
	if (!now->used)
		WRITE_ONCE(vb->in_hand, sent ? pages : 0);
	if (err != -EIO)
		publish_actual(vb);
	WRITE_ONCE(vb->taken, 0);
	return sent;
}

/**
 * pipe_run() - batches in one direction, while there is nothing to decide
 * @vb: the balloon
 * @inflating: which direction
 * @nr: pages to begin with
 *
 * One batch is with the device, the next is filled meanwhile: no more than one
 * is ever announced.  "actual" is written after each.
 *
 * A batch that is not full, but has a block's worth of pages, is progress; less
 * is no reason to hurry.
 *
 * Context: the size worker.
 * Return: as size_step().
 */
static int pipe_run(struct virtio_balloon *vb, bool inflating,
		    unsigned long nr)
{
	struct balloon_batch *now = &vb->batch, *next = &vb->second;
	unsigned long pages, flying, most;
	int short_of = 0, err;
	bool sent;

	flying = pipe_pack(vb, now, inflating, min(nr, vb->batch_pages),
			   &short_of);
	most = flying;
	if (flying)
		batch_send(vb, now);
	WRITE_ONCE(vb->taken, 0);
	for (err = 0, sent = flying; sent; flying = pages) {
		nr = short_of ? 0 : pipe_wants(vb, inflating, flying);
		pages = pipe_pack(vb, next, inflating, nr, &short_of);
		most = max(most, pages);
		err = batch_await(vb, now, WORKER_TIMEOUT);
		/* What could not be sent is not answered either. */
		if (!err && queue_gone(batch_queue(vb, now)))
			err = -EIO;
		sent = pipe_turn(vb, now, next, pages, err);
		if (sent)
			swap(now, next);
		cond_resched();
	}
	if (!vb->batch.used && !vb->second.used)
		worker_lets_go(vb);
	if (err || short_of == -EBUSY || short_of == -EIO)
		return err ?: short_of;
	return most >= BLOCK_PAGES || !short_of ? -EAGAIN : short_of;
}

/**
 * size_step() - some way towards the target
 * @vb: the balloon
 *
 * Context: the size worker.
 * Return: 0 at the target, -EAGAIN after progress, -ENOMEM where memory is
 * short, -EBUSY while inflation rests, -ENOENT while pages are isolated for
 * migration, -ETIMEDOUT while the device does not answer, -EIO where it is gone.
 */
static int size_step(struct virtio_balloon *vb)
{
	unsigned long have;
	struct balloon_batch *late = worker_settle(vb);

	if (late)
		return queue_gone(batch_queue(vb, late)) ? -EIO : -ETIMEDOUT;
	hold_reported(vb);
	worker_lets_go(vb);
	target_read(vb);
	have = atomic_long_read(&vb->ballooned);
	held_trim(vb, have < vb->target ?
		      DIV_ROUND_UP(vb->target - have, BLOCK_PAGES) : 0);
	if (have < vb->target)
		return hold_step(vb, vb->target - have) ?:
		       pipe_run(vb, true, vb->target - have);
	if (have > vb->target)
		return pipe_run(vb, false, have - vb->target);
	return 0;
}

static unsigned long size_backoff(struct virtio_balloon *vb)
{
	vb->backoff = clamp_t(unsigned long, vb->backoff * 2, BACKOFF_MIN,
			      BACKOFF_MAX);
	if (!vb->short_said)
		dev_info(&vb->vdev->dev,
			 "balloon has %lu of %lu MiB; %s\n",
			 pages_to_mib(atomic_long_read(&vb->ballooned)),
			 pages_to_mib(vb->target),
			 READ_ONCE(vb->pressure.gentle) ?
			 "after out of memory, nothing is reclaimed for the rest" :
			 "the rest follows as memory becomes free");
	vb->short_said = true;
	return vb->backoff;
}

/* A shutdown breaks the device too, and is no news. */
static void size_gone(struct virtio_balloon *vb)
{
	if (!vb->gone_said && system_state == SYSTEM_RUNNING)
		dev_warn(&vb->vdev->dev,
			 "the device is gone; %lu MiB stay in the balloon until the driver is unbound\n",
			 pages_to_mib(atomic_long_read(&vb->ballooned)));
	vb->gone_said = true;
}

/*
 * A system that is about to sleep waits for one batch at most: the pipe ends.
 * Here, and only here, a result becomes policy.
 */
static void size_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(to_delayed_work(work),
						 struct virtio_balloon,
						 size_work);
	unsigned long delay = 0;
	int ret;

	ret = size_step(vb);
	if (ret != -EIO)
		publish_actual(vb);
	if (ret == -EAGAIN)
		adjustment_begins(vb);
	else
		adjustment_ends(vb);
	if (ret && ret != -EAGAIN && ret != -EBUSY && ret != -ENOENT)
		WRITE_ONCE(vb->last_error, ret);
	switch (ret) {
	case -ETIMEDOUT:
		held_release(vb);
		return;
	case -EIO:
		held_release(vb);
		size_gone(vb);
		return;
	case -ENOMEM:
		delay = size_backoff(vb);
		break;
	case -EBUSY:
		delay = pressure_resting(vb, get_jiffies_64()) ?: BACKOFF_MIN;
		break;
	case -ENOENT:
		delay = ISOLATED_DELAY;
		break;
	case -EAGAIN:
		vb->backoff = 0;
		break;
	case 0:
		vb->backoff = 0;
		vb->short_said = false;
		break;
	}
	if (ret)
		queue_delayed_work(vb->size_wq, &vb->size_work, delay);
}

/* --- Statistics ----------------------------------------------------------- */

enum stat_source {
	STAT_EVENT,		/* a vm event, as it is */
	STAT_EVENT_PAGES,	/* a vm event that counts pages, in bytes */
	STAT_STALLS,		/* the sum over all zones */
	STAT_FREE,
	STAT_TOTAL,
	STAT_AVAILABLE,
	STAT_CACHES,
};

/* Ascending tags; only what this kernel counts, so the subset never changes. */
static const struct {
	u16 tag;
	u8 source;
	int event;
} stat_table[] = {
#ifdef CONFIG_VM_EVENT_COUNTERS
	{ VIRTIO_BALLOON_S_SWAP_IN, STAT_EVENT_PAGES, PSWPIN },
	{ VIRTIO_BALLOON_S_SWAP_OUT, STAT_EVENT_PAGES, PSWPOUT },
	{ VIRTIO_BALLOON_S_MAJFLT, STAT_EVENT, PGMAJFAULT },
	{ VIRTIO_BALLOON_S_MINFLT, STAT_EVENT, PGFAULT },
#endif
	{ VIRTIO_BALLOON_S_MEMFREE, STAT_FREE },
	{ VIRTIO_BALLOON_S_MEMTOT, STAT_TOTAL },
	{ VIRTIO_BALLOON_S_AVAIL, STAT_AVAILABLE },
	{ VIRTIO_BALLOON_S_CACHES, STAT_CACHES },
#ifdef CONFIG_VM_EVENT_COUNTERS
#ifdef CONFIG_HUGETLB_PAGE
	{ VIRTIO_BALLOON_S_HTLB_PGALLOC, STAT_EVENT, HTLB_BUDDY_PGALLOC },
	{ VIRTIO_BALLOON_S_HTLB_PGFAIL, STAT_EVENT, HTLB_BUDDY_PGALLOC_FAIL },
#endif
	{ VIRTIO_BALLOON_S_OOM_KILL, STAT_EVENT, OOM_KILL },
	{ VIRTIO_BALLOON_S_ALLOC_STALL, STAT_STALLS },
	{ VIRTIO_BALLOON_S_ASYNC_SCAN, STAT_EVENT_PAGES, PGSCAN_KSWAPD },
	{ VIRTIO_BALLOON_S_DIRECT_SCAN, STAT_EVENT_PAGES, PGSCAN_DIRECT },
	{ VIRTIO_BALLOON_S_ASYNC_RECLAIM, STAT_EVENT_PAGES, PGSTEAL_KSWAPD },
	{ VIRTIO_BALLOON_S_DIRECT_RECLAIM, STAT_EVENT_PAGES, PGSTEAL_DIRECT },
#endif
};

static_assert(ARRAY_SIZE(stat_table) <= VIRTIO_BALLOON_S_NR);

static u64 stat_stalls(const struct balloon_stats *stats)
{
	u64 sum = 0;
#ifdef CONFIG_VM_EVENT_COUNTERS
	unsigned int zone;

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		sum += stats->events[ALLOCSTALL_NORMAL - ZONE_NORMAL + zone];
#endif
	return sum;
}

static u64 stat_value(const struct balloon_stats *stats,
		      const struct sysinfo *info, unsigned int i)
{
	switch (stat_table[i].source) {
	case STAT_EVENT:
		return stats->events[stat_table[i].event];
	case STAT_EVENT_PAGES:
		return (u64)stats->events[stat_table[i].event] << PAGE_SHIFT;
	case STAT_STALLS:
		return stat_stalls(stats);
	case STAT_FREE:
		return (u64)info->freeram << PAGE_SHIFT;
	case STAT_TOTAL:
		return (u64)info->totalram << PAGE_SHIFT;
	case STAT_AVAILABLE:
		return (u64)si_mem_available() << PAGE_SHIFT;
	default:
		return (u64)global_node_page_state(NR_FILE_PAGES) << PAGE_SHIFT;
	}
}

static void stats_fill(struct virtio_balloon *vb)
{
	struct balloon_stats *stats = &vb->stats;
	struct sysinfo info;
	unsigned int i;

	si_meminfo(&info);
	all_vm_events(stats->events);
	for (i = 0; i < stats->nr; i++) {
		stats->entry[i].tag = cpu_to_virtio16(vb->vdev,
						      stat_table[i].tag);
		stats->entry[i].val = cpu_to_virtio64(vb->vdev,
						      stat_value(stats, &info, i));
	}
}

/* The device uses the buffer when it wants statistics: supply the next one. */
static void stats_answered(struct balloon_queue *q, void *token)
{
	struct balloon_stats *stats = token;

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(stats->posted, false);
	queue_work(stats->wq, &stats->work);
}

static void stats_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(work, struct virtio_balloon,
						 stats.work);
	struct balloon_queue *q = &vb->queue[QUEUE_STATS];
	struct balloon_stats *stats = &vb->stats;
	struct scatterlist sg;
	unsigned long flags;
	bool notify;

	if (READ_ONCE(stats->posted))
		return;
	stats_fill(vb);
	sg_init_one(&sg, stats->entry, stats->nr * sizeof(stats->entry[0]));
	spin_lock_irqsave(&q->lock, flags);
	WRITE_ONCE(stats->posted, !queue_post(q, &sg, 1, false, stats));
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		queue_notify(q);
}

static unsigned int stats_count(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(stat_table); i++) {
		if (first_ten_stats &&
		    stat_table[i].tag > VIRTIO_BALLOON_S_HTLB_PGFAIL)
			break;
	}
	return i;
}

/* --- Free page hinting ----------------------------------------------------- */

static unsigned int hint_limit(struct balloon_queue *q)
{
	return min(virtqueue_get_vring_size(q->vq) - HINT_SLOTS_CMD,
		   HINT_POSTED_MAX);
}

static bool hint_has_room(void *arg)
{
	struct balloon_queue *q = arg;

	return READ_ONCE(q->vb->hint.nr_posted) < hint_limit(q);
}

static bool hint_command_back(void *arg)
{
	struct hint_command *cmd = arg;

	return !READ_ONCE(cmd->posted);
}

/* Blocks are what the device may write to, commands what it only reads. */
static int hint_post(struct balloon_queue *q, struct scatterlist *sg,
		     bool writable, void *token)
{
	struct hint_command *cmd = token;
	unsigned long flags;
	bool notify;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	err = queue_post(q, sg, 1, writable, token);
	if (!err && writable)
		WRITE_ONCE(q->vb->hint.nr_posted, q->vb->hint.nr_posted + 1);
	else if (!err)
		cmd->posted = true;
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		queue_notify(q);
	return err;
}

/* Exactly the four bytes of the id, in the device's byte order. */
static int hint_command(struct balloon_queue *q, struct hint_command *cmd,
			u32 id)
{
	struct scatterlist sg;
	int err;

	err = queue_wait(q, hint_command_back, cmd, WORKER_TIMEOUT);
	if (err)
		return err;
	cmd->id = cpu_to_virtio32(q->vb->vdev, id);
	sg_init_one(&sg, &cmd->id, sizeof(cmd->id));
	return hint_post(q, &sg, false, cmd);
}

static u32 hint_read_id(struct virtio_balloon *vb)
{
	u32 id;

	virtio_cread_le(vb->vdev, struct virtio_balloon_config,
			free_page_hint_cmd_id, &id);
	return id;
}

static bool hint_superseded(struct virtio_balloon *vb)
{
	struct balloon_hint *hint = &vb->hint;

	if (test_and_clear_bit(HINT_RECHECK, &hint->flags))
		hint->current_id = hint_read_id(vb);
	return READ_ONCE(vb->stopping) || READ_ONCE(vb->sleeping) ||
	       test_bit(HINT_YIELD, &hint->flags) ||
	       hint->current_id != hint->sent_id;
}

static int hint_block(struct balloon_queue *q)
{
	struct scatterlist sg;
	struct page *page;
	LIST_HEAD(blocks);
	int err;

	page = hint_block_alloc();
	if (!page)
		return -ENOMEM;
	sg_init_table(&sg, 1);
	sg_set_page(&sg, page, PAGE_SIZE << BLOCK_ORDER, 0);
	err = hint_post(q, &sg, true, page);
	if (err) {
		list_add(&page->lru, &blocks);
		hint_blocks_free(&blocks);
		return err;
	}
	q->vb->hint.sent_pages += BLOCK_PAGES;
	return 0;
}

static int hint_blocks(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];
	int err = 0;

	while (!err && !hint_superseded(vb)) {
		err = queue_wait(q, hint_has_room, q, WORKER_TIMEOUT);
		/* The host may have had enough meanwhile. */
		if (!err && !hint_superseded(vb))
			err = hint_block(q);
		cond_resched();
	}
	return err == -ENOMEM ? 0 : err;
}

/* While a run is on, answers may come in bulk; what it leaves may not. */
static void hint_set_owner(struct balloon_queue *q, unsigned int owners)
{
	spin_lock_irq(&q->lock);
	q->owners = owners;
	spin_unlock_irq(&q->lock);
}

/**
 * hint_run() - hint free blocks until there are none, or the host says so
 * @vb: the balloon
 *
 * Start, blocks, stop.  Few blocks are unanswered at a time, as only answered
 * ones can be given back when memory is short.
 *
 * Context: the hint worker.
 */
static void hint_run(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];
	struct balloon_hint *hint = &vb->hint;
	int err, stop_err = 0;

	hint->sent_pages = 0;
	hint->sent_id = hint->current_id;
	clear_bit(HINT_YIELD, &hint->flags);
	err = hint_command(q, &hint->start, hint->sent_id);
	if (!err) {
		hint_set_owner(q, 1);
		err = hint_blocks(vb);
		hint_set_owner(q, 0);
		stop_err = hint_command(q, &hint->stop,
					VIRTIO_BALLOON_CMD_ID_STOP);
	}
	err = err ?: stop_err;
	balloon_count(vb, COUNT_HINTED, hint->sent_pages);
	trace_virtio_balloon_hint(&vb->vdev->dev, hint->sent_id,
				  hint->sent_pages, err);
	if (err && err != -EIO && !READ_ONCE(vb->stopping))
		dev_warn(&vb->vdev->dev, "free page hinting stopped: %pe\n",
			 ERR_PTR(err));
}

static void hint_set_release(struct virtio_balloon *vb, bool release)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];

	spin_lock_irq(&q->lock);
	vb->hint.release = release;
	spin_unlock_irq(&q->lock);
}

static void hint_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(work, struct virtio_balloon,
						 hint.work);
	struct balloon_hint *hint = &vb->hint;

	clear_bit(HINT_RECHECK, &hint->flags);
	hint->current_id = hint_read_id(vb);
	hint_set_release(vb, hint->current_id == VIRTIO_BALLOON_CMD_ID_DONE);
	if (hint->current_id == VIRTIO_BALLOON_CMD_ID_DONE)
		hint_release(vb, ULONG_MAX);
	else if (hint->current_id > VIRTIO_BALLOON_CMD_ID_DONE &&
		 hint->current_id != hint->sent_id && !READ_ONCE(vb->sleeping))
		hint_run(vb);
}

static int hint_init(struct virtio_balloon *vb)
{
	struct balloon_hint *hint = &vb->hint;

	INIT_LIST_HEAD(&hint->answered);
	INIT_WORK(&hint->work, hint_work_fn);
	if (!balloon_has(vb, VIRTIO_BALLOON_F_FREE_PAGE_HINT))
		return 0;
	hint->wq = alloc_workqueue("balloon-hint-%d",
				   WQ_FREEZABLE | WQ_UNBOUND, 0,
				   vb->vdev->index);
	return hint->wq ? 0 : -ENOMEM;
}

/* Freeing a hinted block costs nothing, and nothing is lost: they go first. */
static int hint_register_shrinker(struct virtio_balloon *vb)
{
	struct shrinker *shrinker;

	if (!balloon_has(vb, VIRTIO_BALLOON_F_FREE_PAGE_HINT))
		return 0;
	shrinker = shrinker_alloc(0, "virtio-balloon:%s",
				  dev_name(&vb->vdev->dev));
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = balloon_shrink_count;
	shrinker->scan_objects = balloon_shrink_scan;
	shrinker->batch = BLOCK_PAGES;
	shrinker->seeks = 0;
	shrinker->private_data = vb;
	vb->hint.shrinker = shrinker;
	shrinker_register(shrinker);
	return 0;
}

/*
 * After the reset: what the device had is ours again.  The shrinker may be at
 * work.
 */
static void hint_abandon(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];
	struct balloon_hint *hint = &vb->hint;
	LIST_HEAD(blocks);
	void *token;

	spin_lock_irq(&q->lock);
	while (q->vq && (token = virtqueue_detach_unused_buf(q->vq))) {
		struct page *page = token;

		if (token != &hint->start && token != &hint->stop)
			list_add(&page->lru, &hint->answered);
	}
	list_splice_init(&hint->answered, &blocks);
	WRITE_ONCE(hint->nr_answered, 0);
	WRITE_ONCE(hint->nr_posted, 0);
	hint->start.posted = false;
	hint->stop.posted = false;
	spin_unlock_irq(&q->lock);
	hint_blocks_free(&blocks);
}

/* --- debugfs ---------------------------------------------------------------- */

static const char * const counter_names[COUNT_NR] = {
	[COUNT_INFLATE_BATCHES] = "inflate batches",
	[COUNT_DEFLATE_BATCHES] = "deflate batches",
	[COUNT_KICKS] = "kicks",
	[COUNT_CONFIG_WRITES] = "config writes",
	[COUNT_BLOCKS] = "whole blocks inflated",
	[COUNT_OOM_CALLS] = "oom calls",
	[COUNT_OOM_PAGES] = "oom pages",
	[COUNT_MIGRATED] = "pages migrated",
	[COUNT_MIGRATE_DECLINED] = "migrations declined",
	[COUNT_STALLS] = "stalls",
	[COUNT_REPORTED] = "pages reported",
	[COUNT_HINTED] = "pages hinted",
};

static const char * const feature_names[] = {
	[VIRTIO_BALLOON_F_MUST_TELL_HOST] = "must-tell-host",
	[VIRTIO_BALLOON_F_STATS_VQ] = "statistics",
	[VIRTIO_BALLOON_F_DEFLATE_ON_OOM] = "deflate-on-oom",
	[VIRTIO_BALLOON_F_FREE_PAGE_HINT] = "free-page-hint",
	[VIRTIO_BALLOON_F_PAGE_POISON] = "page-poison",
	[VIRTIO_BALLOON_F_REPORTING] = "free-page-reporting",
};

static void status_show_features(struct seq_file *m, struct virtio_balloon *vb)
{
	unsigned int i;

	seq_puts(m, "features:");
	for (i = 0; i < ARRAY_SIZE(feature_names); i++) {
		if (balloon_has(vb, i))
			seq_printf(m, " %s", feature_names[i]);
	}
	seq_putc(m, '\n');
}

static void status_show_error(struct seq_file *m, int err)
{
	if (err)
		seq_printf(m, "last error: %pe\n", ERR_PTR(err));
	else
		seq_puts(m, "last error: none\n");
}

static bool status_stalled(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++) {
		if (READ_ONCE(vb->queue[id].late))
			return true;
	}
	return false;
}

/* Counts are pages of the guest.  Nothing here asks the device. */
static unsigned long worker_pages(const struct virtio_balloon *vb,
				  bool inflating)
{
	unsigned long pages = 0;

	if (vb->batch.inflating == inflating)
		pages += batch_pages(&vb->batch, REQUEST_POSTED);
	if (vb->second.inflating == inflating)
		pages += batch_pages(&vb->second, REQUEST_POSTED);
	return pages;
}

static int status_show(struct seq_file *m, void *unused)
{
	struct virtio_balloon *vb = m->private;
	u64 now = get_jiffies_64(), until = READ_ONCE(vb->pressure.until);
	bool resting = READ_ONCE(vb->pressure.resting) && now < until;

	seq_printf(m, "page size: %lu\n", PAGE_SIZE);
	seq_printf(m, "target: %lu\n", READ_ONCE(vb->target));
	seq_printf(m, "actual: %lu\n", atomic_long_read(&vb->ballooned));
	seq_printf(m, "held: %lu\n", READ_ONCE(vb->nr_held) * BLOCK_PAGES);
	seq_printf(m, "announced: %lu\n", worker_pages(vb, true));
	seq_printf(m, "recalled: %lu\n",
		   batch_pages(&vb->oom_batch, REQUEST_POSTED) +
		   worker_pages(vb, false));
	seq_printf(m, "isolated: %lu\n", READ_ONCE(vb->info.isolated_pages));
	seq_printf(m, "hinted: %lu\n",
		   (READ_ONCE(vb->hint.nr_answered) + READ_ONCE(vb->hint.nr_posted)) *
		   BLOCK_PAGES);
	seq_printf(m, "batch: %lu\n", READ_ONCE(vb->batch_pages));
	seq_printf(m, "rest: %u ms%s\n",
		   resting ? jiffies_to_msecs(until - now) : 0,
		   resting && READ_ONCE(vb->pressure.firm) ? ", firm" : "");
	seq_printf(m, "stalled: %s\n", status_stalled(vb) ? "yes" : "no");
	status_show_error(m, READ_ONCE(vb->last_error));
	status_show_features(m, vb);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(status);

static int counters_show(struct seq_file *m, void *unused)
{
	struct virtio_balloon *vb = m->private;
	unsigned int i;

	for (i = 0; i < COUNT_NR; i++)
		seq_printf(m, "%s: %ld\n", counter_names[i],
			   atomic_long_read(&vb->counter[i]));
	for (i = 0; i <= BLOCK_ORDER; i++)
		seq_printf(m, "allocations failed, order %u: %ld\n", i,
			   atomic_long_read(&vb->short_of[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static struct dentry *balloon_debugfs;

static void debugfs_add(struct virtio_balloon *vb)
{
	vb->debugfs = debugfs_create_dir(dev_name(&vb->vdev->dev),
					 balloon_debugfs);
	debugfs_create_file("status", 0400, vb->debugfs, vb, &status_fops);
	debugfs_create_file("counters", 0400, vb->debugfs, vb, &counters_fops);
}

/* --- Probe and removal ----------------------------------------------------- */

static const struct {
	const char *name;
	int feature;
	void (*answered)(struct balloon_queue *q, void *token);
} queue_table[QUEUE_NR] = {
	[QUEUE_INFLATE] = { "inflate", -1, request_answered },
	[QUEUE_DEFLATE] = { "deflate", -1, request_answered },
	[QUEUE_STATS] = { "stats", VIRTIO_BALLOON_F_STATS_VQ, stats_answered },
	[QUEUE_HINT] = { "hint", VIRTIO_BALLOON_F_FREE_PAGE_HINT, hint_answered },
	[QUEUE_REPORT] = { "report", VIRTIO_BALLOON_F_REPORTING, report_answered },
};

static void queues_init(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++) {
		struct balloon_queue *q = &vb->queue[id];

		q->vb = vb;
		q->dead = true;
		spin_lock_init(&q->lock);
		init_waitqueue_head(&q->wait);
		q->answered = queue_table[id].answered;
	}
}

/* Losing hinting is better than losing the balloon. */
static void hint_check_queue(struct balloon_queue *q)
{
	if (!q->vq || virtqueue_get_vring_size(q->vq) > HINT_SLOTS_CMD)
		return;
	dev_warn(&q->vb->vdev->dev, "no free page hinting: its queue is too small\n");
	queue_set_dead(q, true);
	q->vq = NULL;
}

/*
 * A dense array: no entry for a queue whose feature is not negotiated.  Devices
 * number their queues over what they offer, and we accept all of that.
 */
static int queues_find(struct virtio_balloon *vb)
{
	struct virtqueue_info info[QUEUE_NR] = {};
	enum balloon_queue_id id, which[QUEUE_NR];
	struct virtqueue *vqs[QUEUE_NR];
	unsigned int i, nr = 0;
	int err;

	for (id = 0; id < QUEUE_NR; id++) {
		int feature = queue_table[id].feature;

		if (feature >= 0 && !balloon_has(vb, feature))
			continue;
		info[nr].name = queue_table[id].name;
		info[nr].callback = queue_used;
		which[nr++] = id;
	}
	err = virtio_find_vqs(vb->vdev, nr, vqs, info, NULL);
	if (err)
		return err;
	for (i = 0; i < nr; i++) {
		vb->queue[which[i]].vq = vqs[i];
		queue_set_dead(&vb->queue[which[i]], false);
	}
	hint_check_queue(&vb->queue[QUEUE_HINT]);
	return 0;
}

static void queues_delete(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	if (vb->queue[QUEUE_INFLATE].vq)
		vb->vdev->config->del_vqs(vb->vdev);
	for (id = 0; id < QUEUE_NR; id++) {
		queue_set_dead(&vb->queue[id], true);
		vb->queue[id].vq = NULL;
		vb->queue[id].owners = 0;
		vb->queue[id].late = 0;
		vb->queue[id].late_said = false;
	}
}

/* A quarter of the deflate ring at least is OOM's and migration's. */
static unsigned int deflate_slots(unsigned int size, unsigned int wanted)
{
	return min(wanted, size - max(size / 4, 2U));
}

/*
 * A deflation fills its requests.  Chunks of an inflation must not straddle, and
 * leave them half empty at worst: so it gets twice as many.
 */
static int batches_alloc(struct virtio_balloon *vb)
{
	u64 offered = vb->vdev->config->get_features(vb->vdev);
	unsigned int wire = offered & BIT_ULL(VIRTIO_RING_F_INDIRECT_DESC) ?
			    REQUEST_WIRE_BLOCK : REQUEST_WIRE_MIN;
	unsigned int inflate = virtqueue_get_vring_size(vb->queue[QUEUE_INFLATE].vq);
	unsigned int deflate = virtqueue_get_vring_size(vb->queue[QUEUE_DEFLATE].vq);
	unsigned int moves, slots, oom;

	if (inflate < RING_MIN || deflate < RING_MIN) {
		dev_err(&vb->vdev->dev, "queues of %u and %u entries are too small\n",
			inflate, deflate);
		return -ENOSPC;
	}
	moves = clamp(min(inflate, deflate) / 8, 1U, MOVES_MAX);
	slots = min(deflate_slots(deflate, BATCH_WIRE_MAX / wire),
		    (inflate - moves) / 2);
	oom = min(deflate - slots - moves,
		  (unsigned int)OOM_STEP_MAX_BYTES >> VIRTIO_BALLOON_PFN_SHIFT >> ilog2(wire));
	vb->batch_max = wire_to_pages(slots * wire);
	vb->batch_pages = vb->batch_max;
	return batch_alloc(&vb->batch, 2 * slots, wire) ?:
	       batch_alloc(&vb->second, 2 * slots, wire) ?:
	       batch_alloc(&vb->oom_batch, oom, wire) ?:
	       migration_alloc(vb, moves);
}

static void batches_free(struct virtio_balloon *vb)
{
	batch_free(&vb->batch);
	batch_free(&vb->second);
	batch_free(&vb->oom_batch);
	migration_free(vb);
}

static void workqueues_free(struct virtio_balloon *vb)
{
	if (vb->hint.wq)
		destroy_workqueue(vb->hint.wq);
	if (vb->stats.wq)
		destroy_workqueue(vb->stats.wq);
	if (vb->publish_wq)
		destroy_workqueue(vb->publish_wq);
	if (vb->size_wq)
		destroy_workqueue(vb->size_wq);
}

static int workqueues_alloc(struct virtio_balloon *vb)
{
	int index = vb->vdev->index;
	int err;

	vb->size_wq = alloc_workqueue("balloon-size-%d",
				      WQ_FREEZABLE | WQ_UNBOUND, 0, index);
	vb->publish_wq = alloc_workqueue("balloon-actual-%d",
					 WQ_FREEZABLE | WQ_MEM_RECLAIM, 0,
					 index);
	vb->stats.wq = alloc_workqueue("balloon-stats-%d",
				       WQ_FREEZABLE | WQ_MEM_RECLAIM, 0, index);
	err = vb->size_wq && vb->publish_wq && vb->stats.wq ? 0 : -ENOMEM;
	if (!err)
		err = hint_init(vb);
	if (err)
		workqueues_free(vb);
	return err;
}

static struct virtio_balloon *balloon_create(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = kzalloc(sizeof(*vb), GFP_KERNEL);

	if (!vb)
		return NULL;
	vdev->priv = vb;
	vb->vdev = vdev;
	vb->published = -1;
	balloon_devinfo_init(&vb->info);
	migration_register(vb);
	INIT_DELAYED_WORK(&vb->size_work, size_work_fn);
	INIT_WORK(&vb->publish_work, publish_work_fn);
	INIT_WORK(&vb->stats.work, stats_work_fn);
	INIT_WORK(&vb->migration.work, migration_work_fn);
	mutex_init(&vb->publish_lock);
	mutex_init(&vb->report.lock);
	mutex_init(&vb->migration.lock);
	mutex_init(&vb->oom_mutex);
	init_waitqueue_head(&vb->idle);
	spin_lock_init(&vb->held_lock);
	INIT_LIST_HEAD(&vb->held);
	INIT_LIST_HEAD(&vb->report.blocks);
	pressure_init(&vb->pressure);
	queues_init(vb);
	vb->stats.nr = stats_count();
	return vb;
}

/* Free memory keeps what the kernel wrote there: zeroes, or its poison. */
static bool balloon_memory_has_value(void)
{
	return want_init_on_free() || page_poisoning_enabled_static();
}

/* Before the device is ready, also after a restore: it has forgotten. */
static void poison_publish(struct virtio_balloon *vb)
{
	u32 value = 0;

	if (!balloon_has(vb, VIRTIO_BALLOON_F_PAGE_POISON))
		return;
	if (!want_init_on_free())
		memset(&value, PAGE_POISON, sizeof(value));
	virtio_cwrite_le(vb->vdev, struct virtio_balloon_config, poison_val,
			 &value);
}

static int oom_register(struct virtio_balloon *vb)
{
	if (!balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		return 0;
	vb->oom_nb.notifier_call = balloon_oom_notify;
	vb->oom_nb.priority = OOM_PRIORITY;
	return register_oom_notifier(&vb->oom_nb);
}

static void oom_unregister(struct virtio_balloon *vb)
{
	if (balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		unregister_oom_notifier(&vb->oom_nb);
}

/* Notifiers and shrinker exist with their features only, on a ready device. */
static int balloon_register(struct virtio_balloon *vb)
{
	int err;

	err = hint_register_shrinker(vb);
	if (err)
		return err;
	err = oom_register(vb);
	if (err)
		goto free_shrinker;
	err = register_pm_notifier(&vb->pm_nb);
	if (err)
		goto unregister_oom;
	return 0;

unregister_oom:
	oom_unregister(vb);
free_shrinker:
	shrinker_free(vb->hint.shrinker);
	return err;
}

static void balloon_unregister(struct virtio_balloon *vb)
{
	unregister_pm_notifier(&vb->pm_nb);
	oom_unregister(vb);
	shrinker_free(vb->hint.shrinker);
}

static void balloon_start(struct virtio_balloon *vb)
{
	report_register(vb);
	queue_delayed_work(vb->size_wq, &vb->size_work, 0);
	if (vb->queue[QUEUE_STATS].vq)
		queue_work(vb->stats.wq, &vb->stats.work);
	if (vb->queue[QUEUE_HINT].vq)
		queue_work(vb->hint.wq, &vb->hint.work);
}

static void queues_kill(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++)
		queue_set_dead(&vb->queue[id], true);
}

/* The device lets go of everything; who waits for it learns that. */
static void balloon_reset(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	queues_kill(vb);
	virtio_reset_device(vb->vdev);
	WRITE_ONCE(vb->was_reset, true);
	for (id = 0; id < QUEUE_NR; id++)
		wake_up_all(&vb->queue[id].wait);
}

/*
 * Unregistering from the reporting core waits for a report that is under way,
 * and that waits for the device: where it does not answer, it is reset first.
 */
static void report_drain(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_REPORT];

	if (!q->vq)
		return;
	/* Who has seen @stopping false has posted by now. */
	spin_lock_irq(&q->lock);
	spin_unlock_irq(&q->lock);
	wait_event_timeout(q->wait, report_over(vb), REMOVE_TIMEOUT);
	if (!report_over(vb))
		balloon_reset(vb);
	report_unregister(vb);
}

/* From here on nothing begins: answers queue no work, and no work runs. */
static void balloon_stop(struct virtio_balloon *vb)
{
	WRITE_ONCE(vb->stopping, true);
	report_drain(vb);
	disable_delayed_work_sync(&vb->size_work);
	held_release(vb);
	disable_work_sync(&vb->publish_work);
	disable_work_sync(&vb->stats.work);
	disable_work_sync(&vb->hint.work);
	disable_work_sync(&vb->migration.work);
	__pm_relax(vb->wakeup);
}

/* Give everything back, telling the device for as long as it answers. */
static void balloon_empty(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_DEFLATE];
	unsigned long freed_wire = 0;
	unsigned long end = jiffies + REMOVE_TELL_TIMEOUT;
	unsigned long moved = jiffies + REMOVE_TIMEOUT;
	int err = 0;

	worker_settle(vb);
	while (migration_settle(vb) && !queue_gone(q) && time_before(jiffies, moved))
		schedule_timeout_uninterruptible(ISOLATED_DELAY);
	while (!worker_settle(vb) && atomic_long_read(&vb->ballooned) &&
	       time_before(jiffies, end)) {
		err = deflate(vb, &vb->batch, vb->batch_max, REMOVE_TIMEOUT,
			      &freed_wire);
		if (!worker_settle(vb))
			worker_lets_go(vb);
		if (err == -ENOENT)
			schedule_timeout_uninterruptible(ISOLATED_DELAY);
		else if (err)
			break;
		cond_resched();
	}
	if (!queue_gone(q))
		publish_actual(vb);
}

/*
 * After the reset the device has no claim on any page: those it was not told
 * about, or did not answer for, are free like the others.
 */
static void balloon_abandon(struct virtio_balloon *vb)
{
	unsigned long untold = atomic_long_read(&vb->ballooned);
	LIST_HEAD(pages);

	if (untold)
		dev_warn(&vb->vdev->dev,
			 "the device was reset before it was told of %lu MiB\n",
			 pages_to_mib(untold));
	hint_abandon(vb);
	chunks_free(&vb->report.blocks);
	migration_abandon(vb);
	batch_abandon(vb, &vb->batch);
	batch_abandon(vb, &vb->second);
	mutex_lock(&vb->oom_mutex);
	batch_abandon(vb, &vb->oom_batch);
	mutex_unlock(&vb->oom_mutex);
	while (atomic_long_read(&vb->ballooned)) {
		if (!balloon_take(vb, &pages, LIST_CALL_PAGES))
			schedule_timeout_uninterruptible(ISOLATED_DELAY);
		pages_release(vb, &pages);
		cond_resched();
	}
}

static void balloon_shut(struct virtio_balloon *vb)
{
	balloon_reset(vb);
	balloon_abandon(vb);
	queues_delete(vb);
}

static int balloon_probe(struct virtio_device *vdev)
{
	struct virtio_balloon *vb;
	int err;

	if (!vdev->config->get) {
		dev_err(&vdev->dev, "the transport gives no access to the configuration\n");
		return -EINVAL;
	}
	vb = balloon_create(vdev);
	if (!vb)
		return -ENOMEM;
	err = queues_find(vb);
	if (err)
		goto free;
	err = batches_alloc(vb);
	if (err)
		goto delete_queues;
	err = workqueues_alloc(vb);
	if (err)
		goto delete_queues;
	suspend_init(vb);
	poison_publish(vb);
	virtio_device_ready(vdev);
	err = balloon_register(vb);
	if (err)
		goto reset;
	debugfs_add(vb);
	balloon_start(vb);
	return 0;

reset:
	virtio_reset_device(vdev);
	wakeup_source_unregister(vb->wakeup);
	workqueues_free(vb);
delete_queues:
	batches_free(vb);
	queues_delete(vb);
free:
	vdev->priv = NULL;
	kfree(vb);
	return err;
}

static void balloon_remove(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;

	debugfs_remove_recursive(vb->debugfs);
	balloon_stop(vb);
	balloon_empty(vb);
	balloon_unregister(vb);
	balloon_shut(vb);
	wakeup_source_unregister(vb->wakeup);
	workqueues_free(vb);
	batches_free(vb);
	vdev->priv = NULL;
	kfree(vb);
}

#ifdef CONFIG_PM_SLEEP
/*
 * Suspend and hibernation empty the balloon: the device forgets it.  Notifier
 * and shrinker stay registered, and find dead queues and an empty balloon.
 */
static int balloon_freeze(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;

	balloon_stop(vb);
	balloon_empty(vb);
	balloon_shut(vb);
	return 0;
}

/* A hibernated guest may wake up on another host; its batches do not change. */
static bool queues_shrunk(struct virtio_balloon *vb)
{
	return virtqueue_get_vring_size(vb->queue[QUEUE_INFLATE].vq) <
	       vb->batch.nr_requests + vb->migration.nr_moves ||
	       virtqueue_get_vring_size(vb->queue[QUEUE_DEFLATE].vq) <
	       vb->batch.nr_requests / 2 + vb->oom_batch.nr_requests +
	       vb->migration.nr_moves;
}

static void balloon_forget(struct virtio_balloon *vb)
{
	vb->was_reset = false;
	vb->gone_said = false;
	vb->published = -1;
	vb->target = 0;
	vb->hint.sent_id = VIRTIO_BALLOON_CMD_ID_STOP;
	vb->hint.release = false;
	vb->stats.posted = false;
	vb->report.posted = false;
	vb->report.late = false;
	WRITE_ONCE(vb->stopping, false);
}

/* Allocates nothing but queues.  Where that fails the device stays dead. */
static int balloon_restore(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;
	int err = queues_find(vb);

	if (err)
		return err;
	if (queues_shrunk(vb)) {
		dev_err(&vdev->dev, "the host has made the queues smaller\n");
		queues_delete(vb);
		return -ENOSPC;
	}
	balloon_forget(vb);
	poison_publish(vb);
	virtio_device_ready(vdev);
	enable_delayed_work(&vb->size_work);
	enable_work(&vb->publish_work);
	enable_work(&vb->stats.work);
	enable_work(&vb->hint.work);
	enable_work(&vb->migration.work);
	balloon_start(vb);
	return 0;
}
#endif

/*
 * May run in interrupt context, where configuration must not be read: the
 * workers do.
 */
static void balloon_config_changed(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;

	adjustment_begins(vb);
	mod_delayed_work(vb->size_wq, &vb->size_work, 0);
	if (vb->queue[QUEUE_HINT].vq) {
		set_bit(HINT_RECHECK, &vb->hint.flags);
		queue_work(vb->hint.wq, &vb->hint.work);
	}
}

/*
 * No indirect descriptors: they are allocated, and requests are posted when the
 * guest is out of memory.  No ACCESS_PLATFORM: PFNs are guest-physical.
 *
 * Where free memory must keep a value and the device cannot be told which, it
 * must not discard free memory: no reporting.
 */
static int balloon_validate(struct virtio_device *vdev)
{
	if (!balloon_memory_has_value())
		__virtio_clear_bit(vdev, VIRTIO_BALLOON_F_PAGE_POISON);
	else if (!virtio_has_feature(vdev, VIRTIO_BALLOON_F_PAGE_POISON))
		__virtio_clear_bit(vdev, VIRTIO_BALLOON_F_REPORTING);
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static const struct virtio_device_id balloon_ids[] = {
	{ .device = VIRTIO_ID_BALLOON, .vendor = VIRTIO_DEV_ANY_ID },
	{ }
};
MODULE_DEVICE_TABLE(virtio, balloon_ids);

static const unsigned int balloon_features[] = {
	VIRTIO_BALLOON_F_MUST_TELL_HOST,
	VIRTIO_BALLOON_F_STATS_VQ,
	VIRTIO_BALLOON_F_DEFLATE_ON_OOM,
	VIRTIO_BALLOON_F_FREE_PAGE_HINT,
	VIRTIO_BALLOON_F_PAGE_POISON,
	VIRTIO_BALLOON_F_REPORTING,
};

static struct virtio_driver balloon_driver = {
	.driver.name		= KBUILD_MODNAME,
	.id_table		= balloon_ids,
	.feature_table		= balloon_features,
	.feature_table_size	= ARRAY_SIZE(balloon_features),
	.validate		= balloon_validate,
	.probe			= balloon_probe,
	.remove			= balloon_remove,
	.config_changed		= balloon_config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze			= balloon_freeze,
	.restore		= balloon_restore,
#endif
};

static int __init balloon_init(void)
{
	int err;

	balloon_debugfs = debugfs_create_dir(KBUILD_MODNAME, NULL);
	err = register_virtio_driver(&balloon_driver);
	if (err)
		debugfs_remove(balloon_debugfs);
	return err;
}
module_init(balloon_init);

static void __exit balloon_exit(void)
{
	unregister_virtio_driver(&balloon_driver);
	debugfs_remove(balloon_debugfs);
}
module_exit(balloon_exit);

MODULE_DESCRIPTION("Guest driver for the virtio memory balloon");
MODULE_LICENSE("GPL");

#if IS_ENABLED(CONFIG_VIRTIO_BALLOON_KUNIT_TEST)
#include "tests/virtio_balloon_test.c"
#endif
