/*
 * The kernel of device memory: copies a list of small pieces, one block of threads a piece, in one launch. Sources,
 * destinations and the list may be device memory or pinned host memory. contrib/ci/cuda-kernel makes
 * device/cuda_kernel.h of it.
 */
#define PIECE_THREADS 128

struct piece { /* kvcl_piece_t */
    unsigned long long dst;
    unsigned long long src;
    unsigned long long len;
};

typedef unsigned int vec4 __attribute__((ext_vector_type(4)));

/* Several loads are under way before the first store: one from the host takes about a microsecond. */
enum { AHEAD = 4 };

template <typename word>
static __attribute__((device)) inline void copy(const piece &p, unsigned me)
{
    word       *dst = (word *)p.dst;
    const word *src = (const word *)p.src;
    const unsigned long long n = p.len / sizeof(word);
    unsigned long long       i = me;

    for (; i + (AHEAD - 1) * PIECE_THREADS < n; i += AHEAD * PIECE_THREADS) {
        const word a = src[i], b = src[i + PIECE_THREADS], c = src[i + 2 * PIECE_THREADS],
                   d = src[i + 3 * PIECE_THREADS];

        dst[i]                     = a;
        dst[i + PIECE_THREADS]     = b;
        dst[i + 2 * PIECE_THREADS] = c;
        dst[i + 3 * PIECE_THREADS] = d;
    }
    for (; i < n; i += PIECE_THREADS) {
        dst[i] = src[i];
    }
}

extern "C" __attribute__((global)) void kvcl_copy_pieces(const piece *list)
{
    __attribute__((shared)) static unsigned long long words[3]; /* the list is the host's: read once a block */
    const unsigned me = __nvvm_read_ptx_sreg_tid_x();

    if (me < 3) {
        words[me] = ((const unsigned long long *)(list + __nvvm_read_ptx_sreg_ctaid_x()))[me];
    }
    __syncthreads();

    const piece              p    = {words[0], words[1], words[2]};
    const unsigned long long bits = p.dst | p.src | p.len;

    if ((bits & 15) == 0) {
        copy<vec4>(p, me);
    } else if ((bits & 3) == 0) {
        copy<unsigned int>(p, me);
    } else {
        copy<unsigned char>(p, me);
    }
}
