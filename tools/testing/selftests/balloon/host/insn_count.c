// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's emulation: how many instructions the guest has executed.
 *
 * qemu -plugin insn_count.so,file=PATH keeps the number, 64 bits in the host's
 * byte order, in the first eight bytes of a file that anybody may read
 * meanwhile. Debian has no header for plugins; what is used of QEMU's plugin
 * interface is declared here.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT	__attribute__((visibility("default")))
#define OPTION	"file="

enum { INLINE_ADD };

typedef void translated_fn(uint64_t id, void *block);

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn *fn);
extern void qemu_plugin_register_vcpu_tb_exec_inline(void *block, int operation,
						     void *counter, uint64_t value);
extern size_t qemu_plugin_tb_n_insns(const void *block);

EXPORT int qemu_plugin_version = 1;

static uint64_t *executed;

/* With two CPUs a few additions may be lost: they are not atomic. */
static void translated(uint64_t id, void *block)
{
	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, executed,
						 qemu_plugin_tb_n_insns(block));
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	int fd;

	(void)info;
	if (argc != 1 || strncmp(argv[0], OPTION, strlen(OPTION)))
		return -1;
	fd = open(argv[0] + strlen(OPTION), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*executed)))
		return -1;
	executed = mmap(NULL, sizeof(*executed), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (executed == MAP_FAILED)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
