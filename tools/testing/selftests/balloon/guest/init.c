// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's first process.
 *
 * Mounts what programs expect to find, gives the host shells on the
 * virtio-serial ports vb.sh0, vb.sh1, ..., and a person a shell on the
 * terminal that "vb.tty=" on the kernel command line names. Modules are loaded
 * by the host through a shell, not here: what dies before the first shell
 * answers can then only be the kernel or the emulator, never the driver.  The
 * exception is the one that the ports themselves need, named by "vb.insmod=".
 *
 * A command arrives on a port as bytes up to a NUL. It is run by /bin/sh, what
 * it prints goes to the port, and a record separator (0x1e) with "RC=<n>" and
 * a newline ends it. A byte 0x03 in the meantime kills it. Each server says
 * 0x1e "READY" first.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORTS_CLASS	"/sys/class/virtio-ports"
#define PORTS_DIR	"/dev/virtio-ports"
#define COMMAND_MAX	65536
#define KILL_BYTE	0x03

static const struct {
	const char *type;
	const char *where;
} mounts[] = {
	{ "proc", "/proc" },
	{ "sysfs", "/sys" },
	{ "devtmpfs", "/dev" },
	{ "devpts", "/dev/pts" },
	{ "tmpfs", "/tmp" },
	{ "debugfs", "/sys/kernel/debug" },
	{ "tracefs", "/sys/kernel/tracing" },
	{ NULL, NULL }
};

static void put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

static void mount_all(void)
{
	int i;

	for (i = 0; mounts[i].type; i++) {
		mkdir(mounts[i].where, 0755);
		if (mount(mounts[i].type, mounts[i].where, mounts[i].type, 0, NULL))
			perror(mounts[i].where);
	}
}

/* Whatever the kernel opened for us was there before /dev was mounted. */
static void use_terminal(const char *path)
{
	int fd = open(path, O_RDWR | O_NOCTTY);

	if (fd < 0)
		return;
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(fd, 2);
	if (fd > 2)
		close(fd);
}

static void install_busybox(void)
{
	pid_t pid = fork();

	if (!pid) {
		execl("/bin/busybox", "busybox", "--install", "-s", "/bin", NULL);
		perror("/bin/busybox");
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

static void load_module(const char *name)
{
	char path[PATH_MAX];
	int fd;

	if (!name)
		return;
	snprintf(path, sizeof(path), "/mod/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* There is no udev: name the ports ourselves. */
static void link_ports(void)
{
	struct dirent *entry;
	DIR *dir = opendir(PORTS_CLASS);

	while (dir && (entry = readdir(dir))) {
		char path[PATH_MAX], name[64] = "", node[PATH_MAX];
		FILE *file;

		snprintf(path, sizeof(path), PORTS_CLASS "/%s/name", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%63s", name) == 1) {
			snprintf(node, sizeof(node), "../%s", entry->d_name);
			snprintf(path, sizeof(path), PORTS_DIR "/%s", name);
			symlink(node, path);
		}
		fclose(file);
	}
	if (dir)
		closedir(dir);
}

/* Ports appear one by one while the host announces them. */
static int wait_for_ports(int count)
{
	int tries, i;

	for (tries = 0; tries < 200; tries++) {
		link_ports();
		for (i = 0; i < count; i++) {
			char path[64];

			snprintf(path, sizeof(path), PORTS_DIR "/vb.sh%d", i);
			if (access(path, F_OK))
				break;
		}
		if (i == count)
			return 0;
		usleep(50000);
	}
	return -1;
}

/* The value of an option on the kernel command line, or NULL. */
static const char *option(const char *name)
{
	static char line[4096];
	size_t len = strlen(name);
	char *word;
	FILE *file = fopen("/proc/cmdline", "r");

	if (!file || !fgets(line, sizeof(line), file))
		line[0] = 0;
	if (file)
		fclose(file);
	for (word = strtok(line, "\n "); word; word = strtok(NULL, "\n "))
		if (!strncmp(word, name, len))
			return word + len;
	return NULL;
}

/* The next command: bytes up to a NUL. Stray kill bytes are for nobody. */
static char *read_command(int fd)
{
	static char command[COMMAND_MAX];
	size_t used = 0;

	while (used < sizeof(command)) {
		ssize_t got = read(fd, command + used, 1);

		if (got <= 0) {
			usleep(20000);	/* the host is not connected */
			continue;
		}
		if (!command[used])
			return command;
		if (command[used] != KILL_BYTE)
			used++;
	}
	return "echo the command is too long; false";
}

static pid_t start_command(int fd, char *command)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setsid();
	put_file("/proc/self/oom_score_adj", "0");
	dup2(fd, 1);
	dup2(fd, 2);
	close(fd);
	execl("/bin/sh", "sh", "-c", command, NULL);
	perror("/bin/sh");
	_exit(127);
}

/* Wait for the command; kill it and all it started if the host says so. */
static int finish_command(int fd, pid_t pid)
{
	struct pollfd polled[2] = {
		{ .fd = pidfd_open(pid, 0), .events = POLLIN },
		{ .fd = fd, .events = POLLIN },
	};
	int status = 0;
	char byte;

	while (!(polled[0].revents & POLLIN)) {
		if (poll(polled, 2, -1) < 0)
			continue;
		if (polled[1].revents & POLLIN && read(fd, &byte, 1) == 1 &&
		    byte == KILL_BYTE)
			kill(-pid, SIGKILL);
		else if (polled[1].revents & POLLHUP)
			usleep(20000);
	}
	close(polled[0].fd);
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void serve_port(int number)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), PORTS_DIR "/vb.sh%d", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		perror(path);
		_exit(1);
	}
	dprintf(fd, "\x1eREADY\n");
	for (;;) {
		char *command = read_command(fd);
		pid_t pid = start_command(fd, command);

		dprintf(fd, "\x1eRC=%d\n", finish_command(fd, pid));
	}
}

static void serve_ports(int count)
{
	int i;

	for (i = 0; i < count; i++) {
		if (fork())
			continue;
		/* The out-of-memory tests must not lose their own ears. */
		put_file("/proc/self/oom_score_adj", "-1000");
		use_terminal("/dev/null");
		serve_port(i);
	}
}

/* A login shell for a person; when it ends, so does the guest. */
static void serve_terminal(const char *name)
{
	char path[64];
	pid_t pid;

	if (!name || fork())
		return;
	pid = fork();
	if (!pid) {
		setsid();
		snprintf(path, sizeof(path), "/dev/%s", name);
		use_terminal(path);
		ioctl(0, TIOCSCTTY, 1);
		execl("/bin/sh", "-sh", NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

int main(void)
{
	const char *text;
	int ports;

	mount_all();
	use_terminal("/dev/console");
	mkdir(PORTS_DIR, 0755);
	mkdir("/root", 0700);
	sethostname("guest", 5);
	setenv("PATH", "/bin", 1);
	setenv("HOME", "/root", 1);
	setenv("ENV", "/etc/profile", 1);
	install_busybox();
	load_module(option("vb.insmod="));

	text = option("vb.ports=");
	ports = text ? atoi(text) : 0;
	if (wait_for_ports(ports))
		printf("init: the ports vb.sh* did not come\n");
	serve_ports(ports);
	serve_terminal(option("vb.tty="));
	printf("READY\n");
	for (;;)
		if (wait(NULL) < 0)
			pause();
}
