// SPDX-License-Identifier: GPL-2.0
/*
 * The balloon device's own time: what a driver cannot be faster than.
 *
 * Takes blocks of 2 MiB beforehand, then announces them in requests of one
 * block, 16 in flight, with one notification and one write of "actual" for
 * each 16, and recalls them likewise.  Nothing else is done meanwhile.  The
 * parameters inflate_ns and deflate_ns have the result once it is loaded.
 * Load it instead of the driver, in a guest whose balloon is empty.
 */
#include <linux/completion.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>

#define BLOCK_ORDER	9
#define BLOCK_PAGES	BIT(BLOCK_ORDER)
#define IN_FLIGHT	16

static unsigned int mib = 1024;
module_param(mib, uint, 0444);
MODULE_PARM_DESC(mib, "how much is announced and recalled");

static unsigned long inflate_ns;
module_param(inflate_ns, ulong, 0444);

static unsigned long deflate_ns;
module_param(deflate_ns, ulong, 0444);

struct floor {
	struct virtio_device *vdev;
	struct virtqueue *vq[2];
	struct page **blocks;
	unsigned int nr_blocks;
	__virtio32 *pfns;
	wait_queue_head_t answered;
};

static void floor_answered(struct virtqueue *vq)
{
	struct floor *f = vq->vdev->priv;

	wake_up(&f->answered);
}

static unsigned int floor_post(struct floor *f, struct virtqueue *vq,
			       unsigned int first)
{
	unsigned int n, i;

	for (n = 0; n < IN_FLIGHT && first + n < f->nr_blocks; n++) {
		unsigned long pfn = page_to_pfn(f->blocks[first + n]);
		__virtio32 *pfns = f->pfns + n * BLOCK_PAGES;
		struct scatterlist sg;

		for (i = 0; i < BLOCK_PAGES; i++)
			pfns[i] = cpu_to_virtio32(f->vdev, pfn + i);
		sg_init_one(&sg, pfns, BLOCK_PAGES * sizeof(*pfns));
		if (virtqueue_add_outbuf(vq, &sg, 1, f, GFP_KERNEL))
			break;
	}
	virtqueue_kick(vq);
	return n;
}

static bool floor_reap(struct virtqueue *vq, unsigned int *left)
{
	unsigned int len;

	do {
		virtqueue_disable_cb(vq);
		while (virtqueue_get_buf(vq, &len))
			--*left;
	} while (*left && !virtqueue_enable_cb_delayed(vq));
	return !*left;
}

static unsigned long floor_move(struct floor *f, unsigned int queue)
{
	struct virtqueue *vq = f->vq[queue];
	u64 begun = ktime_get_ns();
	unsigned int done = 0;

	while (done < f->nr_blocks) {
		unsigned int posted = floor_post(f, vq, done), left = posted;
		u32 actual;

		if (!posted)
			break;
		wait_event(f->answered, floor_reap(vq, &left));
		done += posted;
		actual = (queue ? f->nr_blocks - done : done) * BLOCK_PAGES;
		virtio_cwrite_le(f->vdev, struct virtio_balloon_config, actual, &actual);
	}
	return ktime_get_ns() - begun;
}

static void floor_free(struct floor *f)
{
	while (f->nr_blocks)
		__free_pages(f->blocks[--f->nr_blocks], BLOCK_ORDER);
	kvfree(f->blocks);
	kfree(f->pfns);
	kfree(f);
}

static struct floor *floor_alloc(void)
{
	struct floor *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return NULL;
	init_waitqueue_head(&f->answered);
	f->blocks = kvcalloc(mib / 2, sizeof(*f->blocks), GFP_KERNEL);
	f->pfns = kmalloc_array(IN_FLIGHT * BLOCK_PAGES, sizeof(*f->pfns), GFP_KERNEL);
	if (!f->blocks || !f->pfns)
		return f;
	for (; f->nr_blocks < mib / 2; f->nr_blocks++) {
		f->blocks[f->nr_blocks] = alloc_pages(GFP_HIGHUSER | __GFP_NORETRY | __GFP_NOWARN,
						      BLOCK_ORDER);
		if (!f->blocks[f->nr_blocks])
			break;
	}
	return f;
}

static int floor_probe(struct virtio_device *vdev)
{
	struct virtqueue_info queues[] = {
		{ "inflate", floor_answered },
		{ "deflate", floor_answered },
	};
	struct floor *f = floor_alloc();
	unsigned int pass;
	int err = -ENOMEM;

	if (!f)
		return -ENOMEM;
	f->vdev = vdev;
	vdev->priv = f;
	if (f->nr_blocks == mib / 2)
		err = virtio_find_vqs(vdev, ARRAY_SIZE(queues), f->vq, queues, NULL);
	if (!err) {
		virtio_device_ready(vdev);
		/* Code that runs for the first time is not what is measured. */
		for (pass = 0; pass < 2; pass++) {
			inflate_ns = floor_move(f, 0);
			deflate_ns = floor_move(f, 1);
		}
		virtio_reset_device(vdev);
		vdev->config->del_vqs(vdev);
	}
	floor_free(f);
	/* It was measured; the device is for the driver. */
	return err ?: -ENODEV;
}

static void floor_remove(struct virtio_device *vdev)
{
}

static const struct virtio_device_id floor_ids[] = {
	{ VIRTIO_ID_BALLOON, VIRTIO_DEV_ANY_ID },
	{ }
};

static const unsigned int floor_features[] = {
	VIRTIO_BALLOON_F_DEFLATE_ON_OOM,
};

static struct virtio_driver floor_driver = {
	.driver.name		= "balloon_floor",
	.feature_table		= floor_features,
	.feature_table_size	= ARRAY_SIZE(floor_features),
	.id_table		= floor_ids,
	.probe			= floor_probe,
	.remove			= floor_remove,
};
module_virtio_driver(floor_driver);

MODULE_DESCRIPTION("The balloon device's own time");
MODULE_LICENSE("GPL");
