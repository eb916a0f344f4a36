// The program in C that mlx5sim bench measures: it posts and polls with libibverbs as it is told
// on its standard input, and answers on its standard output what took how long. bench_go.go is the
// same program in Go; what is asked and answered stands there.
//
//	client plain|single|ex CPU
//
// Plain and single use ibv_poll_cq and ibv_post_send: they differ by what the environment
// says to libmlx5. Ex uses ibv_start_poll and ibv_wr_start on objects for one thread.
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <infiniband/verbs.h>

enum {
	MOST_QPS = 64,
	MOST_BATCH = 64,
	INLINE_BYTES = 64, // of what is timed
	SHORT_BYTES = 16,  // of what is posted to be completed
	CHUNK = 32,	   // requests a doorbell of what is not timed
	MOST_BLOCKS = 1 << 10,
	BUFFER_BYTES = 4096,
	TOO_LONG = 1 << 28, // empty polls in a row
};

static bool ex;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *buffer;
static union {
	struct ibv_cq *plain;
	struct ibv_cq_ex *ex;
} cq;
static struct ibv_qp *qps[MOST_QPS];
static struct ibv_qp_ex *qpx[MOST_QPS];
static int qp_count;
static uint64_t next_id = 1;
static uint64_t clock_cost;

// tally is what was polled.
struct tally {
	uint64_t sum;	 // of the ids
	uint64_t failed; // how many had a status
	unsigned any;	 // all statuses, or-ed
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	printf("error ");
	vprintf(format, args);
	printf("\n");
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

// Times of blocks. What interrupts some of them does not move the median.
static uint64_t took[MOST_BLOCKS];
static int blocks;

static void start_blocks(void) { blocks = 0; }

static void end_block(uint64_t begin)
{
	uint64_t t = now() - begin;
	if (blocks == MOST_BLOCKS)
		die("more than %d blocks", MOST_BLOCKS);
	took[blocks++] = t > clock_cost ? t - clock_cost : 0;
}

static uint64_t median(void)
{
	qsort(took, blocks, sizeof took[0], compare);
	return blocks ? took[blocks / 2] : 0;
}

// calibrate finds out what looking at the clock takes.
static void calibrate(void)
{
	start_blocks();
	for (int i = 0; i < MOST_BLOCKS; i++)
		end_block(now());
	clock_cost = median();
}

static void open_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || n < 1)
		die("no device");
	if (!(context = ibv_open_device(list[0])))
		die("open: %s", strerror(errno));
	ibv_free_device_list(list);
	if (!(pd = ibv_alloc_pd(context)))
		die("PD: %s", strerror(errno));
	buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED || !(mr = ibv_reg_mr(pd, buffer, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE)))
		die("MR: %s", strerror(errno));
}

static struct ibv_cq *the_cq(void) { return ex ? ibv_cq_ex_to_cq(cq.ex) : cq.plain; }

static void make_cq(int entries)
{
	if (ex) {
		struct ibv_cq_init_attr_ex a = {
			.cqe = entries - 1,
			.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
			.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		};
		cq.ex = ibv_create_cq_ex(context, &a);
	} else {
		cq.plain = ibv_create_cq(context, entries - 1, NULL, NULL, 0);
	}
	if (!the_cq() || the_cq()->cqe != entries - 1)
		die("CQ of %d entries: %s", entries, strerror(errno));
}

static void make_qp(int i, int depth)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = the_cq(),
		.recv_cq = the_cq(),
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE_BYTES},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	if (ex) {
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	if (!(qps[i] = ibv_create_qp_ex(context, &a)))
		die("QP with %d requests: %s", depth, strerror(errno));
	qpx[i] = ex ? ibv_qp_to_qp_ex(qps[i]) : NULL;

	struct ibv_port_attr port;
	if (ibv_query_port(context, 1, &port))
		die("port: %s", strerror(errno));
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qps[i]->qp_num, // nothing is sent
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = port.lid, .port_num = 1},
	};
	struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};
	if (ibv_modify_qp(qps[i], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(qps[i], &receive,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(qps[i], &send,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("connect: %s", strerror(errno));
}

static void setup(int count, int entries, int depth)
{
	if (count < 1 || count > MOST_QPS)
		die("%d QPs", count);
	make_cq(entries);
	qp_count = count;
	for (int i = 0; i < count; i++)
		make_qp(i, depth);
	printf("ok %u\n", qps[0]->qp_num);
}

static void teardown(void)
{
	for (int i = 0; i < qp_count; i++)
		if (ibv_destroy_qp(qps[i]))
			die("destroy QP: %s", strerror(errno));
	if (ibv_destroy_cq(the_cq()))
		die("destroy CQ: %s", strerror(errno));
	qp_count = 0;
	printf("ok\n");
}

// Requests that are posted again and again: only their ids change.
static struct ibv_sge sges[MOST_BATCH];
static struct ibv_send_wr wrs[MOST_BATCH];

static void prepare(int batch, int bytes)
{
	for (int i = 0; i < batch; i++) {
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = bytes};
		wrs[i] = (struct ibv_send_wr){
			.next = i + 1 < batch ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		};
	}
}

// send_plain posts n sends, batch at a time, as prepared.
static void send_plain(struct ibv_qp *qp, int batch, int n)
{
	for (; n > 0; n -= batch) {
		for (int i = 0; i < batch; i++)
			wrs[i].wr_id = next_id++;
		struct ibv_send_wr *bad;
		int err = ibv_post_send(qp, wrs, &bad);
		if (err)
			die("post: %s", strerror(err));
	}
}

// send_ex is send_plain with the calls for one request at a time.
static void send_ex(struct ibv_qp_ex *qp, int batch, int n, int bytes)
{
	for (; n > 0; n -= batch) {
		ibv_wr_start(qp);
		for (int i = 0; i < batch; i++) {
			qp->wr_id = next_id++;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(qp);
			ibv_wr_set_inline_data(qp, buffer, bytes);
		}
		int err = ibv_wr_complete(qp);
		if (err)
			die("post: %s", strerror(err));
	}
}

static void send_some(int i, int batch, int n, int bytes)
{
	if (ex)
		send_ex(qpx[i], batch, n, bytes);
	else
		send_plain(qps[i], batch, n);
}

static void post(int each)
{
	int batch = each % CHUNK ? 1 : CHUNK;
	prepare(batch, SHORT_BYTES);
	for (int i = 0; i < qp_count; i++)
		send_some(i, batch, each, SHORT_BYTES);
	printf("ok\n");
}

static void post_receives(int each)
{
	for (int i = 0; i < qp_count; i++) {
		for (int k = 0; k < each; k++) {
			struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = INLINE_BYTES, .lkey = mr->lkey};
			struct ibv_recv_wr wr = {.wr_id = next_id++, .sg_list = &sge, .num_sge = 1}, *bad;
			int err = ibv_post_recv(qps[i], &wr, &bad);
			if (err)
				die("post receive: %s", strerror(err));
		}
	}
	printf("ok\n");
}

static void time_sends(int batch, int lead, int n, int block)
{
	prepare(batch, INLINE_BYTES);
	send_some(0, batch, lead, INLINE_BYTES);
	start_blocks();
	for (; n > 0; n -= block) {
		uint64_t begin = now();
		send_some(0, batch, block, INLINE_BYTES);
		end_block(begin);
	}
	printf("ok %" PRIu64 "\n", median());
}

static void idle(unsigned *times)
{
	if (++*times > TOO_LONG)
		die("completions do not come");
}

static void __attribute__((noinline)) poll_plain(int batch, int n, struct tally *to)
{
	struct ibv_wc wcs[MOST_BATCH];
	struct tally t = *to;
	unsigned empty = 0;
	while (n > 0) {
		int k = ibv_poll_cq(cq.plain, batch, wcs);
		if (k < 0)
			die("poll: %d", k);
		if (k == 0)
			idle(&empty);
		for (int i = 0; i < k; i++) {
			t.sum += wcs[i].wr_id;
			t.failed += wcs[i].status != IBV_WC_SUCCESS;
			t.any |= wcs[i].status;
		}
		n -= k;
	}
	*to = t;
}

static void __attribute__((noinline)) poll_ex(int batch, int n, struct tally *to)
{
	struct ibv_poll_cq_attr attr = {};
	struct tally t = *to;
	unsigned empty = 0;
	while (n > 0) {
		int err = ibv_start_poll(cq.ex, &attr);
		if (err == ENOENT) {
			idle(&empty);
			continue;
		}
		int left = batch;
		do {
			if (err)
				die("poll: %s", strerror(err));
			t.sum += cq.ex->wr_id;
			t.failed += cq.ex->status != IBV_WC_SUCCESS;
			t.any |= cq.ex->status;
			n--;
		} while (--left > 0 && (err = ibv_next_poll(cq.ex)) != ENOENT);
		ibv_end_poll(cq.ex);
	}
	*to = t;
}

static void poll_some(int batch, int n, struct tally *t)
{
	if (ex)
		poll_ex(batch, n, t);
	else
		poll_plain(batch, n, t);
}

static void time_polls(int batch, int lead, int n, int block)
{
	struct tally t = {};
	poll_some(batch, lead, &t);
	start_blocks();
	for (; n > 0; n -= block) {
		uint64_t begin = now();
		poll_some(batch, block, &t);
		end_block(begin);
	}
	printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", median(), t.sum, t.failed, t.any == IBV_WC_WR_FLUSH_ERR);
}

static int __attribute__((noinline)) poll_empty(int batch, int n)
{
	struct ibv_wc wcs[MOST_BATCH];
	struct ibv_poll_cq_attr attr = {};
	int found = 0;
	if (ex)
		for (int i = 0; i < n; i++)
			found += ibv_start_poll(cq.ex, &attr) != ENOENT;
	else
		for (int i = 0; i < n; i++)
			found += ibv_poll_cq(cq.plain, batch, wcs) != 0;
	return found;
}

static void time_empty(int batch, int n, int block)
{
	start_blocks();
	for (; n > 0; n -= block) {
		uint64_t begin = now();
		int found = poll_empty(batch, block);
		end_block(begin);
		if (found)
			die("completions out of nothing");
	}
	printf("ok %" PRIu64 "\n", median());
}

int main(int argc, char **argv)
{
	if (argc != 3)
		die("arguments: FORM CPU");
	ex = !strcmp(argv[1], "ex");
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("processor %s: %s", argv[2], strerror(errno));
	// Pages of one size for all.
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		die("huge pages: %s", strerror(errno));
	calibrate();
	open_device();
	printf("ok\n");
	fflush(stdout);

	char line[128], what[16];
	while (fgets(line, sizeof line, stdin)) {
		int a = 0, b = 0, c = 0, d = 0;
		if (sscanf(line, "%15s %d %d %d %d", what, &a, &b, &c, &d) < 1)
			die("what?");
		if (!strcmp(what, "setup"))
			setup(a, b, c);
		else if (!strcmp(what, "post"))
			post(a);
		else if (!strcmp(what, "receives"))
			post_receives(a);
		else if (!strcmp(what, "polls") && a <= MOST_BATCH)
			time_polls(a, b, c, d);
		else if (!strcmp(what, "empty") && a <= MOST_BATCH)
			time_empty(a, b, c);
		else if (!strcmp(what, "sends") && a <= MOST_BATCH)
			time_sends(a, b, c, d);
		else if (!strcmp(what, "teardown"))
			teardown();
		else
			die("cannot %s", what);
		fflush(stdout);
	}
	return 0;
}
