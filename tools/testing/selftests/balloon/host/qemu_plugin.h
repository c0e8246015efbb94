/* SPDX-License-Identifier: GPL-2.0 */
/* What is used of QEMU's plugin interface: Debian has no header for it. */
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

enum { INLINE_ADD };

typedef void translated_fn(uint64_t id, void *block);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn *fn);
void qemu_plugin_register_vcpu_tb_exec_inline(void *block, int operation,
					      void *counter, uint64_t value);
size_t qemu_plugin_tb_n_insns(const void *block);
uint64_t qemu_plugin_tb_vaddr(const void *block);

#endif
