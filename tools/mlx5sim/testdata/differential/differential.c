/*
 * Carries out a script of verbs with libibverbs. Package tools/mlx5sim makes the scripts and has
 * a twin of this program in Go; differential_script.go says what the words mean. All numbers are
 * in decimal, and objects are called by the order in which they were made, from 0, each kind
 * by itself.
 *
 * Behind words that ring a doorbell it asks for the state of queue pair 0, which does nothing else:
 * a call of the kernel's, before which the device has done all that was posted. A step ends
 * there. What the program sees goes to standard output.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>

enum { MOST = 4096, MOST_SGE = 32, MOST_WR = 64, MOST_WC = 1024 };

/* Kinds of send requests, and where their remote key comes from. */
enum { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, FAA, SEND_INV, LOCAL_INV, BIND };
enum { KEY_MR, KEY_MW, KEY_BAD };
enum { SIGNALED = 1, FENCE = 2, SOLICITED = 4, INLINE = 8 };

static struct ibv_context *ctx;
static struct ibv_pd *pds[MOST];
static struct ibv_mr *mrs[MOST];
static struct ibv_mw *mws[MOST];
static struct ibv_cq *cqs[MOST];
static struct ibv_comp_channel *channels[MOST];
static struct ibv_srq *srqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_ah *ahs[MOST];
static int npd, nmr, nmw, ncq, nsrq, nqp, nah;

static uint8_t *data;
static size_t data_len;
static union ibv_gid gid;
static struct ibv_port_attr port;
static int gid_index;
static uint64_t next_id;
static int step;

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *format, ...)
{
	va_list args;
	int e = errno;

	fflush(stdout);
	fprintf(stderr, "step %d: ", step);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (errno %d, %s)\n", e, strerror(e));
	exit(1);
}

/* check is for calls that return an errno. */
static void check(const char *what, int err)
{
	if (err) {
		errno = err > 0 ? err : errno;
		fail("%s", what);
	}
}

static void *made(const char *what, void *object)
{
	if (!object)
		fail("%s", what);
	return object;
}

/* num reads the next number of the script. */
static uint64_t num(void)
{
	uint64_t v = 0;
	int c = getchar_unlocked(), digits = 0;

	while (c == ' ')
		c = getchar_unlocked();
	for (; c >= '0' && c <= '9'; c = getchar_unlocked(), digits++)
		v = v * 10 + (c - '0');
	if (!digits)
		fail("the script has no number where one is due");
	ungetc(c, stdin);
	return v;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	check("ibv_modify_qp", ibv_modify_qp(qp, a, mask | IBV_QP_STATE));
}

static int qp_access[MOST];
static uint32_t qp_qkey[MOST];

static void init(int i)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (qps[i]->qp_type == IBV_QPT_UD) {
		a.qkey = qp_qkey[i];
		modify(qps[i], &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
		modify(qps[i], &a, 0);
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
		modify(qps[i], &a, IBV_QP_SQ_PSN);
		return;
	}
	a.qp_access_flags = qp_access[i];
	modify(qps[i], &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void connect_qp(void)
{
	struct ibv_qp *qp = qps[num()], *peer = qps[num()];
	uint32_t psn = num(), peer_psn = num();
	int rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = num(),
		.dest_qp_num = peer->qp_num,
		.rq_psn = peer_psn,
		.max_dest_rd_atomic = rc ? 16 : 0,
		.min_rnr_timer = rc ? 12 : 0,
		.ah_attr = {
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 },
			.dlid = port.lid,
			.is_global = 1,
			.port_num = 1,
		},
	};

	modify(qp, &a, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = psn };
	if (rc) {
		a.timeout = 14;
		a.retry_cnt = 6;
		a.rnr_retry = 0;
		a.max_rd_atomic = 16;
	}
	modify(qp, &a, IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

static void make_qp(void)
{
	struct ibv_qp_init_attr a = { .qp_type = num() };
	struct ibv_pd *pd = pds[num()];
	uint64_t srq;

	a.send_cq = cqs[num()];
	a.recv_cq = cqs[num()];
	srq = num(); /* one more than its number, or 0 */
	a.srq = srq ? srqs[srq - 1] : NULL;
	a.cap.max_send_wr = num();
	a.cap.max_recv_wr = num();
	a.cap.max_send_sge = num();
	a.cap.max_recv_sge = num();
	a.cap.max_inline_data = num();
	qp_access[nqp] = num();
	qp_qkey[nqp] = num();
	qps[nqp] = made("ibv_create_qp", ibv_create_qp(pd, &a));
	init(nqp++);
}

static void make_cq(void)
{
	int depth = num(), events = num();

	if (events) {
		struct ibv_comp_channel *c = made("ibv_create_comp_channel", ibv_create_comp_channel(ctx));

		if (fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK))
			fail("fcntl");
		channels[ncq] = c;
	}
	cqs[ncq] = made("ibv_create_cq", ibv_create_cq(ctx, depth, NULL, channels[ncq], 0));
	ncq++;
}

static void make_srq(void)
{
	struct ibv_pd *pd = pds[num()];
	struct ibv_srq_init_attr a = { .attr.max_wr = num() };

	a.attr.max_sge = num();
	srqs[nsrq++] = made("ibv_create_srq", ibv_create_srq(pd, &a));
}

static void make_mr(void)
{
	struct ibv_pd *pd = pds[num()];
	size_t off = num(), len = num();

	mrs[nmr++] = made("ibv_reg_mr", ibv_reg_mr(pd, data + off, len, (unsigned int)num()));
}

static void make_ah(void)
{
	struct ibv_pd *pd = pds[num()];
	struct ibv_ah_attr a = {
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 },
		.dlid = port.lid,
		.is_global = 1,
		.port_num = 1,
	};

	a.sl = num();
	a.grh.traffic_class = num();
	a.grh.flow_label = num();
	ahs[nah++] = made("ibv_create_ah", ibv_create_ah(pd, &a));
}

static int sges(struct ibv_sge *s)
{
	int n = num();

	for (int i = 0; i < n; i++) {
		struct ibv_mr *mr = mrs[num()];

		s[i].addr = (uintptr_t)data + num();
		s[i].length = num();
		s[i].lkey = mr->lkey;
	}
	return n;
}

static void post_send(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[SEND] = IBV_WR_SEND, [SEND_IMM] = IBV_WR_SEND_WITH_IMM, [WRITE] = IBV_WR_RDMA_WRITE,
		[WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM, [READ] = IBV_WR_RDMA_READ,
		[CAS] = IBV_WR_ATOMIC_CMP_AND_SWP, [FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[SEND_INV] = IBV_WR_SEND_WITH_INV, [LOCAL_INV] = IBV_WR_LOCAL_INV, [BIND] = IBV_WR_BIND_MW,
	};
	static struct ibv_sge s[MOST_WR][MOST_SGE];
	struct ibv_send_wr wr[MOST_WR] = {}, *bad, *bound = NULL;
	struct ibv_qp *qp = qps[num()];
	int n = num();

	for (int i = 0; i < n; i++) {
		struct ibv_send_wr *w = &wr[i];
		int kind = num(), flags = num();
		uint64_t remote, imm, one, two;
		uint32_t key = 0;
		int from, of;

		w->wr_id = next_id++;
		w->opcode = opcodes[kind];
		w->next = i + 1 < n ? w + 1 : NULL;
		w->send_flags = (flags & SIGNALED ? IBV_SEND_SIGNALED : 0) | (flags & FENCE ? IBV_SEND_FENCE : 0) |
				(flags & SOLICITED ? IBV_SEND_SOLICITED : 0) | (flags & INLINE ? IBV_SEND_INLINE : 0);
		w->num_sge = sges(s[i]);
		w->sg_list = s[i];
		imm = num();
		from = num();
		of = num();
		remote = (uintptr_t)data + num();
		one = num();
		two = num();
		if (qp->qp_type == IBV_QPT_UD)
			; /* it names no memory of the peer's */
		else if (from == KEY_MR)
			key = mrs[of]->rkey;
		else if (from == KEY_MW)
			key = mws[of]->rkey;
		else
			key = mrs[of]->rkey ^ 0xff00;
		switch (kind) {
		case SEND_IMM:
		case WRITE_IMM:
			w->imm_data = htonl(imm);
			break;
		case SEND_INV:
			w->invalidate_rkey = key;
			break;
		case LOCAL_INV:
			w->invalidate_rkey = key;
			break;
		case BIND:
			w->bind_mw.mw = mws[of];
			w->bind_mw.rkey = ibv_inc_rkey(mws[of]->rkey);
			w->bind_mw.bind_info.mr = mrs[one];
			w->bind_mw.bind_info.addr = remote;
			w->bind_mw.bind_info.length = imm;
			w->bind_mw.bind_info.mw_access_flags = two;
			bound = w;
			break;
		}
		switch (kind) {
		case WRITE:
		case WRITE_IMM:
		case READ:
			w->wr.rdma.remote_addr = remote;
			w->wr.rdma.rkey = key;
			break;
		case CAS:
		case FAA:
			w->wr.atomic.remote_addr = remote;
			w->wr.atomic.rkey = key;
			w->wr.atomic.compare_add = one;
			w->wr.atomic.swap = two;
			break;
		}
		if (qp->qp_type == IBV_QPT_UD) {
			w->wr.ud.ah = ahs[of];
			w->wr.ud.remote_qpn = qps[one]->qp_num;
			w->wr.ud.remote_qkey = two;
		}
	}
	check("ibv_post_send", ibv_post_send(qp, wr, &bad));
	if (bound) /* one at most in a word */
		bound->bind_mw.mw->rkey = bound->bind_mw.rkey;
}

static void post_recv(struct ibv_qp *qp, struct ibv_srq *srq)
{
	static struct ibv_sge s[MOST_WR][MOST_SGE];
	struct ibv_recv_wr wr[MOST_WR] = {}, *bad;
	int n = num();

	for (int i = 0; i < n; i++) {
		wr[i].wr_id = next_id++;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].num_sge = sges(s[i]);
		wr[i].sg_list = s[i];
	}
	if (srq)
		check("ibv_post_srq_recv", ibv_post_srq_recv(srq, wr, &bad));
	else
		check("ibv_post_recv", ibv_post_recv(qp, wr, &bad));
}

/* show prints what verbs say of a completion, and nothing that they leave open. */
static void show(uint64_t cq, const struct ibv_wc *w)
{
	int type = -1, number = -1;

	for (int i = 0; i < nqp; i++)
		if (qps[i] && qps[i]->qp_num == w->qp_num) {
			type = qps[i]->qp_type;
			number = i;
		}
	printf("%d cq %" PRIu64 ": id %" PRIu64 " qp %d status %d", step, cq, w->wr_id, number, w->status);
	if (w->status != IBV_WC_SUCCESS) {
		printf(" vendor 0x%x", w->vendor_err);
	} else {
		printf(" opcode %d", w->opcode);
		if (w->opcode & IBV_WC_RECV || w->opcode == IBV_WC_RDMA_READ || w->opcode == IBV_WC_COMP_SWAP || w->opcode == IBV_WC_FETCH_ADD)
			printf(" bytes %u", w->byte_len);
		/* libmlx5 says so of send requests too, with nothing to show for it. */
		if (w->wc_flags & IBV_WC_WITH_IMM && w->opcode & IBV_WC_RECV)
			printf(" imm %#x", ntohl(w->imm_data));
		if (w->wc_flags & IBV_WC_WITH_INV)
			printf(" invalidated %#x", w->invalidated_rkey);
		if (type == IBV_QPT_UD && w->opcode & IBV_WC_RECV)
			printf(" from %u lid %u grh %d", w->src_qp, w->slid, w->wc_flags & IBV_WC_GRH ? 1 : 0);
		/* On RoCE libmlx5 says something else in the bits of the service level. */
		if (type == IBV_QPT_UD && w->opcode & IBV_WC_RECV && w->slid)
			printf(" sl %u", w->sl);
	}
	putchar('\n');
}

static void poll_cq(uint64_t cq, int most)
{
	static struct ibv_wc wc[MOST_WC];
	int n = ibv_poll_cq(cqs[cq], most, wc);

	if (n < 0)
		fail("ibv_poll_cq");
	printf("%d cq %" PRIu64 " has %d\n", step, cq, n);
	for (int i = 0; i < n; i++)
		show(cq, &wc[i]);
}

static void event(void)
{
	uint64_t cq = num();
	struct ibv_cq *of;
	void *context;

	if (ibv_get_cq_event(channels[cq], &of, &context) == 0) {
		ibv_ack_cq_events(of, 1);
		printf("%d cq %" PRIu64 " has an event\n", step, cq);
	} else if (errno == EAGAIN) {
		printf("%d cq %" PRIu64 " has no event\n", step, cq);
	} else {
		fail("ibv_get_cq_event");
	}
}

static void destroy(void)
{
	int kind = getchar_unlocked();
	uint64_t i = num();

	switch (kind) {
	case 'Q':
		check("ibv_destroy_qp", ibv_destroy_qp(qps[i]));
		qps[i] = NULL;
		break;
	case 'C':
		check("ibv_destroy_cq", ibv_destroy_cq(cqs[i]));
		if (channels[i])
			check("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channels[i]));
		break;
	case 'S':
		check("ibv_destroy_srq", ibv_destroy_srq(srqs[i]));
		break;
	case 'A':
		check("ibv_destroy_ah", ibv_destroy_ah(ahs[i]));
		break;
	case 'W':
		check("ibv_dealloc_mw", ibv_dealloc_mw(mws[i]));
		break;
	case 'M':
		check("ibv_dereg_mr", ibv_dereg_mr(mrs[i]));
		break;
	case 'P':
		check("ibv_dealloc_pd", ibv_dealloc_pd(pds[i]));
		break;
	default:
		fail("the script destroys a %c", kind);
	}
}

static void begin(void)
{
	uint64_t base = num();
	int n;
	struct ibv_device **list;

	data_len = num();
	gid_index = num();
	data = mmap((void *)(uintptr_t)base, data_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (data == MAP_FAILED || (uintptr_t)data != base)
		fail("mmap at %#" PRIx64, base);
	for (size_t i = 0; i < data_len; i++)
		data[i] = i * 131 + (i >> 8);
	list = ibv_get_device_list(&n);
	if (!list || n != 1)
		fail("ibv_get_device_list: there are %d devices, not 1", n);
	ctx = made("ibv_open_device", ibv_open_device(list[0]));
	ibv_free_device_list(list);
	check("ibv_query_port", ibv_query_port(ctx, 1, &port));
	check("ibv_query_gid", ibv_query_gid(ctx, 1, gid_index, &gid));
}

/* digest prints a sum of the data: FNV-1a of 64 bits. */
static void digest(void)
{
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < data_len; i++)
		h = (h ^ data[i]) * 1099511628211u;
	printf("%d data %016" PRIx64 "\n", step, h);
}

static void word(int c)
{
	static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } };
	struct ibv_modify_cq_attr m = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_qp_attr a = {};
	struct ibv_srq_attr s = {};
	uint64_t i;

	switch (c) {
	case 'B': begin(); break;
	case 'P': pds[npd++] = made("ibv_alloc_pd", ibv_alloc_pd(ctx)); break;
	case 'M': make_mr(); break;
	case 'C': make_cq(); break;
	case 'S': make_srq(); break;
	case 'Q': make_qp(); break;
	case 'A': make_ah(); break;
	case 'W': mws[nmw++] = made("ibv_alloc_mw", ibv_alloc_mw(pds[num()], IBV_MW_TYPE_2)); break;
	case 'N': connect_qp(); break;
	case 'I': init(num()); break;
	case 'X':
		i = num();
		a.qp_state = num();
		modify(qps[i], &a, 0);
		break;
	case 's': post_send(); break;
	case 'r': i = num(); post_recv(qps[i], NULL); break;
	case 'u': i = num(); post_recv(NULL, srqs[i]); break;
	case 'p': i = num(); poll_cq(i, num()); break;
	case 'a':
		i = num();
		check("ibv_req_notify_cq", ibv_req_notify_cq(cqs[i], num()));
		break;
	case 'e': event(); break;
	case 'z':
		i = num();
		check("ibv_resize_cq", ibv_resize_cq(cqs[i], num()));
		poll_cq(i, 1);
		break;
	case 'l':
		i = num();
		s.srq_limit = num();
		check("ibv_modify_srq", ibv_modify_srq(srqs[i], &s, IBV_SRQ_LIMIT));
		break;
	case 'o':
		i = num();
		m.moderate.cq_count = num();
		check("ibv_modify_cq", ibv_modify_cq(cqs[i], &m));
		break;
	case 'g':
		i = num();
		if (num())
			check("ibv_attach_mcast", ibv_attach_mcast(qps[i], &group, 0));
		else
			check("ibv_detach_mcast", ibv_detach_mcast(qps[i], &group, 0));
		break;
	case 'R':
		i = num();
		check("ibv_rereg_mr", ibv_rereg_mr(mrs[i], IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, mrs[i]->pd, NULL, 0, num()));
		break;
	case 'd': destroy(); break;
	case 'h': digest(); break;
	default: fail("the script has the word %c", c);
	}
}

int main(void)
{
	static char buffer[1 << 16];
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int c;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	while ((c = getchar_unlocked()) != EOF) {
		if (c == '\n' || c == ' ')
			continue;
		word(c);
		if (c == 's' || c == 'a') {
			check("ibv_query_qp", ibv_query_qp(qps[0], &attr, IBV_QP_STATE, &init_attr));
			step++;
		}
	}
	if (ibv_close_device(ctx))
		fail("ibv_close_device");
	return 0;
}
