// The program in C that rxevm bench -perf starts over and over: it opens a device and brings a
// queue pair to RTS, connected to itself. internal/rts is the same program in Go.
//
//	rts DEVICE PORT GIDINDEX [hold]
//
// It prints two times of CLOCK_MONOTONIC in ns: before it asked for a device, and with the queue
// pair in RTS. With hold it then waits for the end of its input, so that one can look at what it
// has made. The kernel cleans up behind it.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, DEPTH = 16, COMPLETIONS = 32 };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct ibv_context *open_device(const char *name)
{
	int n;
	struct ibv_device **all = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;

	if (!all)
		fail("ibv_get_device_list");
	for (int i = 0; i < n && !c; i++)
		if (strcmp(ibv_get_device_name(all[i]), name) == 0)
			c = ibv_open_device(all[i]);
	if (!c)
		fail(name);
	ibv_free_device_list(all);
	return c;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: rts DEVICE PORT GIDINDEX [hold]\n");
		return 2;
	}
	long long begin = now();
	int port = atoi(argv[2]), index = atoi(argv[3]);
	struct ibv_context *c = open_device(argv[1]);
	struct ibv_port_attr pa;
	union ibv_gid gid;
	if (ibv_query_port(c, port, &pa))
		fail("ibv_query_port");
	if (ibv_query_gid(c, port, index, &gid))
		fail("ibv_query_gid");

	struct ibv_pd *pd = ibv_alloc_pd(c);
	if (!pd)
		fail("ibv_alloc_pd");
	void *mem;
	if (posix_memalign(&mem, BYTES, BYTES))
		fail("posix_memalign");
	if (!ibv_reg_mr(pd, mem, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
		fail("ibv_reg_mr");
	struct ibv_cq *cq = ibv_create_cq(c, COMPLETIONS, NULL, NULL, 0);
	if (!cq)
		fail("ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	if (!qp)
		fail("ibv_create_qp");

	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_modify_qp to INIT");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = pa.active_mtu, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .port_num = port, .is_global = 1, .grh = { .dgid = gid, .sgid_index = index, .hop_limit = 64 } },
	};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("ibv_modify_qp to RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1 };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("ibv_modify_qp to RTS");
	long long ready = now();

	printf("%lld %lld\n", begin, ready);
	fflush(stdout);
	if (argc > 4) {
		char b;
		while (read(0, &b, 1) > 0)
			;
	}
	return 0;
}
