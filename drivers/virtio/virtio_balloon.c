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
 * end in _wire; pages_to_wire(), wire_to_pages() and target_to_pages() are the
 * only places that convert.
 *
 * The life of a page:
 *
 *   free -> announced -> ballooned -> recalled -> free
 *
 *   announced  its PFN is in an inflate request that was not answered yet;
 *              nobody may touch it
 *   ballooned  on the kernel's balloon list, from where deflation, the OOM
 *              notifier and page migration take it
 *   recalled   its PFN is in an unanswered deflate request; freed when answered
 *
 * Announced and recalled pages hang on their request.  A request that is late
 * keeps them, and its buffer, until the device answers or has been reset.
 *
 * The unit of work is a batch: many requests in flight, one kick, one wait, one
 * write of "actual".  There are two batches.  One belongs to the size worker
 * (and to removal, once the worker is disabled).  The other is the OOM
 * notifier's, or the publish worker's when it settles a late one; whoever sets
 * BATCH_OWNED has it.
 *
 * Locks, outermost first:
 *
 *   publish_lock          one writer of "actual"
 *   balloon_queue.lock    one per virtqueue, irq-safe: every add, get and
 *                         callback switch, and what hangs on the answers
 *   pressure.lock         irq-safe leaf: OOM step and rest
 *
 * The OOM notifier runs with the kernel's oom_lock held, in any task that
 * allocates.  It takes only the last two, allocates nothing and writes no
 * configuration: on some transports a configuration access allocates.
 */

#include <linux/atomic.h>
#include <linux/balloon_compaction.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/list_sort.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/oom.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/swap.h>
#include <linux/virtio.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

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
/* A batch slower than this halves the next: device and guest stay responsive. */
#define BATCH_SLOW_MS		20
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
/* oom_lock is held and every allocation in the guest waits behind it. */
#define OOM_TIMEOUT		(5 * HZ)
/* Removal must end; after this the device is reset, and told nothing more. */
#define REMOVE_TIMEOUT		(5 * HZ)
/* A loaded host swaps to make room for its guests; give it time. */
#define WORKER_TIMEOUT		(30 * HZ)

/* Memory is short: look again after 200 ms, 400 ms, ... 5 s. */
#define BACKOFF_MIN		(HZ / 5)
#define BACKOFF_MAX		(5 * HZ)
/* Pages are isolated for migration: they are back within a few passes. */
#define ISOLATED_DELAY		(HZ / 20)

/* Hinted blocks that the device has not answered; see hint_run(). */
#define HINT_POSTED_MAX		32U
/* Left in the hint ring for the two commands. */
#define HINT_SLOTS_CMD		2U

#define CHUNK_GFP	((GFP_HIGHUSER_MOVABLE | __GFP_NOMEMALLOC | \
			  __GFP_NOWARN | __GFP_SKIP_ZERO) & ~__GFP_RECLAIM)
/* Single pages may reclaim, mildly: never compact, never kill. */
#define PAGE_GFP	(GFP_HIGHUSER_MOVABLE | __GFP_NOMEMALLOC | \
			 __GFP_NOWARN | __GFP_NORETRY | __GFP_SKIP_ZERO)

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
	QUEUE_NR,
};

/**
 * struct balloon_queue - a virtqueue and what its answers need
 * @vb: the balloon; never changes
 * @vq: the ring, NULL where the feature is not negotiated; never changes while
 *	the device is ready
 * @lock: every add, get and callback switch of @vq, and the fields below
 * @owners: batches with unanswered requests
 * @dead: nothing may be added any more
 * @wait: who waits for an answer
 * @answered: takes a token that the device has given back; under @lock
 */
struct balloon_queue {
	struct virtio_balloon *vb;
	struct virtqueue *vq;
	spinlock_t lock; /* see above */
	unsigned int owners;
	bool dead;
	wait_queue_head_t wait;
	void (*answered)(struct balloon_queue *q, void *token);
};

/**
 * enum request_state - what has become of a request
 * @REQUEST_IDLE: empty
 * @REQUEST_PACKED: has its pages; the device has not seen it
 * @REQUEST_POSTED: the device's: neither the pages nor the buffer may be used
 * @REQUEST_ANSWERED: given back by the device; the pages wait to be settled
 */
enum request_state {
	REQUEST_IDLE,
	REQUEST_PACKED,
	REQUEST_POSTED,
	REQUEST_ANSWERED,
};

/**
 * struct balloon_request - one descriptor's worth of PFNs
 * @batch: the batch it belongs to; never changes
 * @state: POSTED to ANSWERED under the queue's lock, else by the batch's owner
 * @pages: the pages behind @pfns, by the batch's owner
 * @nr_pages: length of @pages
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

#define BATCH_OWNED	0	/* lock bit: somebody works on the batch */
#define BATCH_LATE	1	/* its owner gave up waiting; under the queue's lock */

/**
 * struct balloon_batch - requests that are submitted and waited for together
 * @flags: BATCH_*
 * @inflating: which way the pages go; by the owner
 * @requests: preallocated: none of this may allocate under pressure
 * @nr_requests: length of @requests; never changes
 * @request_wire: PFNs that fit one request; never changes
 * @used: requests that are not idle, from the first; by the owner
 * @unanswered: requests that the device has; grows under the queue's lock
 */
struct balloon_batch {
	unsigned long flags;
	bool inflating;
	struct balloon_request *requests;
	unsigned int nr_requests;
	unsigned int request_wire;
	unsigned int used;
	atomic_t unanswered;
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

/**
 * struct balloon_hint - free page hinting
 * @wq: its own: a run takes as long as there is free memory
 * @work: reads the command id and does what it says
 * @shrinker: gives answered blocks back to reclaim
 * @flags: HINT_*
 * @current_id: the id last read; by @work
 * @sent_id: the id of the last run, never sent again; by @work
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
 * struct virtio_balloon - one device
 * @vdev: the virtio device
 * @queue: by enum balloon_queue_id
 * @stopping: removal has begun: nothing new is started
 * @info: the kernel's list of ballooned pages, with its own lock
 * @ballooned: pages on that list, or isolated from it for migration
 * @size_wq: for @size_work; no rescuer, it may wait for memory anyway
 * @size_work: one step towards the target
 * @batch: by @size_work
 * @batch_max: most pages in @batch; never changes
 * @batch_pages: what the next batch may hold; by @size_work
 * @target: pages, as last read; by @size_work
 * @backoff: jiffies, 0 where memory was not short; by @size_work
 * @short_said: the log has this episode of short memory; by @size_work
 * @stall_said: the log has this stall; by @size_work
 * @publish_wq: for @publish_work
 * @publish_work: settles a late OOM batch and writes actual, for the notifier
 * @publish_lock: protects @published and the write
 * @published: what was last written to actual, -1 for nothing
 * @pressure: OOM step and rest
 * @oom_batch: whoever owns it
 * @oom_nb: registered with DEFLATE_ON_OOM only
 * @hint: free page hinting
 * @stats: memory statistics
 */
struct virtio_balloon {
	struct virtio_device *vdev;
	struct balloon_queue queue[QUEUE_NR];
	bool stopping;

	struct balloon_dev_info info;
	atomic_long_t ballooned;

	struct workqueue_struct *size_wq;
	struct delayed_work size_work;
	struct balloon_batch batch;
	unsigned long batch_max;
	unsigned long batch_pages;
	unsigned long target;
	unsigned long backoff;
	bool short_said;
	bool stall_said;

	struct workqueue_struct *publish_wq;
	struct work_struct publish_work;
	struct mutex publish_lock; /* see above */
	s64 published;

	struct balloon_pressure pressure;
	struct balloon_batch oom_batch;
	struct notifier_block oom_nb;

	struct balloon_hint hint;
	struct balloon_stats stats;
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
 * so that a target near 2^32 does not wrap.
 */
static unsigned long target_to_pages(u32 target_wire)
{
	return wire_to_pages(target_wire) + !!(target_wire & (WIRE_PER_PAGE - 1));
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

/* --- Queues ------------------------------------------------------------ */

static bool queue_gone(struct balloon_queue *q)
{
	return READ_ONCE(q->dead) || virtqueue_is_broken(q->vq);
}

/*
 * Returns false where answers came in meanwhile.  The ring has one event for
 * all: delayed callbacks are only for an owner who waits alone, or else a short
 * request would wait for a long one.
 */
static bool queue_arm(struct balloon_queue *q)
{
	lockdep_assert_held(&q->lock);
	return q->owners > 1 ? virtqueue_enable_cb(q->vq) :
			       virtqueue_enable_cb_delayed(q->vq);
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
	} while (!queue_arm(q));
}

static void queue_poll(struct balloon_queue *q)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (!queue_gone(q))
		queue_reap(q);
	spin_unlock_irqrestore(&q->lock, flags);
}

static void queue_used(struct virtio_device *vdev, enum balloon_queue_id id)
{
	struct virtio_balloon *vb = vdev->priv;

	queue_poll(&vb->queue[id]);
	wake_up(&vb->queue[id].wait);
}

static void inflate_used(struct virtqueue *vq)
{
	queue_used(vq->vdev, QUEUE_INFLATE);
}

static void deflate_used(struct virtqueue *vq)
{
	queue_used(vq->vdev, QUEUE_DEFLATE);
}

static void stats_used(struct virtqueue *vq)
{
	queue_used(vq->vdev, QUEUE_STATS);
}

static void hint_used(struct virtqueue *vq)
{
	queue_used(vq->vdev, QUEUE_HINT);
}

/**
 * queue_post() - give one buffer to the device
 * @q: the queue
 * @buf: the buffer's page and place
 * @writable: the device may write to it
 * @token: what the answer will carry
 *
 * Nothing is allocated: INDIRECT_DESC is never negotiated.
 *
 * Context: under @q's lock.
 * Return: 0, -EIO on a queue that is broken or dead, -ENOSPC on a full one.
 */
static int queue_post(struct balloon_queue *q, struct scatterlist *buf,
		      bool writable, void *token)
{
	lockdep_assert_held(&q->lock);
	if (queue_gone(q))
		return -EIO;
	if (writable)
		return virtqueue_add_inbuf(q->vq, buf, 1, token, GFP_ATOMIC);
	return virtqueue_add_outbuf(q->vq, buf, 1, token, GFP_ATOMIC);
}

/* After posting.  Returns whether to virtqueue_notify(), without the lock. */
static bool queue_commit(struct balloon_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (queue_gone(q))
		return false;
	if (!queue_arm(q))
		queue_reap(q);
	return virtqueue_kick_prepare(q->vq);
}

/**
 * queue_wait() - wait for answers, in slices
 * @q: the queue
 * @enough: what is waited for
 * @arg: its argument
 * @timeout: jiffies
 *
 * Context: process context, no locks.
 * Return: 0, -EIO where the queue broke first, -ETIMEDOUT.
 */
static int queue_wait(struct balloon_queue *q, bool (*enough)(void *arg),
		      void *arg, unsigned long timeout)
{
	unsigned long end = jiffies + timeout;

	for (;;) {
		wait_event_timeout(q->wait, enough(arg) || queue_gone(q),
				   WAIT_SLICE);
		queue_poll(q);
		if (enough(arg))
			return 0;
		if (queue_gone(q))
			return -EIO;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
	}
}

/* --- Chunks: naturally aligned runs of pages, not yet split ------------- */

static struct page *chunk_alloc(unsigned int order, bool gentle)
{
	gfp_t gfp = order || gentle ? CHUNK_GFP : PAGE_GFP;
	struct page *page = alloc_pages(gfp, order);

	if (page)
		set_page_private(page, order);
	return page;
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

static bool batch_try_own(struct balloon_batch *b)
{
	return !test_and_set_bit_lock(BATCH_OWNED, &b->flags);
}

static void batch_disown(struct balloon_batch *b)
{
	clear_bit_unlock(BATCH_OWNED, &b->flags);
}

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

static void request_add(struct virtio_balloon *vb, struct balloon_request *req,
			struct page *page)
{
	u32 pfn = page_to_wire_pfn(page);
	unsigned int i;

	for (i = 0; i < WIRE_PER_PAGE; i++)
		req->pfns[req->nr_wire++] = cpu_to_virtio32(vb->vdev, pfn + i);
	req->nr_pages++;
	list_add_tail(&page->lru, &req->pages);
}

/*
 * A chunk that fits one request never straddles two, as a host page may lie in
 * it; a block that needs two begins a new one.
 */
static bool batch_add_chunk(struct virtio_balloon *vb, struct balloon_batch *b,
			    struct page *page)
{
	unsigned long pages = 1UL << chunk_order(page);
	unsigned long wire = pages_to_wire(pages);
	unsigned long i;

	if (wire > b->request_wire &&
	    b->used + DIV_ROUND_UP(wire, b->request_wire) > b->nr_requests)
		return false;
	if (!batch_request(b, min_t(unsigned long, wire, b->request_wire)))
		return false;

	list_del(&page->lru);
	if (chunk_order(page))
		split_page(page, chunk_order(page));
	set_page_private(page, 0);
	for (i = 0; i < pages; i++)
		request_add(vb, batch_request(b, WIRE_PER_PAGE), page + i);
	return true;
}

/* Moves chunks into requests; what does not fit stays on the list. */
static void batch_pack(struct virtio_balloon *vb, struct balloon_batch *b,
		       struct list_head *chunks)
{
	struct page *page, *next;

	chunks_sort(chunks);
	list_for_each_entry_safe(page, next, chunks, lru) {
		if (!batch_add_chunk(vb, b, page))
			break;
	}
}

static bool batch_answered(void *arg)
{
	struct balloon_batch *b = arg;

	return !atomic_read_acquire(&b->unanswered);
}

static struct balloon_queue *batch_queue(struct virtio_balloon *vb,
					 struct balloon_batch *b)
{
	return &vb->queue[b->inflating ? QUEUE_INFLATE : QUEUE_DEFLATE];
}

/* Whoever gave up on @b learns that the device answered after all. */
static void batch_recover(struct virtio_balloon *vb, struct balloon_batch *b)
{
	if (b == &vb->batch)
		mod_delayed_work(vb->size_wq, &vb->size_work, 0);
	else
		queue_work(vb->publish_wq, &vb->publish_work);
}

/* The inflate and deflate queues' answer. */
static void request_answered(struct balloon_queue *q, void *token)
{
	struct balloon_request *req = token;
	struct balloon_batch *b = req->batch;

	lockdep_assert_held(&q->lock);
	/* The device is done with the pages before batch_settle() moves them. */
	smp_store_release(&req->state, REQUEST_ANSWERED);
	if (!atomic_dec_and_test(&b->unanswered))
		return;
	q->owners--;
	if (__test_and_clear_bit(BATCH_LATE, &b->flags))
		batch_recover(q->vb, b);
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
		err = queue_post(q, &sg, false, req);
		if (err)
			break;
		req->state = REQUEST_POSTED;
		atomic_inc(&b->unanswered);
	}
	if (i)
		q->owners++;
	return i ? 0 : err;
}

/**
 * batch_run() - submit a packed batch and wait until it is answered
 * @vb: the balloon
 * @b: the batch, owned by the caller; at least one request is packed
 * @timeout: jiffies
 *
 * Whatever happens, batch_settle() comes next: it tells by each request's state
 * what became of the pages.  After -ETIMEDOUT batch_recover() will be called.
 *
 * Context: process context, no locks.
 * Return: 0, -ENOSPC where nothing could be posted, -EIO, -ETIMEDOUT.
 */
static int batch_run(struct virtio_balloon *vb, struct balloon_batch *b,
		     unsigned long timeout)
{
	struct balloon_queue *q = batch_queue(vb, b);
	unsigned long flags;
	bool notify;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	err = batch_post(q, b);
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	if (err)
		return err;

	err = queue_wait(q, batch_answered, b, timeout);
	if (err != -ETIMEDOUT)
		return err;
	spin_lock_irqsave(&q->lock, flags);
	if (batch_answered(b))
		err = 0;
	else
		__set_bit(BATCH_LATE, &b->flags);
	spin_unlock_irqrestore(&q->lock, flags);
	return err;
}

/*
 * MemTotal falls by the balloon, except with DEFLATE_ON_OOM, where the memory
 * is the guest's to take back at any time.  One call for a run of one zone.
 */
static void account_managed(struct virtio_balloon *vb, struct list_head *pages,
			    long sign)
{
	struct page *page, *first = NULL;
	long nr = 0;

	if (balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		return;
	list_for_each_entry(page, pages, lru) {
		if (first && page_zone(page) != page_zone(first)) {
			adjust_managed_page_count(first, sign * nr);
			first = NULL;
		}
		if (!first) {
			first = page;
			nr = 0;
		}
		nr++;
	}
	if (first)
		adjust_managed_page_count(first, sign * nr);
}

static void balloon_put(struct virtio_balloon *vb, struct list_head *pages)
{
	size_t nr = balloon_page_list_enqueue(&vb->info, pages);

	atomic_long_add(nr, &vb->ballooned);
}

static void pages_release(struct virtio_balloon *vb, struct list_head *pages)
{
	struct page *page, *next;

	account_managed(vb, pages, 1);
	list_for_each_entry_safe(page, next, pages, lru) {
		list_del(&page->lru);
		put_page(page);
	}
}

/* Announced pages join the balloon, or go back where the device saw nothing. */
static void request_settle_inflate(struct virtio_balloon *vb,
				   struct balloon_request *req, bool answered)
{
	if (!answered) {
		chunks_free(&req->pages);
		return;
	}
	account_managed(vb, &req->pages, -1);
	balloon_put(vb, &req->pages);
}

/* Recalled pages are free, or still ballooned where the device saw nothing. */
static void request_settle_deflate(struct virtio_balloon *vb,
				   struct balloon_request *req, bool answered)
{
	if (answered)
		pages_release(vb, &req->pages);
	else
		balloon_put(vb, &req->pages);
}

static void request_settle(struct virtio_balloon *vb,
			   struct balloon_request *req, bool answered)
{
	if (req->batch->inflating)
		request_settle_inflate(vb, req, answered);
	else
		request_settle_deflate(vb, req, answered);
	req->state = REQUEST_IDLE;
}

/**
 * batch_settle() - give the pages of a batch to whom they belong now
 * @vb: the balloon
 * @b: the batch, owned by the caller
 *
 * Unanswered requests keep their pages and stay in the batch.
 *
 * Context: any that may free pages; no locks.  Allocates nothing.
 * Return: wire pages that changed sides.
 */
static unsigned long batch_settle(struct virtio_balloon *vb,
				  struct balloon_batch *b)
{
	unsigned long moved_wire = 0;
	bool open = false;
	unsigned int i;

	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];

		/* Pairs with request_answered(). */
		switch (smp_load_acquire(&req->state)) {
		case REQUEST_ANSWERED:
			moved_wire += pages_to_wire(req->nr_pages);
			request_settle(vb, req, true);
			break;
		case REQUEST_PACKED:
			request_settle(vb, req, false);
			break;
		case REQUEST_POSTED:
			open = true;
			break;
		case REQUEST_IDLE:
			break;
		}
	}
	if (!open)
		b->used = 0;
	return moved_wire;
}

/* The device has been reset: it will neither answer nor touch the pages. */
static void batch_abandon(struct virtio_balloon *vb, struct balloon_batch *b)
{
	unsigned int i;

	for (i = 0; i < b->used; i++) {
		if (b->requests[i].state == REQUEST_POSTED)
			request_settle(vb, &b->requests[i], !b->inflating);
	}
	batch_settle(vb, b);
	atomic_set(&b->unanswered, 0);
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
 * @b: an empty batch, owned by the caller
 * @nr: most pages to take
 * @timeout: how long to wait for the device, in jiffies
 * @freed_wire: wire pages that were freed are added
 *
 * Pages are freed only when the device has answered, also where it does not ask
 * for that: pipelining makes it cheap.
 *
 * Context: process context, no locks; allocates nothing.
 * Return: 0, -EBUSY where the list is empty, or as batch_run().
 */
static int deflate(struct virtio_balloon *vb, struct balloon_batch *b,
		   unsigned long nr, unsigned long timeout,
		   unsigned long *freed_wire)
{
	LIST_HEAD(pages);
	int err;

	if (!balloon_take(vb, &pages, nr))
		return -EBUSY;
	b->inflating = false;
	batch_pack(vb, b, &pages);
	balloon_put(vb, &pages);
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

static void pressure_expire(struct balloon_pressure *p, u64 now)
{
	lockdep_assert_held(&p->lock);
	if (p->resting && now >= p->until) {
		WRITE_ONCE(p->resting, false);
		p->firm = false;
	}
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
	p->cut = false;
	p->gentle = true;
	p->until = now + p->length;
	WRITE_ONCE(p->resting, true);
}

/**
 * pressure_oom() - note an OOM call
 * @p: the pressure
 * @now: 64-bit jiffies
 *
 * Context: any; takes @p's lock.
 * Return: pages to take out of the balloon.
 */
static unsigned long pressure_oom(struct balloon_pressure *p, u64 now)
{
	unsigned long flags, step;

	spin_lock_irqsave(&p->lock, flags);
	pressure_expire(p, now);
	step = pressure_step(p, now);
	pressure_rest(p, now);
	p->seen = true;
	p->last = now;
	spin_unlock_irqrestore(&p->lock, flags);
	return step;
}

/**
 * pressure_resting() - how long inflation must still rest
 * @p: the pressure
 * @now: 64-bit jiffies
 *
 * Context: any; takes @p's lock.
 * Return: jiffies, 0 where it need not.
 */
static unsigned long pressure_resting(struct balloon_pressure *p, u64 now)
{
	unsigned long flags, left;

	if (!READ_ONCE(p->resting))
		return 0;
	spin_lock_irqsave(&p->lock, flags);
	pressure_expire(p, now);
	left = p->resting ? p->until - now : 0;
	spin_unlock_irqrestore(&p->lock, flags);
	return left;
}

/**
 * pressure_new_target() - a target that wants more inflation has come
 * @p: the pressure
 * @now: 64-bit jiffies
 *
 * It ends the rest once.  Where OOM came back at once after that, somebody
 * moves targets all the time and the rest holds.
 *
 * Context: any; takes @p's lock.
 */
static void pressure_new_target(struct balloon_pressure *p, u64 now)
{
	unsigned long flags;

	spin_lock_irqsave(&p->lock, flags);
	pressure_expire(p, now);
	if (p->resting && !p->firm) {
		WRITE_ONCE(p->resting, false);
		p->cut = true;
		p->until = now;
	}
	if (!p->resting)
		p->gentle = false;
	spin_unlock_irqrestore(&p->lock, flags);
}

/* --- Hinted blocks: what the device, reclaim and OOM may do with them ---- */

/* The hint queue's answer: a block, or a command. */
static void hint_answered(struct balloon_queue *q, void *token)
{
	struct balloon_hint *hint = &q->vb->hint;
	struct page *page = token;

	lockdep_assert_held(&q->lock);
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
 * Context: any that may free pages; no locks.  Never sleeps, allocates nothing.
 * Return: pages freed; 0 also where hinting is not negotiated.
 */
static unsigned long hint_release(struct virtio_balloon *vb, unsigned long max)
{
	LIST_HEAD(blocks);
	unsigned long taken;

	if (!vb->queue[QUEUE_HINT].vq || !READ_ONCE(vb->hint.nr_answered))
		return 0;
	taken = hint_take(vb, &blocks, max);
	chunks_free(&blocks);
	return taken * BLOCK_PAGES;
}

/* Shrinker objects are pages, as reclaim counts them. */
static unsigned long balloon_shrink_count(struct shrinker *shrinker,
					  struct shrink_control *sc)
{
	struct virtio_balloon *vb = shrinker->private_data;

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
 * Context: reclaim; never sleeps.
 * Return: pages freed, SHRINK_STOP where there was none.
 */
static unsigned long balloon_shrink_scan(struct shrinker *shrinker,
					 struct shrink_control *sc)
{
	struct virtio_balloon *vb = shrinker->private_data;
	unsigned long pages;

	pages = hint_release(vb, DIV_ROUND_UP(sc->nr_to_scan, BLOCK_PAGES));
	return pages ?: SHRINK_STOP;
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
	actual_wire = pages_to_wire(atomic_long_read(&vb->ballooned));
	if (vb->published != actual_wire) {
		virtio_cwrite_le(vb->vdev, struct virtio_balloon_config,
				 actual, &actual_wire);
		vb->published = actual_wire;
	}
	mutex_unlock(&vb->publish_lock);
}

/* After OOM calls: settle, publish, and come back to the target after the rest. */
static void publish_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(work, struct virtio_balloon,
						 publish_work);

	if (batch_try_own(&vb->oom_batch)) {
		batch_settle(vb, &vb->oom_batch);
		batch_disown(&vb->oom_batch);
	}
	publish_actual(vb);
	queue_delayed_work(vb->size_wq, &vb->size_work,
			   pressure_resting(&vb->pressure, get_jiffies_64()));
}

/* --- Out of memory ------------------------------------------------------- */

/* What the ring has room for: the worker leaves a quarter of it. */
static unsigned long oom_room(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_DEFLATE];
	struct balloon_batch *b = &vb->oom_batch;
	unsigned long flags, room;

	spin_lock_irqsave(&q->lock, flags);
	room = queue_gone(q) ? 0 : min(q->vq->num_free, b->nr_requests);
	spin_unlock_irqrestore(&q->lock, flags);
	return wire_to_pages(room * b->request_wire);
}

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

/*
 * One step out of the balloon.  A late batch is settled first, and while the
 * device still has it there is no other: the kernel's killer gets its chance.
 * Returns wire pages.
 */
static unsigned long oom_deflate(struct virtio_balloon *vb, unsigned long step)
{
	struct balloon_batch *b = &vb->oom_batch;
	unsigned long freed_wire = 0;
	int err;

	if (!batch_try_own(b))
		return 0;
	freed_wire = batch_settle(vb, b);
	step = min(step, oom_room(vb));
	if (!b->used && step) {
		err = deflate(vb, b, step, OOM_TIMEOUT, &freed_wire);
		if (err == -ETIMEDOUT)
			freed_wire += oom_free_late(vb);
	}
	batch_disown(b);
	return freed_wire;
}

/**
 * balloon_oom_notify() - the guest is out of memory: give some back
 * @nb: our notifier block
 * @unused: always 0
 * @parm: unsigned long, grows by the pages that were freed
 *
 * Hinted blocks go first: they are free memory, and the device need not be
 * asked.  The notifier is registered with DEFLATE_ON_OOM only: without it a
 * driver must not take back pages that the target still wants.
 *
 * Context: any task that allocates, with oom_lock held.
 * Return: NOTIFY_OK.
 */
static int balloon_oom_notify(struct notifier_block *nb, unsigned long unused,
			      void *parm)
{
	struct virtio_balloon *vb = container_of(nb, struct virtio_balloon,
						 oom_nb);
	unsigned long step = pressure_oom(&vb->pressure, get_jiffies_64());
	unsigned long *freed = parm;
	unsigned long pages;

	pages = hint_release(vb, ULONG_MAX);
	if (!pages)
		pages = wire_to_pages(oom_deflate(vb, step));
	*freed += pages;
	queue_work(vb->publish_wq, &vb->publish_work);
	return NOTIFY_OK;
}

/* --- The size worker ----------------------------------------------------- */

static bool inflate_must_rest(struct virtio_balloon *vb)
{
	return pressure_resting(&vb->pressure, get_jiffies_64());
}

/* Largest chunks first; smaller ones as memory is fragmented. */
static unsigned long inflate_fill(struct virtio_balloon *vb,
				  struct list_head *chunks, unsigned long nr)
{
	bool gentle = READ_ONCE(vb->pressure.gentle);
	unsigned int order = BLOCK_ORDER;
	unsigned long got = 0;
	struct page *page;

	while (got < nr && !READ_ONCE(vb->pressure.resting)) {
		order = min_t(unsigned int, order, ilog2(nr - got));
		page = chunk_alloc(order, gentle);
		if (page) {
			list_add_tail(&page->lru, chunks);
			got += 1UL << order;
		} else if (order) {
			order--;
		} else {
			break;
		}
		cond_resched();
	}
	return got;
}

static void batch_pace(struct virtio_balloon *vb, ktime_t begun)
{
	s64 ms = ktime_ms_delta(ktime_get(), begun);

	if (ms > BATCH_SLOW_MS)
		vb->batch_pages = max(vb->batch_pages / 2,
				      min(BLOCK_PAGES, vb->batch_max));
	else if (ms < BATCH_SLOW_MS / 2)
		vb->batch_pages = min(vb->batch_pages * 2, vb->batch_max);
}

/*
 * A batch that is not full, but has a block's worth of pages, is progress; less
 * is no reason to hurry.  An OOM call in the meantime wins: what is not
 * announced yet goes back.
 */
static int inflate_step(struct virtio_balloon *vb, unsigned long nr)
{
	unsigned long got;
	LIST_HEAD(chunks);
	ktime_t begun;
	int err;

	if (inflate_must_rest(vb))
		return -EBUSY;
	nr = min(nr, vb->batch_pages);
	got = inflate_fill(vb, &chunks, nr);
	if (inflate_must_rest(vb)) {
		chunks_free(&chunks);
		return -EBUSY;
	}
	if (!got)
		return -ENOMEM;
	vb->batch.inflating = true;
	batch_pack(vb, &vb->batch, &chunks);
	chunks_free(&chunks);
	begun = ktime_get();
	err = batch_run(vb, &vb->batch, WORKER_TIMEOUT);
	batch_pace(vb, begun);
	batch_settle(vb, &vb->batch);
	if (err)
		return err;
	return got == nr || got >= BLOCK_PAGES ? -EAGAIN : -ENOMEM;
}

static int deflate_step(struct virtio_balloon *vb, unsigned long nr)
{
	unsigned long freed_wire = 0;
	ktime_t begun = ktime_get();
	int err;

	err = deflate(vb, &vb->batch, min(nr, vb->batch_pages), WORKER_TIMEOUT,
		      &freed_wire);
	batch_pace(vb, begun);
	return err ?: -EAGAIN;
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
	vb->target = target;
	vb->backoff = 0;
	vb->short_said = false;
	if (target > atomic_long_read(&vb->ballooned))
		pressure_new_target(&vb->pressure, get_jiffies_64());
}

/**
 * size_step() - one batch towards the target
 * @vb: the balloon
 *
 * Context: the size worker.
 * Return: 0 at the target, -EAGAIN after progress, -ENOMEM where memory is
 * short, -EBUSY where it is not the time, -ETIMEDOUT while the device does not
 * answer, -EIO where it is gone.
 */
static int size_step(struct virtio_balloon *vb)
{
	unsigned long have;

	batch_settle(vb, &vb->batch);
	if (vb->batch.used)
		return queue_gone(batch_queue(vb, &vb->batch)) ? -EIO : -ETIMEDOUT;
	target_read(vb);
	have = atomic_long_read(&vb->ballooned);
	if (have < vb->target)
		return inflate_step(vb, vb->target - have);
	if (have > vb->target)
		return deflate_step(vb, have - vb->target);
	return 0;
}

static unsigned long size_backoff(struct virtio_balloon *vb)
{
	vb->backoff = clamp_t(unsigned long, vb->backoff * 2, BACKOFF_MIN,
			      BACKOFF_MAX);
	if (!vb->short_said)
		dev_info(&vb->vdev->dev,
			 "balloon has %lu of %lu MiB; the rest follows as memory becomes free\n",
			 pages_to_mib(atomic_long_read(&vb->ballooned)),
			 pages_to_mib(vb->target));
	vb->short_said = true;
	return vb->backoff;
}

static void size_stalled(struct virtio_balloon *vb)
{
	if (!vb->stall_said)
		dev_warn(&vb->vdev->dev,
			 "no answer to %s request for %u s; waiting for the device\n",
			 vb->batch.inflating ? "an inflate" : "a deflate",
			 WORKER_TIMEOUT / HZ);
	vb->stall_said = true;
}

static void size_moving(struct virtio_balloon *vb)
{
	if (vb->stall_said)
		dev_info(&vb->vdev->dev, "the device answers again\n");
	vb->stall_said = false;
}

/*
 * One batch per run, so that a freezing system waits for no more than that.
 * Here, and only here, a result becomes policy.
 */
static void size_work_fn(struct work_struct *work)
{
	struct virtio_balloon *vb = container_of(to_delayed_work(work),
						 struct virtio_balloon,
						 size_work);
	unsigned long delay = 0;
	int ret = size_step(vb);

	switch (ret) {
	case -ETIMEDOUT:
		size_stalled(vb);
		publish_actual(vb);
		return;
	case -EIO:
		return;
	case -ENOMEM:
		delay = size_backoff(vb);
		break;
	case -EBUSY:
		delay = pressure_resting(&vb->pressure, get_jiffies_64()) ?:
			ISOLATED_DELAY;
		break;
	case -EAGAIN:
		vb->backoff = 0;
		break;
	default:
		vb->backoff = 0;
		vb->short_said = false;
	}
	size_moving(vb);
	publish_actual(vb);
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
	WRITE_ONCE(stats->posted, !queue_post(q, &sg, false, stats));
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
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

	return READ_ONCE(q->vb->hint.nr_posted) < hint_limit(q) ||
	       READ_ONCE(q->vb->stopping);
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
	err = queue_post(q, sg, writable, token);
	if (!err && writable)
		q->vb->hint.nr_posted++;
	else if (!err)
		cmd->posted = true;
	notify = queue_commit(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
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
	return READ_ONCE(vb->stopping) || hint->current_id != hint->sent_id;
}

static int hint_block(struct balloon_queue *q)
{
	struct scatterlist sg;
	struct page *page;
	int err;

	page = chunk_alloc(BLOCK_ORDER, true);
	if (!page)
		return -ENOMEM;
	sg_init_table(&sg, 1);
	sg_set_page(&sg, page, PAGE_SIZE << BLOCK_ORDER, 0);
	err = hint_post(q, &sg, true, page);
	if (err) {
		set_page_private(page, 0);
		__free_pages(page, BLOCK_ORDER);
	}
	return err;
}

static int hint_blocks(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_HINT];
	int err = 0;

	while (!err && !hint_superseded(vb)) {
		err = queue_wait(q, hint_has_room, q, WORKER_TIMEOUT);
		if (!err)
			err = hint_block(q);
		cond_resched();
	}
	return err == -ENOMEM ? 0 : err;
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

	hint->sent_id = hint->current_id;
	err = hint_command(q, &hint->start, hint->sent_id);
	if (!err) {
		err = hint_blocks(vb);
		stop_err = hint_command(q, &hint->stop,
					VIRTIO_BALLOON_CMD_ID_STOP);
	}
	err = err ?: stop_err;
	if (err && !READ_ONCE(vb->stopping))
		dev_warn(&vb->vdev->dev, "free page hinting stopped: error %d\n",
			 err);
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
		 hint->current_id != hint->sent_id)
		hint_run(vb);
}

static int hint_init(struct virtio_balloon *vb)
{
	struct balloon_hint *hint = &vb->hint;

	INIT_LIST_HEAD(&hint->answered);
	INIT_WORK(&hint->work, hint_work_fn);
	if (!balloon_has(vb, VIRTIO_BALLOON_F_FREE_PAGE_HINT))
		return 0;
	if (virtqueue_get_vring_size(vb->queue[QUEUE_HINT].vq) <= HINT_SLOTS_CMD)
		return -ENOSPC;
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

/* After the reset: what the device had is ours again. */
static void hint_abandon(struct virtio_balloon *vb)
{
	struct virtqueue *vq = vb->queue[QUEUE_HINT].vq;
	struct balloon_hint *hint = &vb->hint;
	void *token;

	while (vq && (token = virtqueue_detach_unused_buf(vq))) {
		struct page *page = token;

		if (token != &hint->start && token != &hint->stop)
			list_add(&page->lru, &hint->answered);
	}
	chunks_free(&hint->answered);
	hint->nr_answered = 0;
	hint->nr_posted = 0;
	hint->start.posted = false;
	hint->stop.posted = false;
}

/* --- Probe and removal ----------------------------------------------------- */

static const struct {
	const char *name;
	vq_callback_t *callback;
	void (*answered)(struct balloon_queue *q, void *token);
	int feature;
} queue_table[QUEUE_NR] = {
	[QUEUE_INFLATE] = { "inflate", inflate_used, request_answered, -1 },
	[QUEUE_DEFLATE] = { "deflate", deflate_used, request_answered, -1 },
	[QUEUE_STATS] = { "stats", stats_used, stats_answered,
			  VIRTIO_BALLOON_F_STATS_VQ },
	[QUEUE_HINT] = { "hint", hint_used, hint_answered,
			 VIRTIO_BALLOON_F_FREE_PAGE_HINT },
};

static void queues_init(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++) {
		struct balloon_queue *q = &vb->queue[id];

		q->vb = vb;
		spin_lock_init(&q->lock);
		init_waitqueue_head(&q->wait);
		q->answered = queue_table[id].answered;
	}
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
		info[nr].callback = queue_table[id].callback;
		which[nr++] = id;
	}
	err = virtio_find_vqs(vb->vdev, nr, vqs, info, NULL);
	if (err)
		return err;
	for (i = 0; i < nr; i++)
		vb->queue[which[i]].vq = vqs[i];
	return 0;
}

static void queues_delete(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	vb->vdev->config->del_vqs(vb->vdev);
	for (id = 0; id < QUEUE_NR; id++) {
		vb->queue[id].vq = NULL;
		vb->queue[id].owners = 0;
	}
}

/* The worker leaves a quarter of the ring to OOM and migration. */
static unsigned int queue_worker_slots(struct balloon_queue *q)
{
	unsigned int size = virtqueue_get_vring_size(q->vq);

	return size - min(max(size / 4, 2U), size - 1);
}

/*
 * Chunks that must not straddle leave requests half empty at worst: a batch
 * holds half of what its requests could.
 */
static int batches_alloc(struct virtio_balloon *vb)
{
	u64 offered = vb->vdev->config->get_features(vb->vdev);
	unsigned int wire = offered & BIT_ULL(VIRTIO_RING_F_INDIRECT_DESC) ?
			    REQUEST_WIRE_BLOCK : REQUEST_WIRE_MIN;
	unsigned int slots, nr;
	int err;

	slots = min(queue_worker_slots(&vb->queue[QUEUE_INFLATE]),
		    queue_worker_slots(&vb->queue[QUEUE_DEFLATE]));
	nr = min(slots, 2 * BATCH_WIRE_MAX / wire);
	err = batch_alloc(&vb->batch, nr, wire);
	if (err)
		return err;
	vb->batch_max = wire_to_pages(max(nr / 2, 1U) * wire);
	vb->batch_pages = vb->batch_max;
	err = batch_alloc(&vb->oom_batch,
			  OOM_STEP_MAX_BYTES >> VIRTIO_BALLOON_PFN_SHIFT >> ilog2(wire),
			  wire);
	if (err)
		batch_free(&vb->batch);
	return err;
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

/* Pages stay where they are: the core puts them back on the balloon's list. */
static int __maybe_unused balloon_migrate(struct balloon_dev_info *info,
					  struct page *to, struct page *from,
					  enum migrate_mode mode)
{
	return -EBUSY;
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
	vb->info.migratepage = IS_ENABLED(CONFIG_BALLOON_COMPACTION) ?
			       balloon_migrate : NULL;
	INIT_DELAYED_WORK(&vb->size_work, size_work_fn);
	INIT_WORK(&vb->publish_work, publish_work_fn);
	INIT_WORK(&vb->stats.work, stats_work_fn);
	mutex_init(&vb->publish_lock);
	pressure_init(&vb->pressure);
	queues_init(vb);
	vb->stats.nr = stats_count();
	return vb;
}

/* With the features, and unlike them never before the device is ready. */
static int balloon_register(struct virtio_balloon *vb)
{
	int err = hint_register_shrinker(vb);

	if (err || !balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		return err;
	vb->oom_nb.notifier_call = balloon_oom_notify;
	vb->oom_nb.priority = OOM_PRIORITY;
	err = register_oom_notifier(&vb->oom_nb);
	if (err)
		shrinker_free(vb->hint.shrinker);
	return err;
}

static void balloon_unregister(struct virtio_balloon *vb)
{
	if (balloon_has(vb, VIRTIO_BALLOON_F_DEFLATE_ON_OOM))
		unregister_oom_notifier(&vb->oom_nb);
	shrinker_free(vb->hint.shrinker);
}

static void balloon_start(struct virtio_balloon *vb)
{
	queue_delayed_work(vb->size_wq, &vb->size_work, 0);
	if (vb->queue[QUEUE_STATS].vq)
		queue_work(vb->stats.wq, &vb->stats.work);
	if (vb->queue[QUEUE_HINT].vq)
		queue_work(vb->hint.wq, &vb->hint.work);
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
		goto free_batches;
	virtio_device_ready(vdev);
	err = balloon_register(vb);
	if (err)
		goto reset;
	balloon_start(vb);
	return 0;

reset:
	virtio_reset_device(vdev);
	workqueues_free(vb);
free_batches:
	batch_free(&vb->oom_batch);
	batch_free(&vb->batch);
delete_queues:
	queues_delete(vb);
free:
	vdev->priv = NULL;
	kfree(vb);
	return err;
}

/* From here on answers queue no work, and no work runs. */
static void balloon_stop(struct virtio_balloon *vb)
{
	WRITE_ONCE(vb->stopping, true);
	balloon_unregister(vb);
	disable_delayed_work_sync(&vb->size_work);
	disable_work_sync(&vb->publish_work);
	disable_work_sync(&vb->stats.work);
	disable_work_sync(&vb->hint.work);
}

/* Give everything back, telling the device for as long as it answers. */
static void balloon_empty(struct virtio_balloon *vb)
{
	struct balloon_queue *q = &vb->queue[QUEUE_DEFLATE];
	unsigned long freed_wire;
	int err = 0;

	batch_settle(vb, &vb->batch);
	while (!vb->batch.used && !queue_gone(q) &&
	       atomic_long_read(&vb->ballooned)) {
		err = deflate(vb, &vb->batch, vb->batch_max, REMOVE_TIMEOUT,
			      &freed_wire);
		if (err == -EBUSY)
			schedule_timeout_uninterruptible(ISOLATED_DELAY);
		else if (err)
			break;
		cond_resched();
	}
	if (!queue_gone(q))
		publish_actual(vb);
}

static void queues_kill(struct virtio_balloon *vb)
{
	enum balloon_queue_id id;

	for (id = 0; id < QUEUE_NR; id++) {
		spin_lock_irq(&vb->queue[id].lock);
		vb->queue[id].dead = true;
		spin_unlock_irq(&vb->queue[id].lock);
		wake_up_all(&vb->queue[id].wait);
	}
}

/*
 * After the reset the device has no claim on any page: those it was not told
 * about, or did not answer for, are free like the others.
 */
static void balloon_reset(struct virtio_balloon *vb)
{
	LIST_HEAD(pages);

	queues_kill(vb);
	virtio_reset_device(vb->vdev);
	hint_abandon(vb);
	batch_abandon(vb, &vb->batch);
	batch_abandon(vb, &vb->oom_batch);
	while (atomic_long_read(&vb->ballooned)) {
		if (!balloon_take(vb, &pages, LIST_CALL_PAGES))
			schedule_timeout_uninterruptible(ISOLATED_DELAY);
		pages_release(vb, &pages);
		cond_resched();
	}
	queues_delete(vb);
}

static void balloon_remove(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;

	balloon_stop(vb);
	balloon_empty(vb);
	balloon_reset(vb);
	workqueues_free(vb);
	batch_free(&vb->oom_batch);
	batch_free(&vb->batch);
	vdev->priv = NULL;
	kfree(vb);
}

/*
 * May run in interrupt context, where configuration must not be read: the
 * workers do.
 */
static void balloon_config_changed(struct virtio_device *vdev)
{
	struct virtio_balloon *vb = vdev->priv;

	mod_delayed_work(vb->size_wq, &vb->size_work, 0);
	if (vb->queue[QUEUE_HINT].vq) {
		set_bit(HINT_RECHECK, &vb->hint.flags);
		queue_work(vb->hint.wq, &vb->hint.work);
	}
}

/*
 * No indirect descriptors: they are allocated, and requests are posted when the
 * guest is out of memory.  No ACCESS_PLATFORM: PFNs are guest-physical.
 */
static int balloon_validate(struct virtio_device *vdev)
{
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
};
module_virtio_driver(balloon_driver);

MODULE_DESCRIPTION("Guest driver for the virtio memory balloon");
MODULE_LICENSE("GPL");
