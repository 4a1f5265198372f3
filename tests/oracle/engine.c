/*
 * engine - OpenZFS's own engine (libzpool) as a program of a few verbs, with no kernel module.
 *
 *   engine send IMAGE DATASET@SNAPSHOT FLAGS >STREAM
 *       Import the pool of which IMAGE is the only device (on a copy: it is written to), make the snapshot
 *       if it is not there, send it.  FLAGS: any of c (compressed), e (embedded), L (large blocks),
 *       w (raw), or - for none.
 *   engine receive POOL VERSION ASHIFT VDEV... -- [DATASET@SNAPSHOT=STREAM | PROPERTY=NUMBER]...
 *       Create POOL; in order, receive each stream, or set a property of the pool's root dataset; export.
 *       VDEV...: as for zpool create: [mirror|raidz1|raidz2|raidz3] FILE...
 *
 * It exists for what it is linked against: built for a big-endian machine and run under qemu-user, it makes
 * pools as such a machine does.  A received file system is one that the ZPL wrote, and the receiving engine
 * has put each directory, attribute and pointer into its own byte order.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/zfs_context.h>
#include <sys/dmu_objset.h>
#include <sys/dmu_recv.h>
#include <sys/dmu_send.h>
#include <sys/dsl_dataset.h>
#include <sys/dsl_prop.h>
#include <sys/fs/zfs.h>
#include <sys/spa.h>
#include <sys/spa_impl.h>
#include <sys/vdev_impl.h>
#include <sys/zfs_ioctl.h>
#include <sys/zfs_file.h>
#include <zfeature_common.h>

#define LABEL_NVLIST_OFFSET 16384
#define LABEL_NVLIST_SIZE (112 * 1024)

static void check(int e, const char *what)
{
	if (e != 0) {
		fprintf(stderr, "engine: %s: %s\n", what, strerror(e));
		exit(1);
	}
}

static nvlist_t *root_vdev(nvlist_t **top, uint_t n)
{
	nvlist_t *root = fnvlist_alloc();
	fnvlist_add_string(root, ZPOOL_CONFIG_TYPE, VDEV_TYPE_ROOT);
	fnvlist_add_uint64(root, ZPOOL_CONFIG_ID, 0);
	fnvlist_add_nvlist_array(root, ZPOOL_CONFIG_CHILDREN, top, n);
	return root;
}

/* Import the pool whose only device is the file `path`, by the config in its first label. */
static const char *import(const char *path)
{
	static char buf[LABEL_NVLIST_SIZE];
	nvlist_t *label, *top, *config = fnvlist_alloc();
	int fd = open(path, O_RDONLY);
	if (fd < 0 || pread(fd, buf, sizeof buf, LABEL_NVLIST_OFFSET) != sizeof buf)
		check(errno, path);
	close(fd);
	check(nvlist_unpack(buf, sizeof buf, &label, 0), "label");
	check(nvlist_lookup_nvlist(label, ZPOOL_CONFIG_VDEV_TREE, &top), "vdev_tree");
	const char *names[] = { ZPOOL_CONFIG_VERSION, ZPOOL_CONFIG_POOL_GUID, ZPOOL_CONFIG_POOL_TXG,
	    ZPOOL_CONFIG_POOL_STATE, ZPOOL_CONFIG_HOSTID };
	for (int i = 0; i < 5; i++) {
		uint64_t v;
		if (nvlist_lookup_uint64(label, names[i], &v) == 0)
			fnvlist_add_uint64(config, names[i], v);
	}
	char *pool = fnvlist_lookup_string(label, ZPOOL_CONFIG_POOL_NAME);
	fnvlist_add_string(config, ZPOOL_CONFIG_POOL_NAME, pool);
	fnvlist_add_string(top, ZPOOL_CONFIG_PATH, path);
	nvlist_remove_all(top, ZPOOL_CONFIG_PHYS_PATH);
	nvlist_remove_all(top, ZPOOL_CONFIG_DEVID);
	nvlist_t *root = root_vdev(&top, 1);
	fnvlist_add_uint64(root, ZPOOL_CONFIG_GUID, fnvlist_lookup_uint64(label, ZPOOL_CONFIG_POOL_GUID));
	fnvlist_add_nvlist(config, ZPOOL_CONFIG_VDEV_TREE, root);
	check(spa_import(pool, config, NULL, ZFS_IMPORT_NORMAL), "import");
	return pool;
}

static void send_snapshot(const char *image, char *name, const char *flags)
{
	const char *pool = import(image);
	char *at = strchr(name, '@');
	offset_t off = 0;
	objset_t *os;
	dmu_send_outparams_t out = { 0 };
	extern int send_to_stdout(objset_t *, void *, int, void *);
	if (at == NULL)
		check(EINVAL, name);
	if (dmu_objset_hold(name, FTAG, &os) == 0) {
		dmu_objset_rele(os, FTAG);
	} else {
		*at = '\0';
		check(dmu_objset_snapshot_one(name, at + 1), "snapshot");
		*at = '@';
	}
	out.dso_outfunc = send_to_stdout;
	check(dmu_send(name, NULL, strchr(flags, 'e') != NULL, strchr(flags, 'L') != NULL, strchr(flags, 'c') != NULL,
	    strchr(flags, 'w') != NULL, B_FALSE, 0, 0, NULL, 1, &off, &out), "send");
	check(fflush(stdout), "stdout");
	check(spa_export(pool, NULL, B_FALSE, B_FALSE), "export");
}

int send_to_stdout(objset_t *os, void *buf, int len, void *arg)
{
	return fwrite(buf, 1, len, stdout) == (size_t)len ? 0 : errno;
}

static void receive(const char *name, const char *path)
{
	char *tofs = strdup(name), *tosnap = strchr(tofs, '@');
	dmu_replay_record_t begin;
	dmu_recv_cookie_t cookie = { 0 };
	zfs_file_t *fp;
	offset_t off = sizeof begin;
	ssize_t resid;
	if (tosnap == NULL)
		check(EINVAL, name);
	*tosnap++ = '\0';
	check(zfs_file_open(path, O_RDONLY, 0, &fp), path);
	check(zfs_file_read(fp, &begin, sizeof begin, &resid), path);
	check(dmu_recv_begin(tofs, tosnap, &begin, B_TRUE, B_FALSE, NULL, NULL, NULL, &cookie, fp, &off), name);
	check(dmu_recv_stream(&cookie, &off), name);
	check(dmu_recv_end(&cookie, NULL), name);
	zfs_file_close(fp);
	free(tofs);
}

/* Called a disk, so that a kernel module, which sees the image as one, opens it; libzpool opens both alike. */
static nvlist_t *disk_vdev(const char *path, uint64_t ashift)
{
	nvlist_t *nv = fnvlist_alloc();
	fnvlist_add_string(nv, ZPOOL_CONFIG_TYPE, VDEV_TYPE_DISK);
	fnvlist_add_string(nv, ZPOOL_CONFIG_PATH, path);
	fnvlist_add_uint64(nv, ZPOOL_CONFIG_ASHIFT, ashift);
	return nv;
}

/* `args`: what follows ASHIFT; returns what follows the first "--" in it. */
static char **create(const char *pool, uint64_t version, uint64_t ashift, char **args)
{
	nvlist_t *leaf[64], *top[64], *props = fnvlist_alloc();
	uint_t nleaf = 0, ntop = 0;
	uint64_t parity = 0;
	const char *type = NULL;
	if (version != SPA_VERSION_FEATURES)
		fnvlist_add_uint64(props, zpool_prop_to_name(ZPOOL_PROP_VERSION), version);
	for (int i = 0; version == SPA_VERSION_FEATURES && i < SPA_FEATURES; i++) {
		char name[256];
		snprintf(name, sizeof name, "feature@%s", spa_feature_table[i].fi_uname);
		fnvlist_add_uint64(props, name, 0);
	}
	for (;; args++) {
		int end = strcmp(*args, "--") == 0, group = (*args)[0] != '/' && !end;
		if ((group || end) && type != NULL) {
			nvlist_t *nv = fnvlist_alloc();
			fnvlist_add_string(nv, ZPOOL_CONFIG_TYPE, type);
			if (parity != 0)
				fnvlist_add_uint64(nv, ZPOOL_CONFIG_NPARITY, parity);
			fnvlist_add_nvlist_array(nv, ZPOOL_CONFIG_CHILDREN, leaf, nleaf);
			fnvlist_add_uint64(nv, ZPOOL_CONFIG_ASHIFT, ashift);
			top[ntop++] = nv;
			nleaf = 0;
		}
		if (end)
			break;
		if (group) {
			int raidz = strncmp(*args, "raidz", 5) == 0;
			type = raidz ? VDEV_TYPE_RAIDZ : VDEV_TYPE_MIRROR;
			parity = raidz ? strtoull(*args + 5, NULL, 10) : 0;
		} else if (type != NULL) {
			leaf[nleaf++] = disk_vdev(*args, ashift);
		} else {
			top[ntop++] = disk_vdev(*args, ashift);
		}
	}
	for (uint_t i = 0; i < ntop; i++)
		fnvlist_add_uint64(top[i], ZPOOL_CONFIG_IS_LOG, 0);
	check(spa_create(pool, root_vdev(top, ntop), props, NULL, NULL), "create");
	return args + 1;
}

int main(int argc, char **argv)
{
	extern char *spa_config_path;
	spa_config_path = "/nonexistent/zpool.cache";
	dprintf_setup(&argc, argv);
	kernel_init(SPA_MODE_READ | SPA_MODE_WRITE);
	if (argc == 5 && strcmp(argv[1], "send") == 0) {
		send_snapshot(argv[2], argv[3], argv[4]);
	} else if (argc > 6 && strcmp(argv[1], "receive") == 0) {
		char **a = create(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), argv + 5);
		for (; *a != NULL; a++) {
			char *value = strchr(*a, '=');
			if (value == NULL)
				check(EINVAL, *a);
			*value++ = '\0';
			if (strchr(*a, '@') != NULL)
				receive(*a, value);
			else
				check(dsl_prop_set_int(argv[2], *a, ZPROP_SRC_LOCAL, strtoull(value, NULL, 10)), *a);
		}
		check(spa_export(argv[2], NULL, B_FALSE, B_FALSE), "export");
	} else {
		fprintf(stderr, "see the head of engine.c\n");
		return 2;
	}
	kernel_fini();
	return 0;
}
