/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Fixed-point helpers: the only place where numbers are scaled.
 *
 * Three kinds of number appear in the control laws, and each has one form.
 *
 * 1. Times. A tick is 2^-28 s (3.7 ns), the unit of the wire formats. Clocks
 *    are in nanoseconds. 1 ns = 2^28 / 10^9 ticks = 2^19 / 5^9 ticks.
 *
 * 2. Quotients of sums, such as d = sum_rtt_x / sum_x or y = traffic / time,
 *    span more than 100 powers of two. They are `struct xcp_num`: m * 2^e with
 *    a 32-bit mantissa, 2^31 <= m < 2^32 (or m = 0). One operation adds at
 *    most 2^-31 of relative error. Used once per control interval.
 *
 * 3. A pool divided among packets: each packet takes part / total of a pool,
 *    part being its X (or its size) and total the sum over an interval. That
 *    is `struct xcp_ratio`: pool * 2^shift / total in 64 bits, so that a
 *    packet's cut is one multiplication and one shift:
 *
 *        cut = part * m >> shift             while part < total
 *        cut = pool                          otherwise (the caller's cap)
 *
 *    With pool < 2^44 and part < 2^36 the product stays below 2^64:
 *      total <  2^37: shift = 20, part * m < total * pool * 2^20 / total
 *      total >= 2^37: m < 2^28, because shift grows with log2(total)
 *    The relative error of m is at most 2^-26.
 *
 * No floating point, no 128-bit type, no signed division: BPF has none.
 */
#ifndef XCP_FIXED_H
#define XCP_FIXED_H

#include <stdbool.h>
#include <stdint.h>

/* Empty where the functions are compiled once, for other languages to call. */
#ifndef XCP_INLINE
#define XCP_INLINE static inline __attribute__((always_inline))
#endif
/*
 * Marks pure functions that are called often and have many paths. The BPF
 * verifier then checks these paths once and not again at each call.
 */
#ifdef __bpf__
#define XCP_CALL __attribute__((noinline))
#else
#define XCP_CALL XCP_INLINE
#endif
#define XCP_LIKELY(c) __builtin_expect(!!(c), 1)
#define XCP_UNLIKELY(c) __builtin_expect(!!(c), 0)

#define XCP_NSEC_PER_SEC 1000000000ULL
#define XCP_TICK_SHIFT 28
#define XCP_TICKS_PER_SEC (1ULL << XCP_TICK_SHIFT)
/* Longer times count as this: 64 s. */
#define XCP_TICKS_MAX ((1ULL << 34) - 1)
#define XCP_NS_MAX (64 * XCP_NSEC_PER_SEC - 1)

/* Pools and rates inside the router are below this, in their own unit. */
#define XCP_POOL_BITS 44

/* The fraction num / den in units of 2^-32. */
#define XCP_Q32(num, den) ((uint32_t)(((uint64_t)(num) << 32) / (den)))

XCP_INLINE uint64_t xcp_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

XCP_INLINE uint64_t xcp_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* |v|: BPF has no signed division */
XCP_INLINE uint64_t xcp_abs(int64_t v)
{
	return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

/* The inverse of xcp_abs: `size`, negative if `down`. */
XCP_INLINE int64_t xcp_signed(uint64_t size, bool down)
{
	return down ? -(int64_t)size : (int64_t)size;
}

/* v / n, rounded towards 0 */
XCP_INLINE int64_t xcp_part(int64_t v, uint32_t n)
{
	uint64_t size = xcp_abs(v);

	return xcp_signed(n > 1 ? size / n : size, v < 0);
}

/* a - b, or 0 if that is negative */
XCP_INLINE uint64_t xcp_excess(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Nanoseconds to ticks, at most 64 s. */
XCP_INLINE uint64_t xcp_ns_to_ticks(uint64_t ns)
{
	return (xcp_min(ns, XCP_NS_MAX) << 19) / 1953125;
}

/* Ticks to nanoseconds, at most 64 s. */
XCP_INLINE uint64_t xcp_ticks_to_ns(uint64_t ticks)
{
	return (xcp_min(ticks, XCP_TICKS_MAX) * 1953125) >> 19;
}

/*
 * Hides a value from the compiler. The BPF verifier follows every branch into
 * which the compiler turns a comparison; arithmetic on an unknown value has
 * one path.
 */
#ifdef __bpf__
#define XCP_OPAQUE(v) __asm__ volatile("" : "+r"(v))
#else
#define XCP_OPAQUE(v) ((void)(v))
#endif

/*
 * The same for a value in memory. The verifier forgets the value too, unless
 * it is on the stack, the only memory whose contents the verifier tracks.
 */
#ifdef __bpf__
#define XCP_FORGET(v) __asm__ volatile("" : "+m"(v))
#else
#define XCP_FORGET(v) ((void)(v))
#endif

/*
 * Counts i from 0 to n - 1. BPF uses its own loop, because the verifier
 * follows each round of a C loop.
 */
#ifdef __bpf__
#define XCP_FOR(i, n) bpf_for(i, 0, n)
#else
#define XCP_FOR(i, n) for ((i) = 0; (i) < (n); (i)++)
#endif

/* 1 if any bit of v from `bit` on is set, else 0; v has up to 2 * bit bits */
XCP_INLINE uint64_t xcp_any_from(uint64_t v, uint32_t bit)
{
	uint64_t high = v >> bit;

	XCP_OPAQUE(high);
	return (0 - high) >> 63;
}

/* Number of bits of v: floor(log2(v)) + 1, and 0 for 0. */
XCP_CALL uint32_t xcp_bits(uint64_t v)
{
	uint64_t step, bits;

	bits = xcp_any_from(v, 32) << 5;
	v >>= bits;
	step = xcp_any_from(v, 16) << 4;
	v >>= step;
	bits += step;
	step = xcp_any_from(v, 8) << 3;
	v >>= step;
	bits += step;
	step = xcp_any_from(v, 4) << 2;
	v >>= step;
	bits += step;
	step = xcp_any_from(v, 2) << 1;
	v >>= step;
	/* v is 0 to 3, which has 0, 1, 2 or 2 bits */
	return (uint32_t)(bits + step + v - (v >> 1 & v));
}

/* v * q / 2^32 for v < 2^48; error below 2 units */
XCP_INLINE uint64_t xcp_mul_q32(uint64_t v, uint32_t q)
{
	return (((v >> 16) * q) >> 16) + (((v & 0xffff) * q) >> 32);
}

struct xcp_num {
	uint64_t m; /* 2^31 <= m < 2^32, or 0 */
	int32_t e; /* exponent: the value is m * 2^e */
};

XCP_INLINE struct xcp_num xcp_num_scaled(uint64_t v, int32_t e)
{
	uint32_t bits = xcp_bits(v);
	struct xcp_num n = {v << ((64 - bits) & 63) >> 32,
			    e + (int32_t)bits - 32};

	return n;
}

XCP_INLINE struct xcp_num xcp_num_of(uint64_t v)
{
	return xcp_num_scaled(v, 0);
}

/* hi * 2^32 + lo, two sums whose carries have not been passed on */
XCP_INLINE struct xcp_num xcp_num_of_sums(uint64_t hi, uint64_t lo)
{
	hi += lo >> 32;
	if (hi >> 32)
		return xcp_num_scaled(hi, 32);
	return xcp_num_of(hi << 32 | (lo & 0xffffffff));
}

XCP_INLINE struct xcp_num xcp_num_mul(struct xcp_num a, struct xcp_num b)
{
	return xcp_num_scaled(a.m * b.m, a.e + b.e);
}

/* a / b; 0 if b is 0 */
XCP_INLINE struct xcp_num xcp_num_div(struct xcp_num a, struct xcp_num b)
{
	struct xcp_num zero = {0, 0};

	if (!b.m)
		return zero;
	return xcp_num_scaled((a.m << 32) / b.m, a.e - b.e - 32);
}

/* m * 2^s, rounded down, at most `max` (< 2^63), for m < 2^32. */
XCP_CALL uint64_t xcp_fixed(uint64_t m, int32_t s, uint64_t max)
{
	if (!m || s <= -32)
		return 0;
	if (s >= 31)
		return max;
	if (s >= 0)
		return xcp_min(m << (s & 63), max);
	return xcp_min(m >> (-s & 63), max);
}

/* The number in units of 2^-shift, rounded down, at most `max` (< 2^63). */
XCP_INLINE uint64_t xcp_num_fixed(struct xcp_num n, uint32_t shift,
				  uint64_t max)
{
	return xcp_fixed(n.m, n.e + (int32_t)shift, max);
}

/* The rate of `bytes` in `ns`, in bytes per second. */
XCP_CALL uint64_t xcp_rate(uint64_t bytes, uint64_t ns)
{
	return xcp_num_fixed(
		xcp_num_mul(xcp_num_div(xcp_num_of(bytes), xcp_num_of(ns)),
			    xcp_num_of(XCP_NSEC_PER_SEC)),
		0, 1ULL << 62);
}

struct xcp_ratio {
	uint64_t m; /* pool * 2^shift / total */
	uint64_t total; /* a part of this size or more takes the whole pool */
	uint32_t shift;
};

/* Divides a pool (below 2^XCP_POOL_BITS); a total of 0 makes every cut 0. */
XCP_INLINE struct xcp_ratio xcp_ratio_make(uint64_t pool, struct xcp_num total)
{
	uint64_t whole = xcp_num_fixed(total, 8, 1ULL << 62) + 255;
	struct xcp_ratio s = {0, whole >> 8, 20};
	uint32_t bits = xcp_bits(s.total);

	s.shift += bits > 37 ? bits - 37 : 0;
	s.m = xcp_num_fixed(xcp_num_div(xcp_num_of(pool), total), s.shift,
			    1ULL << 62);
	return s;
}

/* The cut of `part` (< 2^36), not yet limited to what remains in the pool. */
XCP_INLINE uint64_t xcp_ratio_part(const struct xcp_ratio *s, uint64_t part)
{
	if (XCP_UNLIKELY(part >= s->total))
		return s->m ? 1ULL << XCP_POOL_BITS : 0;
	return (part * s->m) >> (s->shift & 63);
}

#endif
